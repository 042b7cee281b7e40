"""Checks that read from the BMC and change nothing: trust, login, hardware, log, sensors, console and sessions."""

from __future__ import annotations

import secrets

from blueprints.answers import Answer, Failed, Json, Ready, Wait
from blueprints.baremetal import console, hardware
from blueprints.baremetal.registration import Controller, controller_of
from blueprints.baremetal.sessions import bmc_told, session, since, whole
from blueprints.baremetal.validation.values import impossible, unmet
from blueprints.bmc.contract import Bmc, Counts, Identifies, Logs, Measures
from blueprints.bmc.errors import BmcBusy, BmcLacks, BmcLoginRefused
from blueprints.bmc.values import Inventory
from blueprints.specs import Spec
from drydock.core import clock
from drydock.core.errors import NotSupported
from interfaces.console.contract import Line
from interfaces.deadline import Deadline
from interfaces.errors import ConsoleBusy

SESSIONS = 20
"""Number of sessions that are opened one after another."""
_OTHERS = 2
"""Sessions by which the count may grow, because other people use the BMC too."""
_TURN = 8.0
"""Seconds after which the next sessions are opened in another call of the step."""
_LISTEN = 0.5
_REOPEN = 2.0
"""Seconds after which a console that was closed must be free."""
_OPENING = 30.0


@bmc_told
def certificate(spec: Spec, memo: Json) -> Answer:
    """Check that the BMC presents the pinned certificate, or one that a trusted authority has signed."""
    found = controller_of(spec.resource)
    try:
        with session(spec.resource, whole(spec)):
            pass
    except BmcLoginRefused:
        pass  # after the handshake, so the certificate is trusted
    if pinned := getattr(found.access, "fingerprint", ""):
        return Ready(log=f"The pinned certificate with SHA-256 {pinned} was presented.")
    shown = found.driver.certificate(found.access, deadline=whole(spec))
    if shown is None:
        return impossible(f"The connection of the driver {found.driver.name} to this BMC uses no certificate.")
    return Ready(log=f"A trusted authority has signed the certificate: {shown.issuer or 'it does not name itself'}.")


@bmc_told
def wrong_password(spec: Spec, memo: Json) -> Answer:
    """Log in once with a wrong password, which must be refused, and then with the right one, which must not be."""
    found = controller_of(spec.resource)
    if "password" not in found.credential:
        return impossible("The login of this BMC has no password.")
    if not memo:
        return _tried(found, spec) or Wait(after=0.0, memo={"refused": True})
    try:
        with session(spec.resource, whole(spec)) as bmc:
            bmc.power()
    except BmcLoginRefused as error:
        return unmet(f"After one wrong password, the BMC refuses the right one as well: {error.message}")
    return Ready(log="One wrong password was refused. The right one was accepted afterwards.")


def _tried(found: Controller, spec: Spec) -> Failed | None:
    """Return a failure unless the BMC refuses a wrong password. It is tried once, because BMCs lock accounts."""
    wrong = {**found.credential, "password": secrets.token_urlsafe(9)}
    try:
        with found.driver.open(found.access, wrong, deadline=whole(spec)) as bmc:
            bmc.power()
    except BmcLoginRefused:
        return None
    except BmcBusy as error:
        return unmet(f"The BMC did not say that a wrong password is wrong: {error.message}")
    return unmet("The BMC accepted a wrong password.")


@bmc_told
def privileges(spec: Spec, memo: Json) -> Answer:
    """Check that the account may do what Drydock needs."""
    with session(spec.resource, whole(spec)) as bmc:
        if not isinstance(bmc, Identifies):
            raise BmcLacks("The driver of this BMC cannot read the privileges of an account.")
        login = bmc.login()
    if login.missing:
        return unmet(f"The account {login.user} ({login.role or 'role unknown'}) lacks {', '.join(login.missing)}.")
    if not login.privileges:
        return impossible(f"The BMC does not say what the account {login.user} may do.")
    return Ready(log=f"{login.user}, {login.role or 'role unknown'}: {', '.join(login.privileges)}.")


@bmc_told
def inventory(spec: Spec, memo: Json) -> Answer:
    """Inspect the machine twice. Both inspections must be complete, and must not differ."""
    with session(spec.resource, whole(spec)) as bmc:
        found = bmc.inspect()
    now = hardware.facts_of(found)["hardware"]
    if "first" not in memo:
        return Wait(after=0.0, memo={"first": now})
    wrong = [f"It does not tell {name}." for name in _untold(found)]
    wrong += [f"{one.rstrip('.')}." for one in found.missing]
    wrong += [f"Between two inspections, {one}" for one in hardware.differences(memo["first"], now)]
    if wrong:
        return unmet(" ".join(wrong))
    told = f"{found.vendor} {found.model}".strip() or "The machine"
    return Ready(log=f"{told}, serial number {found.serial}, {len(found.disks)} disks, {len(found.nics)} ports.")


def _untold(found: Inventory) -> list[str]:
    known = {
        "the serial number": bool(hardware.serials(found)), "the UUID": bool(found.uuid),
        "the MAC address of a port": any(one.mac for one in found.nics), "the disks": bool(found.disks),
    }  # fmt: skip
    return [name for name, there in known.items() if not there]


@bmc_told
def event_log(spec: Spec, memo: Json) -> Answer:
    """Read the system event log."""
    with session(spec.resource, whole(spec)) as bmc:
        if not isinstance(bmc, Logs):
            raise BmcLacks("The driver of this BMC reads no event log.")
        entries = bmc.entries()
    if not entries:
        return impossible("The BMC has no event log, or it is empty, so that it cannot be seen whether it can be read.")
    return Ready(log=f"{len(entries)} entries were read. The newest: {entries[-1].message[:200]}")


@bmc_told
def sensors(spec: Spec, memo: Json) -> Answer:
    """Read the sensors."""
    with session(spec.resource, whole(spec)) as bmc:
        if not isinstance(bmc, Measures):
            raise BmcLacks("The driver of this BMC reads no sensors.")
        found = bmc.sensors()
    if not found:
        return unmet("The BMC lists no sensors.")
    values = sum(one.value is not None for one in found)
    return Ready(log=f"{len(found)} sensors were listed, {values} of them with a value.")


@bmc_told
def serial_console(spec: Spec, memo: Json) -> Answer:
    """Open and close the console twice. The second time fails if the first session was not ended."""
    try:
        connect = console.line_of(spec.resource)
    except NotSupported as error:
        return impossible(error.message)
    try:
        _listened(connect(Deadline(min(whole(spec), _OPENING)), False))
    except ConsoleBusy as error:
        return unmet(
            "The console is still in use after it was closed." if memo else f"Somebody uses the console: {error}"
        )
    if not memo:
        return Wait(after=_REOPEN, memo={"closed": True})
    return Ready(log="It was opened and closed twice.")


def _listened(line: Line) -> None:
    try:
        line.read(_LISTEN)
    finally:
        line.close()


@bmc_told
def sessions(spec: Spec, memo: Json) -> Answer:
    """Open and close many sessions. Their number at the BMC must not grow."""
    done, began = int(memo.get("done", 0)), clock.now().isoformat()
    before = memo.get("before")
    try:
        while done < SESSIONS and since(began) < _TURN:
            with session(spec.resource, whole(spec)) as bmc:
                if not done:
                    before = _counted(bmc)
                bmc.power()
            done += 1
    except BmcBusy as error:
        if not done:
            raise
        return unmet(f"After {done} sessions, the BMC opens no further one: {error.message}")
    if done < SESSIONS:
        return Wait(after=0.0, memo={"done": done, "before": before}, percent=100 * done // SESSIONS)
    with session(spec.resource, whole(spec)) as bmc:
        after = _counted(bmc)
    if before is None or after is None:
        return Ready(
            log=f"{SESSIONS} sessions were opened one after another. The driver cannot count those that are open."
        )
    if after > before + _OTHERS:
        return unmet(f"{before} sessions were open before {SESSIONS} calls, and {after} after them.")
    return Ready(log=f"{before} sessions were open before {SESSIONS} calls, and {after} after them.")


def _counted(bmc: Bmc) -> int | None:
    """Return the number of sessions at the BMC; None if the driver or the BMC cannot count them."""
    try:
        return bmc.open_sessions() if isinstance(bmc, Counts) else None
    except BmcLacks:
        return None
