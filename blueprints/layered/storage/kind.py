"""The kind `storage`: a folder with a size limit, on a host that it leases for life."""

from __future__ import annotations

from typing import ClassVar

from blueprints.contract import Step
from blueprints.hosts import HOST
from blueprints.layered import host as hosts
from blueprints.layered.frame import Layered
from blueprints.layered.storage import acts
from blueprints.layered.storage import config as schema
from blueprints.layered.storage.openers import OPENERS
from blueprints.specs import LeaseView

_CLEAR = Step(name="account", act=acts.clear, deadline=3600)
_PROCESSES = Step(name="processes", act=acts.end_processes)


class Storage(Layered):
    """A folder in the home of a host lease, as a file system of its own where that can be had."""

    name: ClassVar[str] = "storage"
    resource_type: ClassVar[str] = "storage"
    Config, Requirements, Attributes = schema.Config, schema.Requirements, schema.Attributes
    matches = schema.MATCHES
    needs = (HOST,)
    gone_with_needs = True
    describe = schema.drafts
    openers = OPENERS
    plans = {
        "build": (Step(name="host", act=acts.have_host), _CLEAR, Step(name="folder", act=acts.make)),
        "activate": (_CLEAR, Step(name="folder", act=acts.open_it)),
        "deactivate": (_PROCESSES,),
        "clean": (Step(name="files", act=acts.wipe, deadline=3600), Step(name="folder", act=acts.make_again)),
        "check": (Step(name="look", act=acts.check),),
        "destroy": (Step(name="folder", act=acts.remove, deadline=3600),),
    }

    def reusable_after(self, lease: LeaseView) -> bool:
        """Only where it is cleaned from outside, and the account could not leave anything beyond its own reach."""
        return hosts.reusable(lease.resource)
