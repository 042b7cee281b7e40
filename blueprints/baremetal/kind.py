"""The kind `bare_metal`: servers with a BMC, and with an operating system that somebody else has installed."""

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
from blueprints.baremetal import acts, config, enrolment, hardware, health, power, registration
from blueprints.baremetal.sessions import NOT_SERVING
from blueprints.bmc import registry as drivers
from blueprints.contract import Act, Plan, Powers, Reboots, Registers, Scans, Step, Updates
from blueprints.hostshell import told
from blueprints.specs import BlueprintView, Draft, Problem, Spec

_SWITCH = 3600.0
"""Deadline in seconds of a step that switches a host: more than all timeouts of the config together."""
_BOOT = 2 * 3600.0


@told
def apply(spec: Spec, memo: Json) -> Answer:
    """Apply the current config and registration, regardless of the earlier ones. Calls neither host nor BMC."""
    draft = registered_hosts.registered(spec.config, enrolment.read_registration(spec))
    return registered_hosts.applied(draft, config.BareMetalAttributes, spec.resource)


def _of_bmc(name: str, act: Act, deadline: float = 600.0) -> Step:
    return Step(name=name, act=act, deadline=deadline, exclusive=True)


class BareMetal(WithAccounts, acts.BareMetalActs, Registers, Scans, Powers, Reboots, Updates):
    """Registered servers with a BMC."""

    name: ClassVar[str] = "bare_metal"
    resource_type: ClassVar[str] = hosts.HOST
    Config = config.Config
    Requirements = config.BareMetalRequirements
    Attributes = config.BareMetalAttributes
    Registration = registration.Registration
    OwnCredential = config.OwnCredential
    matches = config.MATCHES
    at_once: ClassVar[bool] = True
    check_interval: ClassVar[dt.timedelta | None] = dt.timedelta(seconds=60)
    operator_facts: ClassVar[frozenset[str]] = frozenset(
        {"bmc_pin", "bmc_certificate", "bmc_refused", "bmc_user", "bmc_role", "bmc_problem", "hardware_problem"}
    )
    unreachable: ClassVar[frozenset[str]] = WithAccounts.unreachable | NOT_SERVING

    def register(self, config: config.Config, registration: registration.Registration) -> Draft:
        """Return the draft for a registered host.

        Amounts that the registration omits are measured later on the host.
        """
        return registered_hosts.registered(config, registration)

    def scan(self, blueprint: BlueprintView, address: str, port: int) -> Sequence[str]:
        """Return the host keys presented at the address, connecting through the bastion if there is one."""
        return access.scan(blueprint, address, port)

    def build(self) -> Plan:
        """Return the plan that enrols the host: by its BMC first, then over SSH, and both compared."""
        return (
            _of_bmc("certificate", enrolment.trust),
            _of_bmc("login", enrolment.log_in),
            _of_bmc("inspect", enrolment.inspect),
            _of_bmc("power_on", power.switch_on, _SWITCH),
            Step(name="boot", act=power.wait_for_boot, deadline=_BOOT),
            Step(name="reach", act=registered_hosts.reach),
            Step(name="prepare", act=accounts.prepare),
            Step(name="compare", act=hardware.compare),
            _of_bmc("rest", power.rest, _SWITCH),
        )

    def update(self) -> Plan:
        """Return the plan that applies the current config and registration, and enrols the host again."""
        return (Step(name="apply", act=apply), *self.build())

    def activate(self) -> Plan:
        """Return the plan that switches the host on if it is off, and creates the account of the lease."""
        _, *account = super().activate()
        return (_of_bmc("reach", power.make_ready, _BOOT), *account)

    def deactivate(self) -> Plan:
        """Return the plan that removes the account, and switches an idle host off if the blueprint says so."""
        _, *account = super().deactivate()
        return (_of_bmc("reach", power.make_ready, _BOOT), *account, _of_bmc("rest", power.rest, _SWITCH))

    def check(self) -> Plan:
        """Return the plan that checks the power and the hardware by the BMC, and the host over SSH if it is on."""
        return (
            _of_bmc("bmc", health.read_power),
            _of_bmc("hardware", health.read_hardware),
            _of_bmc("power", health.judge_power, _BOOT),
            Step(name="reach", act=health.reach),
            Step(name="look", act=health.look),
        )

    def power(self) -> Plan:
        """Return the plan that switches the host, and waits until a host that was switched on accepts our login."""
        return (
            _of_bmc("off", power.switch_off, _SWITCH),
            _of_bmc("on", power.switch_on_again, _SWITCH),
            Step(name="reach", act=power.reach_patiently, deadline=_BOOT),
        )

    def reboot(self) -> Plan:
        """Return the plan that shuts the host down and starts it again, or resets it if it does not answer."""
        return (
            _of_bmc("reboot", power.reboot, _SWITCH),
            Step(name="reach", act=power.reach_patiently, deadline=_BOOT),
        )

    def destroy(self) -> Plan:
        """Return the plan that removes everything that Drydock made, then hands the host back."""
        return (
            _of_bmc("reach", power.make_reachable, _BOOT),
            Step(name="accounts", act=accounts.remove_accounts, deadline=LONG),
            Step(name="hand_back", act=accounts.hand_back),
            _of_bmc("rest", power.rest_if_reached, _SWITCH),
        )

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Check that the credentials exist and that a BMC driver is installed. Calls neither host nor BMC."""
        found = list(super().check_blueprint(blueprint))
        name = blueprint.config.bmc_credential
        if name and name not in blueprint.credentials:
            text = f"Credential {name!r} does not exist."
            found.append(Problem(message=text, field="bmc_credential"))
        there = drivers.installed()
        found += [Problem(message=one.message, field="kind", fatal=False) for one in there.problems]
        if not there.objects:
            found.append(Problem(message="No BMC driver is installed.", field="kind"))
        return found
