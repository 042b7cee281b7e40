"""The kind `ssh_host`: hosts that an operator registers by address, control account and pinned host keys.

Every lease gets a key pair, and an account of its own (`per_lease`) or the control account for itself (`shared`).
A registered host is never destroyed: it is cleaned of what is ours and handed back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from blueprints import hosts
from blueprints.contract import Activates, Checks, Kind, Opener, Plan, Registers, Step
from blueprints.hostshell import NeedsOperator
from blueprints.specs import BlueprintView, Draft, LeaseView, Problem
from blueprints.sshhost import access, acts, config, drafts, leasing

_LONG = 3600.0


class SshHost(Kind, Registers, Activates, Checks):
    """Registered hosts, reached over SSH."""

    name: ClassVar[str] = "ssh_host"
    resource_type: ClassVar[str] = hosts.HOST
    Config = config.Config
    Requirements = hosts.HostRequirements
    Attributes = hosts.HostAttributes
    Registration = config.Registration
    matches = hosts.MATCHES

    def register(self, config: config.Config, registration: config.Registration) -> Draft:
        """As the registration says; what it leaves out is found when the host is looked at."""
        return drafts.registered(config, registration)

    def build(self) -> Plan:
        """Connect, compare with the registration, see that accounts can be made."""
        return (Step(name="reach", act=acts.reach), Step(name="prepare", act=acts.prepare))

    def activate(self) -> Plan:
        """A key pair, an account, access, and one try of it."""
        return _plan("activate")

    def deactivate(self) -> Plan:
        """No access, no process, no file, no account."""
        return _plan("deactivate")

    def check(self) -> Plan:
        """Reachable by the pinned key, room on the disk."""
        return (Step(name="look", act=acts.look),)

    def destroy(self) -> Plan:
        """Remove what is ours, then hand the host back."""
        return (
            Step(name="accounts", act=acts.remove_accounts, deadline=_LONG),
            Step(name="hand_back", act=acts.hand_back),
        )

    def interfaces(self) -> Mapping[str, Opener]:
        """Commands and files over SSH with the lease's own account and key."""
        return hosts.openers(access.transport_of, "command", "filesystem")

    def reusable_after(self, lease: LeaseView) -> bool:
        """False after a lease that could change the host itself, unless the operator trusts the owners."""
        used: config.Config = lease.resource.blueprint.config
        return used.trusted or not used.marks_host

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Whether the credentials are there, and what the config gives away. Calls no host."""
        problems = []
        for field in ("credential", "bastion_credential"):
            try:
                access.key_of(blueprint, field)
            except NeedsOperator as error:
                problems.append(Problem(message=str(error), field=field))
        if blueprint.config.trusted and blueprint.config.marks_host:
            text = "Hosts are reused without a re-image after leases that could change them."
            problems.append(Problem(message=text, field="trusted", fatal=False))
        return problems


def _plan(phase: str) -> Plan:
    slow = {"processes", "files"}
    return tuple(
        Step(name=name, act=act, deadline=_LONG if name in slow else 600.0) for name, act in leasing.PLANS[phase]
    )
