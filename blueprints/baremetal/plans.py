"""The plans of bare-metal hosts, with and without a ramdisk.

A plan is the same for every config, so each has the steps of both ways, and those of the other way are skipped. The
functions below return the parts that plans are made of.
"""

from __future__ import annotations

from dataclasses import replace

from blueprints.accounts import actions as accounts
from blueprints.accounts import registration as registered_hosts
from blueprints.accounts.kind import LONG
from blueprints.accounts.leasing import PLANS, hang_up
from blueprints.answers import Answer, Json, Ready
from blueprints.baremetal import (
    attestation,
    baseline,
    deployment,
    disks,
    enrolment,
    erasure,
    hardware,
    network,
    power,
    ramdisk,
)
from blueprints.baremetal.config import Config
from blueprints.contract import Act, Plan, Step
from blueprints.hosts import lease_of
from blueprints.networks.config import Purpose
from blueprints.specs import Spec

SWITCH = 3600.0
"""Deadline in seconds of a step that switches a host: more than all timeouts of the config together."""
BOOT = 2 * 3600.0
UPDATE = 12 * 3600.0
"""Several components, one after another, of up to four hours each by the config."""
ERASE = 14 * 86_400.0
"""Large disks without a fast method are overwritten for days."""


def of_bmc(name: str, act: Act, deadline: float = 600.0) -> Step:
    """Return a step that calls the BMC."""
    return Step(name=name, act=act, deadline=deadline, exclusive=True)


def with_ramdisk(config: Config) -> bool:
    """Return whether Drydock deploys the hosts."""
    return config.ramdisk is not None


def _deployed(name: str, act: Act, deadline: float = SWITCH) -> Step:
    """Return a step for hosts with a ramdisk, which calls the BMC."""
    return Step(name=name, act=act, deadline=deadline, exclusive=True, applies=with_ramdisk)


def _installed(step: Step) -> Step:
    """Return a step for hosts whose operating system somebody else has installed."""
    return replace(step, applies=lambda config: not with_ramdisk(config))


def with_baseline(config: Config) -> bool:
    """Return whether hosts are brought to a baseline."""
    return config.baseline is not None


def _with_baseline_alone(config: Config) -> bool:
    return with_baseline(config) and not with_ramdisk(config)


def _with_baseline_in_ramdisk(config: Config) -> bool:
    return with_baseline(config) and with_ramdisk(config)


def _to_baseline() -> Plan:
    """Return the steps that update firmware, and change settings for the next boot."""
    return (
        Step(
            name="firmware_update", act=baseline.update_firmware, find=baseline.find_update, deadline=UPDATE,
            exclusive=True, interruptible=False, applies=with_baseline,
        ),
        Step(name="firmware_settings", act=baseline.change_settings, exclusive=True, applies=with_baseline),
        Step(
            name="firmware_power_off", act=baseline.switch_off_for_settings, deadline=SWITCH, exclusive=True,
            applies=_with_baseline_alone,
        ),
    )  # fmt: skip


def _switched(step: Step) -> Step:
    """Return a step for hosts that Drydock moves between networks."""
    applies = step.applies or (lambda config: True)
    return replace(step, applies=lambda config: config.switches_networks and applies(config))


def into_network(purpose: Purpose, stop: str) -> Plan:
    """Return the steps that move a host to a network. A host with a ramdisk is off meanwhile, by the step `stop`."""
    applies = None if purpose == "tenant" else with_ramdisk
    return (
        _switched(_deployed(stop, ramdisk.halt)),
        _switched(Step(name=f"{purpose}_record", act=network.record(purpose), applies=applies)),
        _switched(Step(name=f"{purpose}_network", act=network.move(purpose), applies=applies)),
    )


def out_of_network() -> Step:
    """Return the step after which a host is in none of the networks between which it is moved."""
    return _switched(Step(name="no_network", act=network.leave))


def _attested(name: str, act: Act, *, ramdisk: bool = False) -> Plan:
    """Return the step that attests the host, in the ramdisk or in its operating system, if the config asks for it."""
    return (
        Step(name=name, act=act, applies=lambda config: bool(config.attestation) and with_ramdisk(config) is ramdisk),
    )


def into_ramdisk(keys: Act = ramdisk.new_boot, purpose: Purpose | None = None) -> Plan:
    """Return the steps that boot the ramdisk, in the network for a purpose or in the one in which the host is."""
    return (
        Step(name="ramdisk_keys", act=keys, applies=with_ramdisk),
        *(into_network(purpose, "isolate") if purpose else ()),
        _deployed("ramdisk_boot", ramdisk.boot),
        _deployed("ramdisk_reach", ramdisk.reach, BOOT),
        Step(
            name="ramdisk_verify", act=baseline.verify_settings, exclusive=True, applies=_with_baseline_in_ramdisk,
        ),
    )  # fmt: skip


def cleaning() -> Plan:
    """Return the steps that erase a host in the ramdisk, and leave it off and without media."""
    return (
        *into_ramdisk(purpose="cleaning"),
        _deployed("disks", disks.compare),
        _deployed("erase", erasure.erase, ERASE),
        _deployed("ramdisk_leave", ramdisk.leave),
        out_of_network(),
        _deployed("firmware", erasure.compare_firmware),
    )


def enrolment_plan() -> Plan:
    """Return the plan that enrols a host: by its BMC first, then from inside, and both compared."""
    return (
        *_found_by_bmc(),
        *_to_baseline(),
        *into_ramdisk(purpose="provisioning"),
        _deployed("ramdisk_inspect", deployment.inspect),
        *_attested("ramdisk_attest", attestation.enrol, ramdisk=True),
        _deployed("erase", erasure.erase, ERASE),
        _deployed("ramdisk_leave", ramdisk.leave),
        out_of_network(),
        *_found_on_host(),
    )


def update_plan(apply: Act) -> Plan:
    """Return the plan that applies the current config and registration, and enrols the host again.

    A host with a ramdisk is not booted for that: it was inspected and erased before.
    """
    return (Step(name="apply", act=apply), *_found_by_bmc(), *_to_baseline(), *_found_on_host())


def _found_by_bmc() -> Plan:
    return (
        of_bmc("certificate", enrolment.trust),
        of_bmc("login", enrolment.log_in),
        of_bmc("inspect", enrolment.inspect),
    )


def _found_on_host() -> Plan:
    return (
        _deployed("firmware", erasure.remember_firmware),
        _installed(of_bmc("power_on", power.switch_on, SWITCH)),
        _installed(Step(name="boot", act=power.wait_for_boot, deadline=BOOT)),
        _installed(Step(name="reach", act=registered_hosts.reach)),
        _installed(Step(name="prepare", act=accounts.prepare)),
        _installed(Step(name="compare", act=hardware.compare)),
        Step(name="firmware_verify", act=baseline.verify_settings, exclusive=True, applies=_with_baseline_alone),
        *_attested("attest", attestation.enrol),
        of_bmc("rest", power.rest, SWITCH),
    )


def activation_plan() -> Plan:
    """Return the plan that makes a host usable for a lease: deployed or switched on, with an account."""
    return (
        Step(name="choose", act=deployment.choose, applies=with_ramdisk),
        *into_ramdisk(purpose="provisioning"),
        *_attested("ramdisk_attest", attestation.attest, ramdisk=True),
        _deployed("disks", disks.compare_before_lease),
        _deployed("write", deployment.write, BOOT),
        Step(name="pin", act=deployment.pin, applies=with_ramdisk),
        *into_network("tenant", "halt"),
        _deployed("disk_boot", ramdisk.to_disk),
        _deployed("first_boot", deployment.first_boot, BOOT),
        of_bmc("reach", power.make_ready, BOOT),
        *_attested("attest", attestation.attest),
        *(Step(name=name, act=act) for name, act in PLANS["activate"]),
    )


def deactivation_plan() -> Plan:
    """Return the plan that ends the access of a lease.

    A deployed host is switched off, which ends every process and needs nothing that its tenant controls. Its disks are
    erased by the cleaning.
    """
    return (
        _deployed("power_off", _cut),
        _installed(of_bmc("reach", power.make_ready, BOOT)),
        *(
            _installed(Step(name=name, act=act, deadline=LONG if name in ("processes", "files") else 600.0))
            for name, act in PLANS["deactivate"]
        ),
        out_of_network(),
        _installed(of_bmc("rest", power.rest, SWITCH)),
    )  # fmt: skip


def _cut(spec: Spec, memo: Json) -> Answer:
    """Switch the host of a lease off, and close the connections to the lease's account."""
    answer = ramdisk.leave(spec, memo)
    if isinstance(answer, Ready):
        hang_up(lease_of(spec))
    return answer


def hand_back_plan() -> Plan:
    """Return the plan that removes everything that Drydock made, then hands the host back."""
    return (
        _deployed("power_off", _cut_if_enrolled),
        _installed(of_bmc("reach", power.make_reachable, BOOT)),
        _installed(Step(name="accounts", act=accounts.remove_accounts, deadline=LONG)),
        _installed(Step(name="hand_back", act=accounts.hand_back)),
        out_of_network(),
        _installed(of_bmc("rest", power.rest_if_reached, SWITCH)),
    )


def _cut_if_enrolled(spec: Spec, memo: Json) -> Answer:
    """Switch the host off without media, unless its BMC was never reached: Drydock has changed nothing then."""
    return ramdisk.leave(spec, memo) if "hardware" in spec.resource.facts else Ready()


def switches_checked() -> Step:
    """Return the step of health checks that asks the switches of a host which must leave its network."""
    return _switched(Step(name="network", act=network.look))


def firmware_plan() -> Plan:
    """Return the plan of the act `firmware`: to the baseline, with a boot that applies and verifies it."""
    return (
        *_to_baseline(),
        *into_ramdisk(purpose="provisioning"),
        _deployed("ramdisk_leave", ramdisk.leave),
        out_of_network(),
        *_found_on_host(),
    )


def attestation_plan() -> Plan:
    """Return the plan of the act `attest`. A host with a ramdisk is booted into it for that."""
    return (
        *into_ramdisk(purpose="provisioning"),
        *_attested("ramdisk_attest", attestation.attest_again, ramdisk=True),
        *_attested("attest", attestation.attest_again),
        _deployed("ramdisk_leave", ramdisk.leave),
        out_of_network(),
    )


def rescue_plan() -> Plan:
    """Return the plan of the act `rescue`."""
    return (*into_ramdisk(ramdisk.new_rescue), of_bmc("rescued", ramdisk.rescued))


def end_of_rescue_plan() -> Plan:
    """Return the plan of the act `unrescue`."""
    return (
        of_bmc("disk_boot", ramdisk.end_rescue, SWITCH),
        Step(name="reach", act=power.reach_patiently, deadline=BOOT),
    )
