"""The kind `webroot`: an nginx of its own with one site, in a storage that it leases for life. A lease of it puts
pages and settings in place and runs no program; even so its end is made from outside of the account of the server."""

from __future__ import annotations

from typing import ClassVar

from blueprints.contract import Step
from blueprints.layered import host as hosts
from blueprints.layered.frame import Layered
from blueprints.layered.webroot import acts
from blueprints.layered.webroot import config as schema
from blueprints.layered.webroot.server import OPENERS, STORAGE
from blueprints.specs import LeaseView

_STOP = Step(name="stop", act=acts.stop)


class Webroot(Layered):
    """A site on a port of the host."""

    name: ClassVar[str] = "webroot"
    resource_type: ClassVar[str] = "webroot"
    Config, Requirements, Attributes = schema.Config, schema.Requirements, schema.Attributes
    matches = schema.MATCHES
    needs = ("storage",)
    gone_with_needs = True
    describe = schema.drafts
    openers = OPENERS
    plans = {
        "build": (Step(name="storage", act=acts.have_storage), Step(name="site", act=acts.prepare)),
        "activate": (Step(name="start", act=acts.start),),
        "deactivate": (_STOP,),
        "clean": (_STOP, Step(name="files", act=acts.remove, deadline=3600), Step(name="pages", act=acts.renew)),
        "check": (Step(name="look", act=acts.check),),
        "destroy": (_STOP, Step(name="files", act=acts.remove, deadline=3600)),
    }

    def reusable_after(self, lease: LeaseView) -> bool:
        """Only where the storage is one that may be reused: it is cleaned from outside."""
        storage = lease.resource.parents.get(STORAGE)
        return storage is not None and hosts.reusable(storage.resource)
