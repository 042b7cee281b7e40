"""Phases carried out for a bench: the words in which the suites are written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from blueprints.contract import Plan
from blueprints.specs import LeaseView, ResourceView
from blueprints.testing.bench import Bench
from blueprints.testing.outcome import Mishap, Outcome


class Phases(Bench):
    """Runs the kind's plans and says what was expected."""

    def run(
        self,
        phase: str,
        resource: ResourceView,
        lease: LeaseView | None = None,
        *,
        mishap: Mishap | None = None,
        **wanted: Any,
    ) -> Outcome:
        """Carry out the plan of a phase."""
        return self.driver().run(self.plan(phase), self.spec(phase, resource, lease, **wanted), mishap=mishap)

    def resume(self, before: Outcome) -> Outcome:
        """Another process goes on where one died."""
        spec = before.spec
        return self.driver().run(self.plan(spec.phase), spec, start=before.position)

    def plan(self, phase: str) -> Plan:
        """The kind's plan of a phase."""
        plan: Plan = getattr(self.kind, phase)()
        return plan

    def ready(self, phase: str, resource: ResourceView, lease: LeaseView | None = None, **wanted: Any) -> Outcome:
        """Carry out a plan that must succeed."""
        return expect_ready(self.run(phase, resource, lease, **wanted))

    def built(self, resource: ResourceView | None = None) -> ResourceView:
        """A resource, made."""
        return self.ready("build", resource or self.resource()).spec.resource

    def activated(self, lease: LeaseView) -> LeaseView:
        """The lease, made usable if that needs work."""
        if not hasattr(self.kind, "activate"):
            return lease
        after = self.ready("activate", lease.resource, lease).spec.lease
        assert after is not None
        return after

    def destroyed(self, resource: ResourceView) -> None:
        """Destroy, which must succeed."""
        self.ready("destroy", resource)

    def mishaps(self, does: Any, clean: Outcome) -> Iterator[Mishap]:
        """One mishap for every call that a run without any made."""
        for at in range(len(clean.calls)):
            yield Mishap(does=does, at=at)

    def names(self, resource: ResourceView) -> list[str]:
        """What exists outside now, the resource's key as KEY so that two can be compared."""
        return sorted(thing.name.replace(resource.key, "KEY") for thing in self.outside())


def expect_ready(outcome: Outcome) -> Outcome:
    """The outcome, which must be Ready."""
    assert outcome.ended == "ready", f"{outcome.spec.phase}.{outcome.step} ended {outcome.ended}: {outcome.answer}"
    return outcome
