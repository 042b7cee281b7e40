"""Base class of the kinds whose resources run on a lease of another resource."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from blueprints.answers import Answer, Failed, Json, Ready, Scope
from blueprints.contract import Act, Activates, Builds, Checks, Cleans, Kind, Opener, Plan
from blueprints.hostshell import told
from blueprints.matching import Match, misses
from blueprints.specs import Asked, Draft, LeaseView, Spec

Work = Callable[[Spec, Json, LeaseView], Answer]
"""A step's work on the lease under the resource."""


class Layered(Kind, Builds, Activates, Cleans, Checks):
    """A resource used by one lease at a time.

    `plans` contains the plan of every phase. `describe` returns possible drafts.
    """

    plans: ClassVar[Mapping[str, Plan]]
    openers: ClassVar[Mapping[str, Opener]]
    describe: ClassVar[Callable[[Any, Asked | None], Iterable[Draft]]]

    def drafts(self, config: Any, asked: Asked | None) -> Sequence[Draft]:
        """Return the drafts that match the request and that the config allows."""
        return list(type(self).describe(config, asked))

    def build(self) -> Plan:
        """Return the plan that leases the underlying resource and builds on it."""
        return self.plans["build"]

    def activate(self) -> Plan:
        """Return the plan that prepares the resource for one lease."""
        return self.plans["activate"]

    def deactivate(self) -> Plan:
        """Return the plan that ends everything that runs on the resource."""
        return self.plans["deactivate"]

    def clean(self) -> Plan:
        """Return the plan that removes everything that the lease left."""
        return self.plans["clean"]

    def check(self) -> Plan:
        """Return the plan that checks the resource's health."""
        return self.plans["check"]

    def destroy(self) -> Plan:
        """Return the plan that ends everything that runs on the resource, and removes it.

        If the underlying lease is gone, so is the resource.
        """
        return self.plans["destroy"]

    def interfaces(self) -> Mapping[str, Opener]:
        """Return the functions that open the kind's interfaces, by interface name."""
        return self.openers


class Below:
    """A named lease under a resource, for use in its steps."""

    def __init__(self, name: str) -> None:
        self._name = name
        message = f"The underlying lease {name} no longer exists."
        self._gone = Failed(scope=Scope.OFFER, code=f"{name}_gone", message=message)

    def needed(self, work: Work) -> Act:
        """Return an act that fails if the underlying lease is gone."""
        return self._act(work, self._gone)

    def ending(self, work: Work) -> Act:
        """Return an act that does nothing if the underlying lease is gone, because the resource is then gone too."""
        return self._act(work, Ready())

    def _act(self, work: Work, gone: Answer) -> Act:
        @told
        def act(spec: Spec, memo: Json) -> Answer:
            lease = spec.resource.parents.get(self._name) or spec.parents.get(self._name)
            return gone if lease is None else work(spec, memo, lease)

        return act


def fits(matches: tuple[Match, ...], draft: Draft, asked: Asked) -> bool:
    """Return whether a draft matches the request."""
    if asked.traits or not asked.amounts.fits_in(draft.capacity):
        return False
    return not misses(matches, draft.attributes, asked.requirements.model_dump(mode="json"))
