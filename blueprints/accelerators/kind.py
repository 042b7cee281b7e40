"""The kind `accelerators`: devices that are found in hosts, each leased with an account on its host."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import ClassVar

from blueprints.accelerators import access, actions, cleaning, drafts, images, setup, virtual
from blueprints.accelerators import config as schema
from blueprints.accelerators.host import hardware_of, have_host, incomplete
from blueprints.answers import Json
from blueprints.contract import (
    Activates,
    Acts,
    Checks,
    Cleans,
    DeclaredAct,
    Kind,
    Opener,
    Plan,
    Report,
    Reports,
    Step,
    Updates,
)
from blueprints.hosts import HOST
from blueprints.specs import BlueprintView, Draft, HostView, Problem
from drydock.core.errors import NotFound
from drydock_agent import Hardware
from interfaces.errors import AuthenticationRefused, HostKeyMismatch, Unreachable


class Accelerators(Kind, Reports, Activates, Cleans, Checks, Acts, Updates):
    """GPUs, slices of GPUs, FPGAs, network cards, VFs and other devices in hosts of any kind."""

    name: ClassVar[str] = "accelerators"
    resource_type: ClassVar[str] = "accelerator"
    Config, Requirements, Attributes = schema.Config, schema.Requirements, schema.Attributes
    matches = schema.MATCHES
    needs = (HOST,)
    places_are_resources: ClassVar[bool] = True
    reports_hardware: ClassVar[bool] = True
    discovery_interval: ClassVar[dt.timedelta | None] = dt.timedelta(minutes=1)
    check_interval: ClassVar[dt.timedelta | None] = dt.timedelta(minutes=5)
    at_once: ClassVar[bool] = True
    unreachable: ClassVar[frozenset[str]] = frozenset(
        error.code for error in (Unreachable, HostKeyMismatch, AuthenticationRefused)
    )

    def drafts_from(self, config: schema.Config, report: Report) -> Sequence[Draft]:
        """Return the drafts of the devices in a report, which is the JSON form of `drydock_agent.Hardware`."""
        if not report.place.isdecimal():
            raise ValueError(f"{report.place!r:.40} is not the id of a host")
        return drafts.drafts(config, int(report.place), Hardware.from_json(report.content))

    def reported_places(self, blueprint: BlueprintView) -> Sequence[str]:
        """Return the ids of the hosts to read. A captured tree stands for the first of them."""
        config: schema.Config = blueprint.config
        if config.reports == "sent":
            return ()
        found = [str(host.id) for host in blueprint.hosts(None) if config.covers(host)]
        return found[:1] if config.captured else found

    def accepts_agent(self, config: schema.Config, place: str) -> bool:
        """Return whether agents send the reports. Otherwise Drydock reads the hosts, and both would contradict."""
        return config.reports == "sent"

    def read_report(self, blueprint: BlueprintView, place: str, page: str) -> Report:
        """Read the hardware of a host."""
        found = hardware_of(blueprint.config, _host(blueprint, place))
        content: Json = found.steady().to_json()
        return Report(place=place, content=content, incomplete=incomplete(found))

    def activate(self) -> Plan:
        """Return the plan that leases the host and opens the device to the account of that lease."""
        return (
            Step(name="host", act=have_host),
            Step(name="account", act=access.find_account),
            Step(name="errors", act=actions.begin),
            Step(name="image", act=images.program_for_lease, interruptible=False),
            Step(name="group", act=virtual.check_group),
            Step(name="before", act=virtual.read_settings),
            Step(name="settings", act=virtual.apply_settings),
            Step(name="device", act=access.open_device),
            Step(name="network", act=virtual.attach),
        )

    def deactivate(self) -> Plan:
        """Return the plan that closes the device to the account, ends its use, and proves both."""
        return (
            Step(name="device", act=access.close_device),
            Step(name="network", act=virtual.detach),
            Step(name="use", act=access.end_use, deadline=120.0),
            Step(name="proof", act=access.prove_closed),
            Step(name="blank", act=images.blank, interruptible=False),
        )

    def clean(self) -> Plan:
        """Return the plan that brings an NVIDIA GPU or a VF back to the state that it had before the lease."""
        return (
            Step(name="network", act=virtual.restore_settings),
            Step(name="settings", act=cleaning.restore_settings),
            Step(name="idle", act=cleaning.wait_until_idle, deadline=180.0),
            Step(name="repair", act=cleaning.repair, deadline=180.0),
        )

    def check(self) -> Plan:
        """Return the plan that reads the host again and compares."""
        return (Step(name="look", act=actions.check_health),)

    def update(self) -> Plan:
        """Return the plan that brings a card to the VFs or the MIG layout that its blueprint declares."""
        return setup.update()

    def destroy(self) -> Plan:
        """Return the plan that hands the device back with its nodes as they were found. It stays in its host."""
        return (Step(name="images", act=images.discard), Step(name="hand_back", act=access.hand_back))

    def acts(self) -> Sequence[DeclaredAct]:
        """Return the acts of operators on devices."""
        return (*setup.acts(), images.program_act(), actions.repaired_act())

    def interfaces(self) -> Mapping[str, Opener]:
        """Return functions that open the interfaces of the host's lease, with the variables of the device."""
        return {name: actions.open_interface(name) for name in ("command", "filesystem")}

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Warn that captured devices are not there."""
        if not blueprint.config.captured:
            return ()
        text = "The devices are those of a captured tree. They are not in the host that they are leased with."
        return (Problem(message=text, field="captured", fatal=False),)


def _host(blueprint: BlueprintView, place: str) -> HostView:
    found = next(iter(blueprint.hosts(int(place))), None)
    if found is None:
        raise NotFound(f"Host {place} does not exist or is not in service.")
    return found
