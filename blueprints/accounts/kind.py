"""Base class of the kinds whose hosts give every lease an account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from blueprints.accounts import access, actions, leasing
from blueprints.accounts.config import Accounts
from blueprints.contract import Activates, Checks, Controls, Fields, HandsOver, Kind, Opener, Plan, Step
from blueprints.hosts import openers
from blueprints.hostshell import NeedsOperator
from blueprints.specs import BlueprintView, Control, LeaseView, Problem, ResourceView, UnitHost
from interfaces.errors import AuthenticationRefused, HostKeyMismatch, Unreachable
from interfaces.transport import Transport

LONG = 3600.0
"""Deadline in seconds of a step that ends processes or removes files."""
_SLOW = {"processes", "files"}
_REACH = Step(name="reach", act=actions.reach)


class WithAccounts(Kind, Activates, HandsOver, Checks, Controls):
    """Base of kinds whose hosts are reached over SSH, with a key pair for every lease.

    A lease has an account of its own (`per_lease`) or the control account for itself (`shared`). The kind's Config is
    an `Accounts`. Its resources have the facts `address`, `port`, `user` and `host_keys`, and their own `private_key`
    in their secrets unless the config names a `control_credential`.
    """

    Config: ClassVar[type[Fields]] = Accounts
    unreachable: ClassVar[frozenset[str]] = frozenset(
        error.code for error in (Unreachable, HostKeyMismatch, AuthenticationRefused)
    )

    def activate(self) -> Plan:
        """Return the plan that checks the host, makes a key pair and an account, opens access and tries it."""
        return (_REACH, *_plan("activate"))

    def deactivate(self) -> Plan:
        """Return the plan that closes the account's access, ends its processes, and removes files and account."""
        return (_REACH, *_plan("deactivate"))

    def hand_over(self) -> Plan:
        """Return the plan that closes the account, ends its processes, and opens the account again with a new key."""
        return (_REACH, *_plan("hand_over"))

    def check(self) -> Plan:
        """Return the plan that checks that the host is reachable with the pinned key and has free disk space."""
        return (_REACH, Step(name="look", act=actions.check_health))

    def interfaces(self) -> Mapping[str, Opener]:
        """Return functions that open commands and files over SSH with the lease's own account and key."""
        return openers(access.transport_of, "command", "filesystem")

    def control(self, lease: LeaseView) -> Control | None:
        """Return the control account, unless the lease uses it itself."""
        return access.control_of(lease)

    def unit_host(self, lease: LeaseView) -> UnitHost | None:
        """Return the host for the unit of a workload, if it has systemd and podman. Calls no host."""
        return access.unit_host_of(lease)

    def reach(self, resource: ResourceView) -> Transport:
        """Return the control account of the host."""
        return access.control_transport(resource)

    def reusable_after(self, lease: LeaseView) -> bool:
        """Return False after a lease that could change the host itself, unless the operator trusts the owners."""
        used: Accounts = lease.resource.blueprint.config
        return used.trusted or not (used.marks_host or lease.facts.get("isolation") in ("none", "machine"))

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Check that the credentials exist, and warn about what the config exposes. Calls no host."""
        config: Accounts = blueprint.config
        named = {"credential": config.control_credential, "bastion_credential": config.bastion_credential}
        problems = [found for field, name in named.items() if name and (found := _missing(blueprint, field, name))]
        if config.trusted and config.marks_host:
            text = "Hosts are reused without a re-image, even after leases that could change the host."
            problems.append(Problem(message=text, field="trusted", fatal=False))
        return problems


def _missing(blueprint: BlueprintView, field: str, name: str) -> Problem | None:
    try:
        access.key_of(blueprint, name)
    except NeedsOperator as error:
        return Problem(message=str(error), field=field)
    return None


def _plan(phase: str) -> Plan:
    return tuple(
        Step(name=name, act=act, deadline=LONG if name in _SLOW else 600.0) for name, act in leasing.PLANS[phase]
    )
