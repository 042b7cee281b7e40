"""The frame of a kind that stands on a lease of another resource; the kind itself is then a page of facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from blueprints.answers import Answer, Failed, Json, Ready, Scope
from blueprints.contract import Act, Activates, Builds, Checks, Cleans, Kind, Opener, Plan
from blueprints.hostshell import told
from blueprints.matching import Match, misses
from blueprints.specs import Asked, Draft, LeaseView, Spec

Work = Callable[[Spec, Json, LeaseView], Answer]
"""What a step does on the lease that the resource stands on."""


class Layered(Kind, Builds, Activates, Cleans, Checks):
    """One lease at a time has it. `plans` has the steps of every phase, `describe` what could be built."""

    plans: ClassVar[Mapping[str, Plan]]
    openers: ClassVar[Mapping[str, Opener]]
    describe: ClassVar[Callable[[Any, Asked | None], Iterable[Draft]]]

    def drafts(self, config: Any, asked: Asked | None) -> Sequence[Draft]:
        """What is asked for, as far as the config allows it."""
        return list(type(self).describe(config, asked))

    def build(self) -> Plan:
        """Lease what it stands on, and make it there."""
        return self.plans["build"]

    def activate(self) -> Plan:
        """Make it ready for one lease."""
        return self.plans["activate"]

    def deactivate(self) -> Plan:
        """End what runs there."""
        return self.plans["deactivate"]

    def clean(self) -> Plan:
        """Remove what the lease left."""
        return self.plans["clean"]

    def check(self) -> Plan:
        """Look at it."""
        return self.plans["check"]

    def destroy(self) -> Plan:
        """End what runs there, and remove it. Without the lease that it stands on it is gone already."""
        return self.plans["destroy"]

    def interfaces(self) -> Mapping[str, Opener]:
        """How it is used."""
        return self.openers


class Below:
    """The lease of one name that a resource stands on, as its steps come to it."""

    def __init__(self, name: str) -> None:
        self._name = name
        message = f"The {name} lease under it is gone."
        self._gone = Failed(scope=Scope.OFFER, code=f"{name}_gone", message=message)

    def needed(self, work: Work) -> Act:
        """An act that fails where that lease is no more."""
        return self._act(work, self._gone)

    def ending(self, work: Work) -> Act:
        """An act that has nothing to do where that lease is no more, and all that stood on it with it."""
        return self._act(work, Ready())

    def _act(self, work: Work, gone: Answer) -> Act:
        @told
        def act(spec: Spec, memo: Json) -> Answer:
            lease = spec.resource.parents.get(self._name) or spec.parents.get(self._name)
            return gone if lease is None else work(spec, memo, lease)

        return act


def fits(matches: tuple[Match, ...], draft: Draft, asked: Asked) -> bool:
    """Whether a draft is what is asked for."""
    if asked.traits or not asked.amounts.fits_in(draft.capacity):
        return False
    return not misses(matches, draft.attributes, asked.requirements.model_dump(mode="json"))
