"""The kind `ssh_host`: hosts that an operator registers by address, control account and pinned host keys.

Every lease gets a key pair, and either an account of its own (`per_lease`) or the control account for itself
(`shared`). A registered host is never destroyed: everything that Drydock made is removed, and the host is handed back.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import ClassVar

from blueprints import hosts
from blueprints.accounts import access
from blueprints.accounts import actions as accounts
from blueprints.accounts import registration as registered_hosts
from blueprints.accounts.kind import LONG, WithAccounts
from blueprints.answers import Answer, Json
from blueprints.contract import Plan, Registers, Scans, Step, Updates
from blueprints.hosts import HostAttributes
from blueprints.hostshell import told
from blueprints.specs import BlueprintView, Draft, ResourceView, Spec
from blueprints.sshhost import config
from blueprints.sshhost.config import Registration


@told
def apply(spec: Spec, memo: Json) -> Answer:
    """Apply the current config and registration, regardless of the earlier ones. Calls no host."""
    view = spec.resource
    given = Registration.model_validate(view.registration or known(view))
    return registered_hosts.applied(registered_hosts.registered(spec.config, given), HostAttributes, view)


def known(resource: ResourceView) -> Json:
    """Return the registration of a host that was registered before registrations were stored."""
    place = {name: resource.facts[name] for name in ("address", "port", "user", "host_keys") if name in resource.facts}
    given = {name: getattr(resource.capacity, name) for name in resource.facts.get("given", [])}
    slots, traits = resource.capacity.slots, sorted(resource.traits)
    return {"name": resource.name, "slots": slots, "traits": traits, **place, **given}


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
    """An idle host that dies is noticed within half a minute."""

    def register(self, config: config.Config, registration: config.Registration) -> Draft:
        """Return the draft for a registered host.

        Amounts that the registration omits are measured later on the host.
        """
        return registered_hosts.registered(config, registration)

    def scan(self, blueprint: BlueprintView, address: str, port: int) -> Sequence[str]:
        """Return the host keys presented at the address, connecting through the bastion if there is one."""
        return access.scan(blueprint, address, port)

    def build(self) -> Plan:
        """Return the plan that connects to the host and checks its registration, root access and tools."""
        return (Step(name="reach", act=registered_hosts.reach), Step(name="prepare", act=accounts.prepare))

    def update(self) -> Plan:
        """Return the plan that applies the current config and registration, and checks the registration again."""
        return (Step(name="apply", act=apply), *self.build())

    def destroy(self) -> Plan:
        """Return the plan that removes everything that Drydock made, then hands the host back."""
        return (
            Step(name="accounts", act=accounts.remove_accounts, deadline=LONG),
            Step(name="hand_back", act=accounts.hand_back),
        )
