"""Steps that enrol a card by its BMC: certificate, login, password, and what the card is."""

from __future__ import annotations

import functools

from blueprints.answers import Answer, Hold, Json, Ready, Wait
from blueprints.bluefield import hold_card, usual_memory_gib
from blueprints.bluefield.access import (
    PIN,
    REFUSED,
    Login,
    access_of,
    bmc_told,
    configured,
    has_bmc,
    opened,
    own,
    where,
)
from blueprints.bluefield.cards import BMC, RSHIM
from blueprints.bluefield.logins import FACTORY, PENDING, SET, SHORTEST, new_password
from blueprints.bluefield.reading import judged
from blueprints.bmc import tls
from blueprints.bmc.errors import BmcCertificateUnknown, BmcLoginRefused
from blueprints.bmc.redfish import Redfish
from blueprints.contract import Act
from blueprints.dpu.bluefield_card.config import Config, Registration
from blueprints.hostshell import NeedsOperator, told
from blueprints.identities import real
from blueprints.specs import ResourceView, Spec

PASSWORD, GENERATED, FORMER, KNOWN = "password", "generated_password", "former_password", "known_password"
"""The fact that says whether the generated password is known to be set, which `_state` reads, and the names of secrets:
the generated password, the one before it, and the last one that operators know. The latter two differ if a BMC has
demanded another password in place of a generated one."""
_REFUSED = "refused"
"""In a memo: the number of logins of a step that the BMC has refused, the likeliest first. None is tried twice."""


def serial_of(spec: Spec) -> str:
    """Return the serial number with which the card is registered."""
    return str(spec.resource.registration["serial"]).strip().upper()


def by_bmc(act: Act) -> Act:
    """Wrap an act that calls the BMC, so that nothing is done about a card that has none."""
    inner = bmc_told(act)

    @functools.wraps(act)
    def answered(spec: Spec, memo: Json) -> Answer:
        return inner(spec, memo) if has_bmc(spec.resource) else Ready()

    return answered


@told
def lock(spec: Spec, memo: Json) -> Answer:
    """Take the lock on the serial number of the card, so that nobody else writes to it, by whatever way."""
    if not has_bmc(spec.resource) and _state(spec.resource):
        raise NeedsOperator(
            "The BMC of the card has a generated password, which would be lost without `bmc` in the registration.",
            hint="Add `bmc` again, or remove the card and register it anew.",
        )
    return hold_card(spec, serial_of(spec)) or Ready()


@by_bmc
def trust(spec: Spec, memo: Json) -> Answer:
    """Check the certificate of the BMC, without a login. Hold the enrolment until an operator has compared it."""
    access = access_of(spec.resource)
    try:
        Redfish().probe(access, deadline=spec.deadline * 0.8)
    except BmcCertificateUnknown as error:
        shown, known = error.certificate, spec.resource.facts.get(REFUSED, {})
        refused = tls.refused_before(shown, known, "`fingerprint` in `bmc`")
        return refused or tls.confirmed(
            shown, where(access), spec.resolution, memo, pinned=PIN, refused=REFUSED
        )  # fmt: skip
    return Ready()


def _state(resource: ResourceView) -> str:
    """Return PENDING or SET if the card's own password is a generated one; empty if operators know it.

    The facts of a card are lost if its registration is corrected before it is enrolled, and the secrets are not. Then
    nobody knows whether the password was set.
    """
    generated = resource.secrets.get(GENERATED)
    if not generated or own(resource).get("password") != generated:
        return ""
    return SET if resource.facts.get(PASSWORD) == SET else PENDING


def former(resource: ResourceView) -> Login:
    """Return the login that a generated password replaces."""
    account = own(resource).get("username") or configured(resource)["username"]
    return {"username": account, "password": resource.secrets.get(FORMER) or configured(resource)["password"]}


def _logins(resource: ResourceView) -> list[Login]:
    """Return the logins that may be right, the likeliest first. More than one only if a worker may have died."""
    current = own(resource) or configured(resource)
    return [former(resource), current] if _state(resource) == PENDING else [current]


def _next(logins: list[Login], memo: Json) -> Login:
    """Return the login to try now: the first that was not refused. The last, if operators have shortened the list."""
    return logins[min(int(memo.get(_REFUSED, 0)), len(logins) - 1)]


def _after(refusal: BmcLoginRefused, memo: Json, logins: int) -> Wait:
    """Return the answer that tries the next login of a step. Raises the refusal if it was that of the last one.

    It is committed which login was refused. Otherwise, a step whose second login must wait would try the first again,
    and the refusals of the first would keep the second waiting for ever.
    """
    refused = int(memo.get(_REFUSED, 0)) + 1
    if refused >= logins:
        raise refusal
    return Wait(after=0.0, memo={_REFUSED: refused})


@by_bmc
def log_in(spec: Spec, memo: Json) -> Answer:
    """Try the login, and find out whether its password must be replaced."""
    logins = _logins(spec.resource)
    login = _next(logins, memo)
    try:
        with opened(spec.resource, login, spec.deadline * 0.9) as session:
            known = None if session.must_change_password else session.login()
            expired = session.must_change_password
    except BmcLoginRefused as error:
        return _after(error, memo, len(logins))
    if known is not None and known.missing:
        raise NeedsOperator(
            f"The account {known.user} of the BMC lacks the privileges {', '.join(known.missing)}.",
            hint=f"It has the role {known.role or 'unknown'}.",
        )
    replace = expired or login["password"] == FACTORY["password"]
    facts: Json = {"replace_password": replace}
    if login == own(spec.resource) and _state(spec.resource) == PENDING:
        facts[PASSWORD] = SET  # by a worker that died before it could say so
    return Ready(facts=facts, log=f"logged in to the BMC as {login['username']}")


def choose_password(spec: Spec, memo: Json) -> Answer:
    """Generate a password in place of the factory's, and let it be stored before it is set at the BMC.

    One that was stored before is kept, because it may have been set by a worker that died.
    """
    resource = spec.resource
    if not resource.facts.get("replace_password") or _state(resource) == PENDING:
        return Ready()
    login = own(resource) or configured(resource)
    known, made = _known(resource) if _state(resource) == SET else login, new_password()
    return Ready(
        own_credential={"username": login["username"], "password": made}, facts={PASSWORD: PENDING},
        secrets={GENERATED: made, FORMER: login["password"], KNOWN: known["password"]},
    )  # fmt: skip


@by_bmc
def replace_password(spec: Spec, memo: Json) -> Answer:
    """Set the stored password at the BMC, and log in with it."""
    resource = spec.resource
    if _state(resource) != PENDING:
        return Ready()
    given = own(resource)
    if not memo:
        try:
            with opened(resource, former(resource), spec.deadline * 0.4) as session:
                session.set_password(given["password"])
        except BmcLoginRefused as error:
            return _after(error, memo, 2)  # a worker that died has set it, which the next login shows
    with opened(resource, given, spec.deadline * 0.4):
        facts = {PASSWORD: SET, "replace_password": False}
        return Ready(facts=facts, log="replaced the password of the BMC by a generated one")


@bmc_told
def inspect(spec: Spec, memo: Json) -> Answer:
    """Read what the card is, and compare its serial number with the registration."""
    resource = spec.resource
    config: Config = spec.config
    if not has_bmc(resource):
        return Ready(attributes=_declared(spec))
    with opened(resource, own(resource) or configured(resource), spec.deadline * 0.9) as session:
        found = session.card()
    if found.serial.casefold() != serial_of(spec).casefold():
        raise NeedsOperator(
            f"The BMC belongs to the card {found.serial or 'without a serial number'}, but {serial_of(spec)} was "
            "registered.",
            hint="Correct the address of the BMC, or the serial number, in the registration.",
        )
    memory = config.memory_gib.get(found.part_number) or config.memory_gib.get(found.generation)
    attributes: Json = {
        **found.attributes(), "memory_gib": memory or usual_memory_gib(found.generation), "ports": config.ports,
        "via": BMC, "serial": serial_of(spec),
    }  # fmt: skip
    return Ready(
        facts={"card": found.facts()}, attributes={name: value for name, value in attributes.items() if value},
        identities=real({"serial": found.serial}), health=None if found.health == "failed" else judged(found.health),
        log="\n".join(found.missing)[:2000],
    )  # fmt: skip


def _declared(spec: Spec) -> Json:
    """Return the attributes of a card without a BMC, from its registration."""
    config: Config = spec.config
    model = Registration.model_validate(spec.resource.registration).model
    memory = config.memory_gib.get(model) or usual_memory_gib(model)
    found = {"model": model, "memory_gib": memory, "ports": config.ports, "via": RSHIM, "serial": serial_of(spec)}
    return {name: value for name, value in found.items() if value}


def host_of(spec: Spec) -> str:
    """Return the name or serial number of the host that the card is in, as the registration or the config says."""
    given = Registration.model_validate(spec.resource.registration)
    config: Config = spec.config
    return given.host or {name.strip().upper(): host for name, host in config.hosts.items()}.get(given.serial, "")


def place(spec: Spec, memo: Json) -> Answer:
    """Make the card part of its host, and of no other, also if it was moved."""
    return Ready(host=host_of(spec))


@told
def check_place(spec: Spec, memo: Json) -> Answer:
    """Check that the host of the card is known, as others would be switched off with it."""
    wanted, host = host_of(spec), spec.resource.host()
    if not wanted and not has_bmc(spec.resource):
        raise NeedsOperator(
            "The card has no BMC, so it can be installed from its host only, and no host is registered with it.",
            hint="Add `bmc` or `host` to the registration of the card.",
        )
    if wanted and host is None:
        raise NeedsOperator(
            f"The card is in host {wanted}, but no host has this name or serial number, or several have.",
            hint="Register the host, or correct `host` in the registration of the card.",
        )
    return Ready(attributes={"host": host.name if host is not None else None})


@by_bmc
def hand_back(spec: Spec, memo: Json) -> Answer:
    """Replace a generated password by one that people know, as nobody can read it after the card is removed."""
    resource = spec.resource
    if not _state(resource):
        return Ready()
    known = _returned(resource)
    logins = _possible(resource, known)
    login = _next(logins, memo)
    try:
        with opened(resource, login, spec.deadline * 0.9) as session:
            if login["password"] == known["password"]:
                return Ready(log="the BMC has no generated password")
            if len(known["password"]) < SHORTEST:
                return _left(spec, known)
            session.set_password(known["password"])
            return Ready(log="replaced the generated password of the BMC by the one that cards are handed back with")
    except BmcLoginRefused as error:
        return _after(error, memo, len(logins))


def _possible(resource: ResourceView, known: Login) -> list[Login]:
    """Return the logins that a BMC may have when its card is removed, the likeliest first.

    The own one may never have been set, and a worker that died may have replaced it by the known one.
    """
    before = [former(resource)] if _state(resource) == PENDING else []
    found: list[Login] = []
    for login in (own(resource), *before, known):
        if login not in found:
            found.append(login)
    return found


def _known(resource: ResourceView) -> Login:
    """Return the last login that operators know."""
    account = former(resource)
    return {**account, "password": resource.secrets.get(KNOWN) or account["password"]}


def _returned(resource: ResourceView) -> Login:
    """Return the login with which the card is handed back."""
    config: Config = resource.blueprint.config
    given = resource.blueprint.credentials.get(config.return_credential, {})
    return {**_known(resource), **({"password": given["password"]} if given.get("password") else {})}


def _left(spec: Spec, known: Login) -> Answer:
    """Ask an operator whether the generated password may stay, as the BMC accepts none as short as the former one."""
    if spec.resolution is not None and spec.resolution.yes:
        return Ready(log="left a generated password at the BMC")
    what = (
        f"The BMC {where(access_of(spec.resource))} has a generated password, and its password before had only "
        f"{len(known['password'])} characters, but it accepts none with less than {SHORTEST}. Set return_credential in "
        "the blueprint, so that the BMC gets a password that you know. Answer yes once that is set, or if the password "
        "may be lost; the BMC must then be reset to its defaults before anybody can log in."
    )
    return Hold(who="operator", what=what)
