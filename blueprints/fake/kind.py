"""The kinds `fake`, `fake_activated` and `fake_reported`: resources of a provider that exists in one file only.

They serve to test Drydock and programs that use it. They are deterministic, quick and shared by processes, and have a
fault plan in the blueprint's config. `blueprints.fake.cloud.Cloud` is the provider seen from outside.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from blueprints.answers import NeededLease
from blueprints.contract import (
    Activates,
    Builds,
    BulkChecked,
    BulkChecks,
    Carried,
    CatalogueStale,
    Cleans,
    Controls,
    Discovers,
    Kind,
    Lists,
    Opener,
    Plan,
    Registers,
    Report,
    Reports,
    Updates,
    Watches,
)
from blueprints.fake import actions, config, drafts, openers
from blueprints.fake.acts import FakeActs
from blueprints.fake.faults import NeedLeases, carrier_of, step
from blueprints.fake.machine import Machine
from blueprints.fake.provider import Provider
from blueprints.fake.services import open_services
from blueprints.fake.watch import follow
from blueprints.specs import Asked, BlueprintView, Control, Draft, LeaseView, Owned, Problem, ResourceView
from blueprints.watches import Ending, WatchNews, WatchPlace
from interfaces.dpu_services import DpuServices


class Fake(Machine, FakeActs, Kind, Builds, Carried, Registers, Discovers, Lists, BulkChecks, Updates, Watches):
    """A resource without any steps per lease, for the fastest tests."""

    name: ClassVar[str] = "fake"
    resource_type: ClassVar[str] = "fake"
    Config = config.Config
    Requirements = config.Requirements
    Attributes = config.Attributes
    Registration = config.Registration
    OwnCredential = config.OwnCredential
    matches = config.MATCHES
    unreachable: ClassVar[frozenset[str]] = frozenset({actions.UNREACHABLE})
    forcible: ClassVar[bool] = True

    def drafts(self, config: config.Config, asked: Asked | None) -> Sequence[Draft]:
        """Return one draft for every offer that fits, in the config's order."""
        if config.catalogue == "stale":
            raise CatalogueStale("The fake provider's catalogue is stale.")
        return [draft for draft in drafts.offered(config) if asked is None or drafts.fits(draft, asked)]

    def carrier(self, config: config.Config, asked: Asked | None) -> NeededLease | None:
        """Return the lease that the config names."""
        return carrier_of(config)

    def register(self, config: config.Config, registration: config.Registration) -> Draft:
        """Return the draft from the registration, merged over the blueprint's config."""
        return drafts.registered(config, registration)

    def discover(self, blueprint: BlueprintView) -> Sequence[Draft]:
        """Return the drafts planted at the provider."""
        found = map(json.loads, Provider(blueprint.config.provider).planted())
        return [drafts.discovered({name: one[name] for name in one if name != "place"}) for one in found]

    def owned(self, blueprint: BlueprintView, installation: str) -> Sequence[Owned]:
        """Return every instance with the installation's tag, including those that are only reserved."""
        return [
            Owned(key=one.key, tags=one.tags)
            for one in Provider(blueprint.config.provider).everything()
            if one.tags.get("drydock-installation") == installation
        ]

    def watched(self, config: config.Config) -> Sequence[WatchPlace]:
        """Return the provider, if the config says so."""
        return [WatchPlace(credential=config.credential, name=config.provider)] if config.watch else []

    def watch(
        self, blueprint: BlueprintView, place: str, installation: str, bookmark: str, ending: Ending
    ) -> Iterator[WatchNews]:
        """Yield the changes that `blueprints.fake.cloud.Cloud` made."""
        return follow(Provider(place), installation, bookmark, ending)

    def watches_health(self, config: config.Config) -> bool:
        """Return what the config says."""
        return config.watch_health

    def build(self) -> Plan:
        """Return the plan that reserves, creates, flashes, boots and verifies the instance.

        Flashing cannot be interrupted.
        """
        return (
            step("build", "reserve", actions.reserve),
            step("build", "create", actions.create, actions.find_created),
            step("build", "flash", actions.flash, interruptible=False),
            step("build", "boot", actions.boot),
            step("build", "verify", actions.verify),
        )

    def check(self) -> Plan:
        """Return the plan that checks whether the instance runs."""
        return (step("check", "look", actions.check_health),)

    def checks_in_bulk(self, config: config.Config) -> bool:
        """Return what the config says. Faults happen in the plan of `check` only."""
        return config.bulk_checks and not config.faults

    def check_in_bulk(self, resources: Sequence[ResourceView], *, deadline: float) -> BulkChecked:
        """Return the instances that run, by one look at the provider."""
        provider = Provider(resources[0].blueprint.config.provider)
        running = provider.check_together([one.key for one in resources])
        return BulkChecked(sound=[one.id for one in resources if one.key in running])

    def update(self) -> Plan:
        """Return the plan that flashes and restarts the instance, or only changes its traits."""
        return (
            step("update", "flash", actions.flash, interruptible=False),
            step("update", "restart", actions.restart),
        )

    def disruption(self, before: config.Config | None, after: config.Config) -> str:
        """Return which fields change for which the instance must be flashed and restarted."""
        if before is None:
            return "It is not known what changes, so the instance is flashed and restarted."
        changed = sorted(name for name in config.FLASHED if getattr(before, name) != getattr(after, name))
        return f"The instance is flashed and restarted for another {', '.join(changed)}." if changed else ""

    def destroy(self) -> Plan:
        """Return the plan that deletes the instance and waits until it no longer exists."""
        return (step("destroy", "delete", actions.delete), step("destroy", "confirm", actions.confirm))

    def interfaces(self) -> Mapping[str, Opener]:
        """Return functions that open fakes of all interfaces."""
        return openers.OPENERS

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Check that every fault in the fault plan matches some call, and that `clean_apart` has an effect."""
        calls = self.calls()
        apart = blueprint.config.clean_apart and not isinstance(self, Cleans)
        unused = [Problem(message=f"The kind {self.name} cleans nothing.", field="clean_apart", fatal=False)]
        return (unused if apart else []) + [
            Problem(message=f"Step {fault.at!r} does not exist.", field=f"faults.{n}.at", fatal=False)
            for n, fault in enumerate(blueprint.config.faults)
            if not any(fault.names(call) for call in calls)
        ]

    def needed_types(self, config: config.Config) -> frozenset[str]:
        """Return the lease types that the fault plan requests, and that of the carrier."""
        plans = [fault for fault in config.faults if isinstance(fault, NeedLeases)]
        leases = [*(lease for plan in plans for lease in plan.leases), *filter(None, (config.carrier,))]
        return frozenset(lease.type for lease in leases)

    def plans(self) -> dict[str, Callable[[], Plan]]:
        """Return the plan of each phase and act."""
        phases = (
            "build", "check", "power", "reboot", "resize", "tag", "update", "destroy", "activate", "deactivate",
            "clean",
        )  # fmt: skip
        found = {phase: getattr(self, phase) for phase in phases if hasattr(self, phase)}
        return found | {act.name: act.plan for act in self.acts()}

    def calls(self) -> list[str]:
        """Return every name that the `at` of a fault may match."""
        steps = [(phase, step) for phase, plan in self.plans().items() for step in plan()]
        acted = [f"{phase}.{step.name}" for phase, step in steps]
        return acted + [f"{phase}.{step.name}.find" for phase, step in steps if step.find]


class FakeActivated(Fake, Activates, Cleans, Controls):
    """A fake resource on which every lease has an account of its own, and which is cleaned after every lease."""

    name: ClassVar[str] = "fake_activated"
    resource_type: ClassVar[str] = "fake_activated"

    def activate(self) -> Plan:
        """Return the plan that creates the account and opens access."""
        return (
            step("activate", "account", actions.make_account, actions.find_account),
            step("activate", "access", actions.open_access),
        )

    def deactivate(self) -> Plan:
        """Return the plan that closes access and removes the account."""
        return (
            step("deactivate", "access", actions.close_access),
            step("deactivate", "account", actions.remove_account),
        )

    def clean(self) -> Plan:
        """Return the plan that removes everything that the lease left."""
        return (step("clean", "wipe", actions.wipe),)

    def cleans_apart(self, config: config.Config) -> bool:
        """Return whether the config says so."""
        return config.clean_apart

    def interfaces(self) -> Mapping[str, Opener]:
        """Return functions that open all interfaces. Only here, a deactivation ends the services of a lease."""
        return {**super().interfaces(), DpuServices.name: open_services}

    def control(self, lease: LeaseView) -> Control | None:
        """Return an in-memory control account, separate from the lease's own interfaces."""
        return openers.control_of(lease)


class FakeReported(Reports, Fake):
    """A fake resource that is found in reports: one for each place, read in pages or sent in."""

    name: ClassVar[str] = "fake_reported"
    resource_type: ClassVar[str] = "fake_reported"

    def drafts_from(self, config: Any, report: Report) -> Sequence[Draft]:
        """Return the drafts on one page, or those of the devices that an agent reports."""
        if "host" in report.content:
            return drafts.devices(report)
        return [drafts.discovered(found) for found in report.content["found"]]

    def required_agents(self, config: config.Config) -> Sequence[str]:
        """Return the places in which an agent must run."""
        return config.agents

    def accepts_agent(self, config: config.Config, place: str) -> bool:
        """Return whether an agent may report about a place."""
        return not config.places or place in config.places

    def reported_places(self, blueprint: BlueprintView) -> Sequence[str]:
        """Return the places in which objects were planted."""
        return Provider(blueprint.config.provider).reported_places()

    def read_report(self, blueprint: BlueprintView, place: str, page: str) -> Report:
        """Return one page of the objects planted in a place."""
        return drafts.report(Provider(blueprint.config.provider), place, int(page or 0), blueprint.config.page_size)
