"""The kind `working_copy`: a git repository on a host that it leases for life, at each lease's own ref."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from blueprints.contract import Step
from blueprints.hosts import HOST
from blueprints.layered import host as hosts
from blueprints.layered.frame import Layered
from blueprints.layered.workingcopy import actions
from blueprints.layered.workingcopy import config as schema
from blueprints.layered.workingcopy.names import allowed, is_pattern
from blueprints.layered.workingcopy.openers import OPENERS
from blueprints.specs import BlueprintView, LeaseView, Problem

_HOURS = 4 * 3600.0
_A_PATTERN = "Write it like https://git.example.com/team/*."
_PROCESSES = Step(name="processes", act=actions.end_processes)


class WorkingCopy(Layered):
    """A repository on a host, leased by one lease after another.

    Each lease gets a new copy of a mirror that no lease can access.
    """

    name: ClassVar[str] = "working_copy"
    resource_type: ClassVar[str] = "working_copy"
    Config, Requirements, Attributes = schema.Config, schema.Requirements, schema.Attributes
    matches = schema.MATCHES
    needs = (HOST,)
    gone_with_needs = True
    describe = schema.drafts
    openers = OPENERS
    plans = {
        "build": (
            Step(name="host", act=actions.have_host),
            Step(name="look", act=actions.look),
            Step(name="account", act=actions.clear, deadline=3600),
            Step(name="clone", act=actions.clone, deadline=_HOURS),
        ),
        "activate": (
            Step(name="account", act=actions.clear, deadline=3600),
            Step(name="checkout", act=actions.checkout, deadline=_HOURS),
        ),
        "deactivate": (_PROCESSES,),
        "clean": (_PROCESSES, Step(name="files", act=actions.empty, deadline=3600)),
        "check": (Step(name="look", act=actions.check),),
        "destroy": (_PROCESSES, Step(name="folder", act=actions.remove, deadline=3600)),
    }

    def reusable_after(self, lease: LeaseView) -> bool:
        """Return whether another owner may use the copy after this lease.

        That requires that it is cleaned from outside, and that the account could not leave anything beyond its own
        reach.
        """
        return hosts.reusable(lease.resource)

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Check the blueprint's repository, known hosts and credential.

        Its own repository must be allowed, ssh must have known hosts to trust, and secrets must be sent only to named
        servers.
        """
        config: schema.Config = blueprint.config
        problems = [
            Problem(message=f"{each!r} is not a valid pattern of addresses. {_A_PATTERN}", field="repositories")
            for each in config.repositories
            if not is_pattern(each)
        ]
        if config.credential and not config.repositories:
            text = f"Restrict repositories; otherwise any server that a lease names gets the credential. {_A_PATTERN}"
            problems.append(Problem(message=text, field="repositories"))
        if config.repository and not allowed(config.repository, config.protocols, config.repositories):
            problems.append(
                Problem(message="The blueprint's own patterns do not allow this repository.", field="repository")
            )
        if "ssh" in config.protocols and not config.known_hosts:
            text = "ssh requires known_hosts, because no host is trusted without it."
            problems.append(Problem(message=text, field="known_hosts", fatal=False))
        return problems
