"""The kind `ssh_host`: hosts that an operator registers by address, control account and pinned host keys.

Every lease gets a key pair, and an account of its own (`per_lease`) or the control account for itself (`shared`).
A registered host is never destroyed: it is cleaned of what is ours and handed back.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import ClassVar

from blueprints import hosts
from blueprints.accounts import access
from blueprints.accounts import acts as accounts
from blueprints.accounts.kind import LONG, WithAccounts
from blueprints.contract import Plan, Registers, Scans, Step, Updates
from blueprints.specs import BlueprintView, Draft
from blueprints.sshhost import acts, config, drafts


class SshHost(WithAccounts, Registers, Scans, Updates):
    """Registered hosts, reached over SSH."""

    name: ClassVar[str] = "ssh_host"
    resource_type: ClassVar[str] = hosts.HOST
    Config = config.Config
    Requirements = hosts.HostRequirements
    Attributes = hosts.HostAttributes
    Registration = config.Registration
    matches = hosts.MATCHES
    at_once: ClassVar[bool] = True
    check_interval: ClassVar[dt.timedelta | None] = dt.timedelta(seconds=20)
    """So a host that dies while nobody uses it is seen within half a minute."""

    def register(self, config: config.Config, registration: config.Registration) -> Draft:
        """As the registration says; what it leaves out is found when the host is looked at."""
        return drafts.registered(config, registration)

    def scan(self, blueprint: BlueprintView, address: str, port: int) -> Sequence[str]:
        """The host keys that it shows, through the bastion where there is one."""
        return access.scan(blueprint, address, port)

    def build(self) -> Plan:
        """Connect, compare with the registration, see that accounts can be made."""
        return (Step(name="reach", act=acts.reach), Step(name="prepare", act=accounts.prepare))

    def update(self) -> Plan:
        """Apply what config and registration say now, and check it as when it was registered."""
        return (Step(name="apply", act=acts.apply), *self.build())

    def destroy(self) -> Plan:
        """Remove what is ours, then hand the host back."""
        return (
            Step(name="accounts", act=accounts.remove_accounts, deadline=LONG),
            Step(name="hand_back", act=accounts.hand_back),
        )
