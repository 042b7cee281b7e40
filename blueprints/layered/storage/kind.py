"""The kind `storage`: a folder with a size limit, on a host that it leases for life."""

from __future__ import annotations

from typing import ClassVar

from blueprints.contract import Step
from blueprints.hosts import HOST
from blueprints.layered import host as hosts
from blueprints.layered.frame import Layered
from blueprints.layered.storage import actions
from blueprints.layered.storage import config as schema
from blueprints.layered.storage.openers import OPENERS
from blueprints.specs import LeaseView

_CLEAR = Step(name="account", act=actions.clear, deadline=3600)
_PROCESSES = Step(name="processes", act=actions.end_processes)


class Storage(Layered):
    """A folder in the home of a host lease, with a file system of its own if possible."""

    name: ClassVar[str] = "storage"
    resource_type: ClassVar[str] = "storage"
    Config, Requirements, Attributes = schema.Config, schema.Requirements, schema.Attributes
    matches = schema.MATCHES
    needs = (HOST,)
    gone_with_needs = True
    describe = schema.drafts
    openers = OPENERS
    plans = {
        "build": (Step(name="host", act=actions.have_host), _CLEAR, Step(name="folder", act=actions.make)),
        "activate": (_CLEAR, Step(name="folder", act=actions.open_it)),
        "deactivate": (_PROCESSES,),
        "clean": (Step(name="files", act=actions.wipe, deadline=3600), Step(name="folder", act=actions.make_again)),
        "check": (Step(name="look", act=actions.check),),
        "destroy": (Step(name="folder", act=actions.remove, deadline=3600),),
    }

    def reusable_after(self, lease: LeaseView) -> bool:
        """Return whether another owner may use the storage after this lease.

        That requires that it is cleaned from outside, and that the account could not leave anything beyond its own
        reach.
        """
        return hosts.reusable(lease.resource)
