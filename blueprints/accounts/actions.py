"""Step actions for a host with accounts: read its facts, prepare it, and remove all accounts that Drydock made."""

from __future__ import annotations

from contextlib import suppress

from blueprints import units
from blueprints.accounts import scripts
from blueprints.accounts.access import home_for, mark_of_host, may_have_units, prefix, shell
from blueprints.accounts.removal import SHARED_FOLDER, shared_close, shared_ended, shared_removed, tidied, vanished
from blueprints.answers import Answer, Failed, Json, Ready, Scope
from blueprints.devices import hand_back_all
from blueprints.hostshell import CannotBecomeRoot, HostShell, NeedsOperator, told, until_done
from blueprints.specs import Spec
from interfaces.errors import CommandFailed, ConnectionLost, DeadlineExceeded, Unreachable

REACH = 8.0
"""Seconds within which a host must answer to count as reachable."""
_TIDYING = 10.0
"""Seconds that a health check spends on removing homes that were set aside."""


def observe(spec: Spec) -> Json:
    """Return the facts of the host. Raises InterfaceError or NeedsOperator."""
    return {name: value for name, value in _observed(spec).items() if name != "aside"}


def _observed(spec: Spec) -> Json:
    folder = spec.config.homes if spec.config.accounts == "per_lease" else "."
    return shell(spec).look(folder)


@told
def prepare(spec: Spec, memo: Json) -> Answer:
    """Check that accounts can be made on the host: root or sudo is available, and the tools are installed."""
    if spec.config.accounts == "shared":
        return Ready()
    wanted = "sudo" if spec.config.lease_sudo else ""
    missing = shell(spec).as_root(scripts.TOOLS, spec.config.homes, wanted).split()
    if missing:
        raise NeedsOperator(
            f"The host lacks: {', '.join(missing)}.", hint="Install the missing tools (Debian: passwd, sudo)."
        )
    return Ready()


@told
def reach(spec: Spec, memo: Json) -> Answer:
    """Check that the host answers within a few seconds, over an open connection or a new one."""
    try:
        shell(spec, at_most=REACH).run(":")
    except (DeadlineExceeded, ConnectionLost) as error:
        message = f"No answer within {REACH:g} s." if isinstance(error, DeadlineExceeded) else error.message
        return Failed(scope=Scope.STEP, code=Unreachable.code, message=message)
    return Ready()


@told
def check_health(spec: Spec, memo: Json) -> Answer:
    """Check that the host answers and its disk has room, and run the operator's own check."""
    found = _observed(spec)
    found |= _tidied(spec, found.pop("aside", ""))
    free = found.get("disk_free_mib", 0)
    if free < spec.config.min_free_mib:
        return Failed(scope=Scope.STEP, code="disk_full", message=f"Only {free} MiB of the host's disk are free.")
    if spec.config.health_command:
        try:
            shell(spec).run(spec.config.health_command)
        except CommandFailed as error:
            return Failed(scope=Scope.STEP, code="health_command", message=error.message)
    return Ready(facts=found)


def _tidied(spec: Spec, there: str) -> Json:
    """Retry the removal of homes that were set aside. Return the homes that remain, as a fact of the host."""
    if spec.config.accounts != "per_lease" or not (there or spec.resource.facts.get("aside")):
        return {}
    return {"aside": tidied(shell(spec, at_most=_TIDYING), spec.config.homes.rstrip("/"), prefix(spec.resource))}


@until_done("Accounts of earlier leases are being removed.")
def remove_accounts(spec: Spec) -> bool:
    """Remove every account that Drydock made on the host. Return whether all of them are gone."""
    if _never_reached(spec):
        return True
    there = shell(spec)
    if may_have_units(spec.resource) and not units.removed_all(there, prefix(spec.resource)):
        return False
    if spec.config.accounts == "shared":
        return _remove_shared(spec, there)
    users = there.run(scripts.ACCOUNTS, prefix(spec.resource)).split()
    return all(not there.tired and vanished(there, user, home_for(spec.resource, user)) for user in users)


@told
def hand_back(spec: Spec, memo: Json) -> Answer:
    """Check that no account made by Drydock is left, and give device nodes the owners that they had."""
    if _never_reached(spec):
        return Ready()
    if spec.config.accounts == "shared":
        begins = prefix(spec.resource)
        left = shell(spec).run(scripts.SHARED_LEFT, mark_of_host(spec.resource), SHARED_FOLDER, begins).split()
    else:
        left = shell(spec).run(scripts.ACCOUNTS, prefix(spec.resource)).split()
    if left:
        return Failed(
            scope=Scope.STEP, code="still_there", message=f"These accounts are still on the host: {', '.join(left)}."
        )
    with suppress(CannotBecomeRoot):  # then nothing was changed as root
        hand_back_all(shell(spec))
    return Ready(log="handed back")


def _never_reached(spec: Spec) -> bool:
    """Return whether the host's first step never succeeded, so that Drydock cannot have left anything on it."""
    return "arch" not in spec.resource.facts


def _remove_shared(spec: Spec, there: HostShell) -> bool:
    marks = there.run(scripts.SHARED_LEFT, mark_of_host(spec.resource)).split()
    users = {mark.removeprefix("drydock:") for mark in marks}
    ours = sorted(user for user in users if user.startswith(prefix(spec.resource)))
    return all(not there.tired and _shared_gone(spec, there, user) for user in ours)


def _shared_gone(spec: Spec, there: HostShell, user: str) -> bool:
    shared_close(there, user)
    return shared_ended(there, user, user, whole=spec.config.end_account) and shared_removed(there, user)
