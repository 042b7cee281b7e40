"""The kind `local_host`: this machine. As root every lease has a uid and a home of its own and leaves nothing
behind; without root leases have folders of their own but share the account (`isolation` says which)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from blueprints import hosts
from blueprints.contract import Activates, Builds, Checks, Controls, Kind, Opener, Plan, Step, Updates
from blueprints.local import acts, config, leasing, machine
from blueprints.matching import misses
from blueprints.specs import Asked, BlueprintView, Control, Draft, LeaseView, Problem


class LocalHost(Kind, Builds, Activates, Checks, Controls, Updates):
    """This machine, as one host that several leases share."""

    name: ClassVar[str] = "local_host"
    resource_type: ClassVar[str] = hosts.HOST
    Config = config.Config
    Requirements = hosts.HostRequirements
    Attributes = hosts.HostAttributes
    matches = hosts.MATCHES
    at_once: ClassVar[bool] = True
    most_resources: ClassVar[int | None] = 1
    """There is one machine."""

    def drafts(self, config: config.Config, asked: Asked | None) -> Sequence[Draft]:
        """The machine as a whole, if the lease fits on it."""
        draft = acts.draft(config)
        return [draft] if asked is None or _fits(draft, asked) else []

    def build(self) -> Plan:
        """Have the machine, make the folder, look."""
        return (
            Step(name="claim", act=acts.claim),
            Step(name="folder", act=acts.make),
            Step(name="look", act=acts.look),
        )

    def update(self) -> Plan:
        """Apply what the config says now; another folder is made, and the old one removed."""
        return (
            Step(name="leave", act=acts.leave_folder, deadline=3600),
            Step(name="folder", act=acts.make),
            Step(name="apply", act=acts.apply),
            Step(name="look", act=acts.look),
        )

    def activate(self) -> Plan:
        """An account number, then a home that is its own."""
        return (Step(name="account", act=leasing.give_account), Step(name="home", act=leasing.make_home))

    def deactivate(self) -> Plan:
        """End every process, remove every file, see that nothing is left."""
        return (
            Step(name="processes", act=leasing.end_processes),
            Step(name="files", act=leasing.remove_files, deadline=3600),
            Step(name="account", act=leasing.take_account_back),
        )

    def check(self) -> Plan:
        """Look at the folder and its disk."""
        return (Step(name="look", act=acts.look),)

    def destroy(self) -> Plan:
        """End what leases left, remove the folder."""
        return (
            Step(name="leases", act=acts.end_leases, deadline=3600),
            Step(name="folder", act=acts.remove, deadline=3600),
        )

    def interfaces(self) -> Mapping[str, Opener]:
        """Commands and files with the lease's own uid, in its home."""
        return hosts.openers(leasing.transport_of, "command", "filesystem")

    def control(self, lease: LeaseView) -> Control | None:
        """This program, where it is root."""
        return leasing.control_of(lease)

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Whether homes can be made here, and what leases share."""
        found = acts.objection(blueprint.config)
        problems = [Problem(message=found, field="folder")] if found else []
        if not machine.as_root():
            text = "Without root all leases share one account: one may read and end what is another's."
            problems.append(Problem(message=text, fatal=False))
        return problems


def _fits(draft: Draft, asked: Asked) -> bool:
    required = asked.requirements.model_dump(mode="json")
    return (
        asked.amounts.fits_in(draft.capacity)
        and not misses(hosts.MATCHES, draft.attributes, required)
        and asked.traits <= draft.traits
        and not asked.forbidden_traits & draft.traits
    )
