"""Steps that enrol a host by its BMC: trust its certificate, try the login, and inspect the machine."""

from __future__ import annotations

from blueprints.answers import Answer, Failed, Json, Ready
from blueprints.baremetal import hardware
from blueprints.baremetal.registration import controller_of
from blueprints.baremetal.sessions import bmc_told, session, whole
from blueprints.bmc import tls
from blueprints.bmc.contract import Bmc, Identifies, capabilities
from blueprints.bmc.errors import BmcCertificateUnknown, BmcLoginRefused
from blueprints.bmc.values import Certificate, Inventory
from blueprints.hostshell import NeedsOperator
from blueprints.specs import Spec

_STATED = ("vendor", "model", "serial")


@bmc_told
def trust(spec: Spec, memo: Json) -> Answer:
    """Check the certificate of the BMC. If it is unknown, hold the enrolment until an operator has compared it.

    A refused certificate stays refused until the BMC presents another one or the registration is changed.
    """
    try:
        with session(spec.resource, whole(spec)):
            return Ready()
    except BmcLoginRefused:
        return Ready()  # the certificate is trusted; the next step tells what is wrong with the login
    except BmcCertificateUnknown as error:
        if refused := _refusal_of(spec, error):
            return refused
        return _confirmed(spec, memo, error.certificate)


def _confirmed(spec: Spec, memo: Json, shown: Certificate) -> Answer:
    found = controller_of(spec.resource)
    if not hasattr(found.access, "fingerprint"):
        raise NeedsOperator(f"The driver {found.driver.name} cannot pin the unknown certificate of the BMC.")
    return tls.confirmed(shown, found.identity, spec.resolution, memo, pinned="bmc_pin", refused="bmc_refused")


def _refusal_of(spec: Spec, error: BmcCertificateUnknown) -> Failed | None:
    """Return the failure of a step if an operator has refused the certificate that the BMC presents."""
    return tls.refused_before(error.certificate, spec.resource.facts.get("bmc_refused", {}), "`fingerprint` in `bmc`")


@bmc_told
def log_in(spec: Spec, memo: Json) -> Answer:
    """Log in to the BMC, and check that the account may do what Drydock needs."""
    try:
        with session(spec.resource, whole(spec)) as bmc:
            return _login(bmc)
    except BmcCertificateUnknown as error:
        if refused := _refusal_of(spec, error):
            return refused
        raise


def _login(bmc: Bmc) -> Ready:
    facts: Json = {
        "bmc_functions": sorted(capabilities(bmc)),
        "bmc_power_actions": sorted(one.value for one in bmc.power_actions()),
    }
    if not isinstance(bmc, Identifies):
        return Ready(facts=facts, log="logged in to the BMC")
    login = bmc.login()
    if login.missing:
        raise NeedsOperator(
            f"The account {login.user} of the BMC lacks the privileges {', '.join(login.missing)}.",
            hint=f"It has the role {login.role or 'unknown'} with {', '.join(login.privileges) or 'no privileges'}.",
        )
    told = f"logged in to the BMC as {login.user}, {login.role or 'role unknown'}: {', '.join(login.privileges)}"
    return Ready(facts={**facts, "bmc_user": login.user, "bmc_role": login.role}, log=told.rstrip(": "))


@bmc_told
def inspect(spec: Spec, memo: Json) -> Answer:
    """Read the hardware by the BMC, and compare serial number and UUID with the registration."""
    with session(spec.resource, whole(spec)) as bmc:
        found = bmc.inspect()
    wrong = _contradictions(spec, found)
    if wrong:
        raise NeedsOperator(
            f"The BMC belongs to another machine than the registered one: {'; '.join(wrong)}.",
            hint="Correct the address of the BMC, or the serial number, in the registration.",
        )
    return Ready(
        facts=hardware.facts_of(found), attributes=hardware.attributes_of(found), identities=found.identities,
        health=None if found.health == "failed" else hardware.said_of(found), log="\n".join(found.missing),
    )  # fmt: skip


def _contradictions(spec: Spec, found: Inventory) -> list[str]:
    given = spec.resource.registration
    wrong = []
    expected = str(given.get("serial") or "")
    if expected and expected.casefold() not in hardware.serials(found):
        wrong.append(f"the serial number is {found.serial or 'unknown'}, but was registered as {expected}")
    uuid = str(given.get("uuid") or "")
    if uuid and not hardware.same_uuid(uuid, found.uuid):
        wrong.append(f"the UUID is {found.uuid or 'unknown'}, but was registered as {uuid}")
    stated = given.get("attributes") or {}
    for name in _STATED:
        there = getattr(found, name)
        if stated.get(name) and there and stated[name] != there:
            wrong.append(f"{name} is {there}, but was registered as {stated[name]}")
    return wrong
