"""The kind `webroot`: a separate nginx with one site, in storage that it leases for life.

A lease uploads pages and settings, but runs no programs. Nevertheless, the resource is cleaned from outside the
server's account.
"""

from __future__ import annotations

from typing import ClassVar

from blueprints.contract import Step
from blueprints.layered import host as hosts
from blueprints.layered.frame import Layered
from blueprints.layered.webroot import actions
from blueprints.layered.webroot import config as schema
from blueprints.layered.webroot.server import OPENERS, STORAGE
from blueprints.specs import LeaseView

_STOP = Step(name="stop", act=actions.stop)


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
        "build": (Step(name="storage", act=actions.have_storage), Step(name="site", act=actions.prepare)),
        "activate": (Step(name="start", act=actions.start),),
        "deactivate": (_STOP,),
        "clean": (_STOP, Step(name="files", act=actions.remove, deadline=3600), Step(name="pages", act=actions.renew)),
        "check": (Step(name="look", act=actions.check),),
        "destroy": (_STOP, Step(name="files", act=actions.remove, deadline=3600)),
    }

    def reusable_after(self, lease: LeaseView) -> bool:
        """Return whether the storage may be reused, which requires that it is cleaned from outside."""
        storage = lease.resource.parents.get(STORAGE)
        return storage is not None and hosts.reusable(storage.resource)
