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
from blueprints.accounts.actions import observe
from blueprints.accounts.kind import LONG, WithAccounts
from blueprints.answers import Answer, Json, Ready
from blueprints.contract import Plan, Registers, Scans, Step, Updates
from blueprints.hosts import HostAttributes, observed
from blueprints.hostshell import NeedsOperator, told
from blueprints.specs import BlueprintView, Draft, Spec
from blueprints.sshhost import config, drafts
from blueprints.sshhost.config import Registration


@told
def apply(spec: Spec, memo: Json) -> Answer:
    """Apply the current config and registration, regardless of the earlier ones. Calls no host."""
    view = spec.resource
    draft = drafts.registered(spec.config, Registration.model_validate(view.registration or drafts.known(view)))
    found_anew = dict.fromkeys(HostAttributes.model_fields)
    return Ready(
        facts=draft.facts, attributes={**found_anew, **draft.attributes}, traits=draft.traits,
        capacity=drafts.capacity(draft.capacity, draft.facts["given"], view.facts),
    )  # fmt: skip


@told
def reach(spec: Spec, memo: Json) -> Answer:
    """Connect with the pinned key, and check that the host matches its registration."""
    found = observe(spec)
    wrong = drafts.contradictions(spec.resource.attributes, found)
    if wrong:
        raise NeedsOperator(f"The host differs from its registration: {'; '.join(wrong)}.")
    given = spec.resource.facts.get("given", [])
    return Ready(
        facts=found,
        attributes=observed(found),
        capacity=drafts.capacity(spec.resource.capacity, given, found),
        log=f"connected as {spec.resource.facts['user']}",
    )


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
        return drafts.registered(config, registration)

    def scan(self, blueprint: BlueprintView, address: str, port: int) -> Sequence[str]:
        """Return the host keys presented at the address, connecting through the bastion if there is one."""
        return access.scan(blueprint, address, port)

    def build(self) -> Plan:
        """Return the plan that connects to the host and checks its registration, root access and tools."""
        return (Step(name="reach", act=reach), Step(name="prepare", act=accounts.prepare))

    def update(self) -> Plan:
        """Return the plan that applies the current config and registration, and checks the registration again."""
        return (Step(name="apply", act=apply), *self.build())

    def destroy(self) -> Plan:
        """Return the plan that removes everything that Drydock made, then hands the host back."""
        return (
            Step(name="accounts", act=accounts.remove_accounts, deadline=LONG),
            Step(name="hand_back", act=accounts.hand_back),
        )
