"""Steps that enrol a card by its BMC: certificate, login, password, and what the card is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from blueprints.answers import Answer, Hold, Json, Ready, Wait
from blueprints.bluefield import hold_card, usual_memory_gib
from blueprints.bluefield.access import PIN, REFUSED, access_of, bmc_told, opened, where
from blueprints.bluefield.cards import BMC
from blueprints.bluefield.logins import FACTORY, PENDING, SET, SHORTEST, new_password
from blueprints.bluefield.reading import judged
from blueprints.bmc import tls
from blueprints.bmc.errors import BmcCertificateUnknown, BmcLoginRefused
from blueprints.bmc.redfish import Redfish
from blueprints.dpu.bluefield_card.config import Config, Registration
from blueprints.hostshell import NeedsOperator, told
from blueprints.identities import real
from blueprints.specs import ResourceView, Spec

Login = Mapping[str, str]
PASSWORD, FORMER = "password", "former_password"
"""The fact that says whether a generated password is in use, and the secret with the password before it."""


def serial_of(spec: Spec) -> str:
    """Return the serial number with which the card is registered."""
    return str(spec.resource.registration["serial"]).strip()


def lock(spec: Spec, memo: Json) -> Answer:
    """Take the lock on the serial number of the card, so that nobody else writes to it, by whatever way."""
    return hold_card(spec, serial_of(spec)) or Ready()


@bmc_told
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


def configured(resource: ResourceView) -> Login:
    """Return the login of the blueprint, or else that of the factory."""
    config: Config = resource.blueprint.config
    return {**FACTORY, **resource.blueprint.credentials.get(config.bmc_credential, {})}


def own(resource: ResourceView) -> Login:
    """Return the login of the card itself; empty if it has none."""
    given = {name: value for name, value in resource.credential.items() if value}
    return {"username": configured(resource)["username"], **given} if "password" in given else {}


def former(resource: ResourceView) -> Login:
    """Return the login that a generated password replaces."""
    account = own(resource).get("username") or configured(resource)["username"]
    return {"username": account, "password": resource.secrets.get(FORMER) or configured(resource)["password"]}


def _logins(resource: ResourceView) -> Iterator[Login]:
    """Return the logins that may be right, the likeliest first. More than one only if a worker may have died."""
    if resource.facts.get(PASSWORD) == PENDING:
        yield former(resource)
    yield own(resource) or configured(resource)


@bmc_told
def log_in(spec: Spec, memo: Json) -> Answer:
    """Try the login, and find out whether its password must be replaced."""
    refusal: BmcLoginRefused | None = None
    for login in _logins(spec.resource):
        try:
            with opened(spec.resource, login, spec.deadline * 0.4) as session:
                known = None if session.must_change_password else session.login()
                expired = session.must_change_password
        except BmcLoginRefused as error:
            refusal = error
            continue
        if known is not None and known.missing:
            raise NeedsOperator(
                f"The account {known.user} of the BMC lacks the privileges {', '.join(known.missing)}.",
                hint=f"It has the role {known.role or 'unknown'}.",
            )
        replace = expired or login["password"] == FACTORY["password"]
        facts: Json = {"replace_password": replace}
        if login == own(spec.resource) and spec.resource.facts.get(PASSWORD) == PENDING:
            facts[PASSWORD] = SET  # by a worker that died before it could say so
        return Ready(facts=facts, log=f"logged in to the BMC as {login['username']}")
    assert refusal is not None
    raise refusal


def choose_password(spec: Spec, memo: Json) -> Answer:
    """Generate a password in place of the factory's, and let it be stored before it is set at the BMC.

    One that was stored before is kept, because it may have been set by a worker that died.
    """
    resource = spec.resource
    if not resource.facts.get("replace_password") or resource.facts.get(PASSWORD) == PENDING:
        return Ready()
    login = own(resource) or configured(resource)
    return Ready(
        own_credential={"username": login["username"], "password": new_password()},
        secrets={FORMER: login["password"]}, facts={PASSWORD: PENDING},
    )  # fmt: skip


@bmc_told
def replace_password(spec: Spec, memo: Json) -> Answer:
    """Set the stored password at the BMC, and log in with it."""
    resource = spec.resource
    if resource.facts.get(PASSWORD) != PENDING:
        return Ready()
    given = own(resource)
    try:
        with opened(resource, former(resource), spec.deadline * 0.4) as session:
            session.set_password(given["password"])
    except BmcLoginRefused:
        pass  # a worker that died has set it, which the next login shows
    with opened(resource, given, spec.deadline * 0.4):
        facts = {PASSWORD: SET, "replace_password": False}
        return Ready(facts=facts, log="replaced the password of the BMC by a generated one")


@bmc_told
def inspect(spec: Spec, memo: Json) -> Answer:
    """Read what the card is, and compare its serial number with the registration."""
    resource = spec.resource
    config: Config = spec.config
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


def host_of(spec: Spec) -> str:
    """Return the name or serial number of the host that the card is in, as the registration or the config says."""
    given = Registration.model_validate(spec.resource.registration)
    config: Config = spec.config
    return given.host or config.hosts.get(given.serial, "")


def place(spec: Spec, memo: Json) -> Answer:
    """Make the card part of its host."""
    return Ready(host=host_of(spec))


@told
def check_place(spec: Spec, memo: Json) -> Answer:
    """Check that the host of the card is known, as others would be switched off with it."""
    wanted, host = host_of(spec), spec.resource.host()
    if wanted and host is None:
        raise NeedsOperator(
            f"The card is in host {wanted}, but no host has this name or serial number, or several have.",
            hint="Register the host, or correct `host` in the registration of the card.",
        )
    return Ready(attributes={"host": host.name if host is not None else None})


@bmc_told
def hand_back(spec: Spec, memo: Json) -> Answer:
    """Replace a generated password by one that people know, as nobody can read it after the card is removed."""
    resource = spec.resource
    if resource.facts.get(PASSWORD) not in (PENDING, SET) or not own(resource):
        return Ready()
    known = _known(resource)
    try:
        with opened(resource, own(resource), spec.deadline * 0.4) as session:
            if len(known["password"]) < SHORTEST:
                return _left(spec, known)
            if not memo:  # committed before the change, so that a worker that follows knows which password to expect
                return Wait(after=0.0, memo={"setting": True})
            session.set_password(known["password"])
            return Ready(log="replaced the generated password of the BMC by the one that cards are handed back with")
    except BmcLoginRefused:
        # It was never set, or it has been replaced by a worker that died.
        expected = former(resource) if resource.facts[PASSWORD] == PENDING and not memo else known
        with opened(resource, expected, spec.deadline * 0.4):
            return Ready(log="the BMC has no generated password")


def _known(resource: ResourceView) -> Login:
    """Return the login with which the card is handed back."""
    config: Config = resource.blueprint.config
    given = resource.blueprint.credentials.get(config.return_credential, {})
    return {**former(resource), **({"password": given["password"]} if given.get("password") else {})}


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
