"""The kind `bare_metal`: servers with a BMC, whose operating system Drydock or somebody else installs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from blueprints import hosts
from blueprints.accounts import access
from blueprints.accounts import registration as registered_hosts
from blueprints.accounts.kind import WithAccounts
from blueprints.answers import Answer, Json
from blueprints.baremetal import (
    acts,
    attestation,
    config,
    console,
    deployment,
    health,
    network,
    plans,
    power,
    ramdisk,
    registration,
)
from blueprints.baremetal.plans import BOOT, SWITCH, of_bmc
from blueprints.baremetal.registration import drafted
from blueprints.baremetal.sessions import NOT_SERVING
from blueprints.bmc import registry as drivers
from blueprints.contract import (
    BulkChecked,
    BulkChecks,
    Cleans,
    Opener,
    Plan,
    Powers,
    Reboots,
    Registers,
    Scans,
    ServedMedium,
    ServesMedia,
    Step,
    Updates,
)
from blueprints.hostshell import told
from blueprints.networks import registry as networks
from blueprints.specs import BlueprintView, Draft, LeaseView, Problem, ResourceView, Spec


@told
def apply(spec: Spec, memo: Json) -> Answer:
    """Apply the current config and registration, regardless of the earlier ones. Calls neither host nor BMC."""
    draft = drafted(spec.config, registration.registration_of(spec.resource))
    answer = registered_hosts.applied(draft, config.BareMetalAttributes, spec.resource)
    if spec.config.ramdisk is None:
        return answer
    known = {name: spec.resource.attributes.get(name) for name in deployment.MEASURED}
    # Its ramdisk is not booted for an update, so what was found there still holds.
    kept = attestation.kept_traits(spec)
    return replace(answer, attributes={**answer.attributes, **known}, traits=(answer.traits or frozenset()) | kept)


class BareMetal(
    WithAccounts, acts.BareMetalActs, Registers, Scans, BulkChecks, Cleans, Powers, Reboots, Updates, ServesMedia
):
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
        {
            "bmc_pin",
            "bmc_certificate",
            "bmc_refused",
            "bmc_user",
            "bmc_role",
            "bmc_problem",
            "hardware_problem",
            "firmware_settings",
            "ramdisk",
            "network",
            "power_poll",
            "validation",
        }
    )
    unreachable: ClassVar[frozenset[str]] = WithAccounts.unreachable | NOT_SERVING | network.NOT_SWITCHED

    def register(self, config: config.Config, given: registration.Registration) -> Draft:
        """Return the draft for a registered host.

        Amounts that the registration omits are measured later on the host.
        """
        return drafted(config, given)

    def scan(self, blueprint: BlueprintView, address: str, port: int) -> Sequence[str]:
        """Return the host keys presented at the address, connecting through the bastion if there is one."""
        return access.scan(blueprint, address, port)

    def interfaces(self) -> Mapping[str, Opener]:
        """Return functions that open commands and files over SSH, and the serial console beside it."""
        return {**super().interfaces(), "console": console.opened}

    def build(self) -> Plan:
        """Return the plan that enrols the host: by its BMC first, then from inside, and both compared."""
        return plans.enrolment_plan()

    def update(self) -> Plan:
        """Return the plan that applies the current config and registration, and enrols the host again."""
        return plans.update_plan(apply)

    def activate(self) -> Plan:
        """Return the plan that deploys the host or switches it on, and creates the account of the lease."""
        return plans.activation_plan()

    def deactivate(self) -> Plan:
        """Return the plan that removes the account, or switches off a host that was deployed."""
        return plans.deactivation_plan()

    def clean(self) -> Plan:
        """Return the plan that erases the host in the ramdisk, and compares the settings of its firmware."""
        return plans.cleaning()

    def cleans_apart(self, config: Any) -> bool:
        """Return whether the host is erased after its lease, which can take hours."""
        return bool(config.ramdisk)

    def reusable_after(self, lease: LeaseView) -> bool:
        """Return True for hosts that are erased and deployed anew, whatever the lease could change."""
        return lease.resource.blueprint.config.ramdisk is not None or super().reusable_after(lease)

    def transferable(self, lease: LeaseView) -> bool:
        """Return False for leases that could change the host itself: it is not deployed anew between the two owners."""
        return super().reusable_after(lease)

    def lacking(self, config: Any) -> frozenset[type]:
        """Return the capabilities that hosts without a ramdisk lack."""
        return frozenset() if config.ramdisk is not None else frozenset({Cleans, ServesMedia})

    def media(self, resource: ResourceView) -> Sequence[ServedMedium]:
        """Return the medium with the keys and the network of the present boot of the ramdisk."""
        return ramdisk.media(resource)

    def check(self) -> Plan:
        """Return the plan that checks the power and the hardware by the BMC, and the host over SSH if it is on."""
        return (
            of_bmc("bmc", health.read_power),
            of_bmc("hardware", health.read_hardware),
            of_bmc("power", health.judge_power, BOOT),
            plans.switches_checked(),
            Step(name="reach", act=health.reach),
            Step(name="look", act=health.look),
        )

    def checks_in_bulk(self, config: config.Config) -> bool:
        """Return whether idle hosts are off, and nothing but their power is to be checked often."""
        return config.idle_power == "off" and not config.switches_networks

    def check_in_bulk(self, resources: Sequence[ResourceView], *, deadline: float) -> BulkChecked:
        """Read the power of hosts at rest, with one request for each where its BMC allows that."""
        return health.poll(resources, deadline=deadline)

    def power(self) -> Plan:
        """Return the plan that switches the host, and waits until a host that was switched on accepts our login."""
        return (
            of_bmc("off", power.switch_off, SWITCH),
            of_bmc("on", power.switch_on_again, SWITCH),
            Step(name="reach", act=power.reach_patiently, deadline=BOOT),
        )

    def reboot(self) -> Plan:
        """Return the plan that shuts the host down and starts it again, or resets it if it does not answer."""
        return (
            of_bmc("reboot", power.reboot, SWITCH),
            Step(name="reach", act=power.reach_patiently, deadline=BOOT),
        )

    def destroy(self) -> Plan:
        """Return the plan that removes everything that Drydock made, then hands the host back."""
        return plans.hand_back_plan()

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Check that the credentials exist and that a BMC driver is installed. Calls neither host nor BMC."""
        found = list(super().check_blueprint(blueprint))
        for field in ("bmc_credential", "console_credential", "network_credential"):
            name = getattr(blueprint.config, field)
            if name and name not in blueprint.credentials:
                found.append(Problem(message=f"Credential {name!r} does not exist.", field=field))
        there = drivers.installed()
        broken = (*there.problems, *(networks.installed().problems if blueprint.config.network else ()))
        found += [Problem(message=one.message, field="kind", fatal=False) for one in broken]
        if not there.objects:
            found.append(Problem(message="No BMC driver is installed.", field="kind"))
        return found
