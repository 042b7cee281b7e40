"""The kind `local_host`: this machine.

If Drydock runs as root, every lease has a uid and a home of its own and leaves nothing behind. Otherwise, leases have
separate folders but share one account (see `isolation`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from blueprints import hosts
from blueprints.contract import Activates, Builds, Checks, Controls, HandsOver, Kind, Opener, Plan, Step, Updates
from blueprints.local import actions, config, leasing, machine
from blueprints.matching import misses
from blueprints.specs import Asked, BlueprintView, Control, Draft, LeaseView, Problem, ResourceView
from interfaces.transport import Transport


class LocalHost(Kind, Builds, Activates, HandsOver, Checks, Controls, Updates):
    """This machine, as one host that several leases share."""

    name: ClassVar[str] = "local_host"
    resource_type: ClassVar[str] = hosts.HOST
    Config = config.Config
    Requirements = hosts.HostRequirements
    Attributes = hosts.HostAttributes
    matches = hosts.MATCHES
    at_once: ClassVar[bool] = True
    most_resources: ClassVar[int | None] = 1
    """The machine can be offered only once."""

    def drafts(self, config: config.Config, asked: Asked | None) -> Sequence[Draft]:
        """Return a draft of the whole machine if the lease fits on it."""
        draft = actions.draft(config)
        return [draft] if asked is None or _fits(draft, asked) else []

    def build(self) -> Plan:
        """Return the plan that claims the machine, makes the folder and checks it."""
        return (
            Step(name="claim", act=actions.claim),
            Step(name="folder", act=actions.make),
            Step(name="look", act=actions.check_health),
        )

    def update(self) -> Plan:
        """Return the plan that applies the current config.

        If the config names another folder, the plan creates that folder and removes the old one.
        """
        return (
            Step(name="leave", act=actions.leave_folder, deadline=3600),
            Step(name="folder", act=actions.make),
            Step(name="apply", act=actions.apply),
            Step(name="look", act=actions.check_health),
        )

    def activate(self) -> Plan:
        """Return the plan that gives the lease a uid and a home."""
        return (Step(name="account", act=leasing.give_account), Step(name="home", act=leasing.make_home))

    def deactivate(self) -> Plan:
        """Return the plan that ends every process, removes every file, and checks that nothing is left."""
        return (
            Step(name="processes", act=leasing.end_processes),
            Step(name="files", act=leasing.remove_files, deadline=3600),
            Step(name="account", act=leasing.take_account_back),
        )

    def hand_over(self) -> Plan:
        """Return the plan that ends every process and closes the home.

        Leases have no keys to replace: only this program gives access.
        """
        return (Step(name="processes", act=leasing.end_processes), Step(name="home", act=leasing.close_home))

    def check(self) -> Plan:
        """Return the plan that checks the folder and its disk."""
        return (Step(name="look", act=actions.check_health),)

    def destroy(self) -> Plan:
        """Return the plan that ends the remaining leases, then removes the folder."""
        return (
            Step(name="leases", act=actions.end_leases, deadline=3600),
            Step(name="folder", act=actions.remove, deadline=3600),
        )

    def interfaces(self) -> Mapping[str, Opener]:
        """Return functions that open commands and files with the lease's own uid, in its home."""
        return hosts.openers(leasing.transport_of, "command", "filesystem")

    def control(self, lease: LeaseView) -> Control | None:
        """Return this program's own account if it runs as root."""
        return leasing.control_of(lease)

    def reach(self, resource: ResourceView) -> Transport:
        """Return this program's own account, which is root or an ordinary user."""
        return leasing.reach(resource)

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Check that homes can be made on this machine, and warn about what leases share."""
        found = actions.objection(blueprint.config)
        problems = [Problem(message=found, field="folder")] if found else []
        if not machine.as_root():
            text = (
                "Without root all leases share one account, so leases can read each other's files and end each "
                "other's processes."
            )
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
