"""What steps do to a host for the sake of accounts: looking at it, and removing every account of ours."""

from __future__ import annotations

from blueprints.accounts import scripts
from blueprints.accounts.access import home_for, mark_of_host, prefix, shell
from blueprints.accounts.ending import (
    SHARED_FOLDER,
    shared_close,
    shared_ended,
    shared_removed,
    tidied,
    vanished,
)
from blueprints.answers import Answer, Failed, Json, Ready, Scope
from blueprints.hostshell import HostShell, NeedsOperator, told, until_done
from blueprints.specs import Spec
from interfaces.errors import CommandFailed, ConnectionLost, DeadlineExceeded, Unreachable

REACH = 8.0
"""Seconds within which a host answers, or counts as unreachable."""

_TIDYING = 10.0
"""Seconds of a health check for what was put aside."""


def looked(spec: Spec) -> Json:
    """Facts of the host. Raises InterfaceError, NeedsOperator."""
    return {name: value for name, value in _looked(spec).items() if name != "aside"}


def _looked(spec: Spec) -> Json:
    folder = spec.config.homes if spec.config.accounts == "per_lease" else "."
    return shell(spec).look(folder)


@told
def prepare(spec: Spec, memo: Json) -> Answer:
    """See that accounts can be made there: root or sudo, and the tools."""
    if spec.config.accounts == "shared":
        return Ready()
    wanted = "sudo" if spec.config.lease_sudo else ""
    missing = shell(spec).as_root(scripts.TOOLS, spec.config.homes, wanted).split()
    if missing:
        raise NeedsOperator(f"The host lacks: {', '.join(missing)}.", hint="Install it (Debian: passwd, sudo).")
    return Ready()


@told
def reach(spec: Spec, memo: Json) -> Answer:
    """Have the host answer within a few seconds, over a connection that is there or a new one."""
    try:
        shell(spec, at_most=REACH).run(":")
    except (DeadlineExceeded, ConnectionLost) as error:
        message = f"No answer within {REACH:g} s." if isinstance(error, DeadlineExceeded) else error.message
        return Failed(scope=Scope.STEP, code=Unreachable.code, message=message)
    return Ready()


@told
def look(spec: Spec, memo: Json) -> Answer:
    """The health check: reachable, room on the disk, and whatever the operator asks besides."""
    found = _looked(spec)
    found |= _tidied(spec, found.pop("aside", ""))
    free = found.get("disk_free_mib", 0)
    if free < spec.config.min_free_mib:
        return Failed(scope=Scope.STEP, code="disk_full", message=f"{free} MiB of its disk are free.")
    if spec.config.health_command:
        try:
            shell(spec).run(spec.config.health_command)
        except CommandFailed as error:
            return Failed(scope=Scope.STEP, code="health_command", message=error.message)
    return Ready(facts=found)


def _tidied(spec: Spec, there: str) -> Json:
    """What is left of the homes that were put aside, where there are any."""
    if spec.config.accounts != "per_lease" or not (there or spec.resource.facts.get("aside")):
        return {}
    return {"aside": tidied(shell(spec, at_most=_TIDYING), spec.config.homes.rstrip("/"), prefix(spec.resource))}


@until_done("Accounts of former leases are being removed.")
def remove_accounts(spec: Spec) -> bool:
    """Every account of ours on the host, and no other."""
    if _never_reached(spec):
        return True
    there = shell(spec)
    if spec.config.accounts == "shared":
        return _remove_shared(spec, there)
    users = there.run(scripts.ACCOUNTS, prefix(spec.resource)).split()
    return all(not there.tired and vanished(there, user, home_for(spec.resource, user)) for user in users)


@told
def hand_back(spec: Spec, memo: Json) -> Answer:
    """See that nothing of ours is there any more; the host itself is not ours."""
    if _never_reached(spec):
        return Ready()
    if spec.config.accounts == "shared":
        begins = prefix(spec.resource)
        left = shell(spec).run(scripts.SHARED_LEFT, mark_of_host(spec.resource), SHARED_FOLDER, begins).split()
    else:
        left = shell(spec).run(scripts.ACCOUNTS, prefix(spec.resource)).split()
    if left:
        return Failed(scope=Scope.STEP, code="still_there", message=f"Still on the host: {', '.join(left)}.")
    return Ready(log="handed back")


def _never_reached(spec: Spec) -> bool:
    """Nothing of ours can be on a host whose first step never succeeded; nobody need wait for it to appear."""
    return "arch" not in spec.resource.facts


def _remove_shared(spec: Spec, there: HostShell) -> bool:
    marks = there.run(scripts.SHARED_LEFT, mark_of_host(spec.resource)).split()
    users = {mark.removeprefix("drydock:") for mark in marks}
    ours = sorted(user for user in users if user.startswith(prefix(spec.resource)))
    return all(not there.tired and _shared_gone(spec, there, user) for user in ours)


def _shared_gone(spec: Spec, there: HostShell, user: str) -> bool:
    shared_close(there, user)
    return shared_ended(there, user, user, whole=spec.config.end_account) and shared_removed(there, user)
