"""Carry out the phases of a kind for the suites, and select the tests that apply to the kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from blueprints.contract import Plan
from blueprints.specs import LeaseView, ResourceView
from blueprints.testing.bench import Bench
from blueprints.testing.outcome import Mishap, Outcome

Test = TypeVar("Test", bound=Callable[..., None])


def needs(*any_of: type) -> Callable[[Test], Test]:
    """Mark a test for kinds that implement any of these classes."""

    def mark(test: Test) -> Test:
        test.any_of = any_of  # type: ignore[attr-defined]
        return test

    return mark


def applies(test: Any, kind: object) -> bool:
    """Return whether the test is for this kind."""
    any_of = getattr(test, "any_of", ())
    return not any_of or isinstance(kind, any_of)


class Phases(Bench):
    """Carries out the kind's plans, and asserts their outcomes."""

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
        """Continue in another process after one has died."""
        spec = before.spec
        return self.driver().run(self.plan(spec.phase), spec, start=before.position)

    def plan(self, phase: str) -> Plan:
        """Return the kind's plan for a phase."""
        plan: Plan = getattr(self.kind, phase)()
        return plan

    def ready(self, phase: str, resource: ResourceView, lease: LeaseView | None = None, **wanted: Any) -> Outcome:
        """Carry out a plan that must succeed."""
        return expect_ready(self.run(phase, resource, lease, **wanted))

    def built(self, resource: ResourceView | None = None) -> ResourceView:
        """Return a resource that was built. What is only discovered may need no building."""
        if not hasattr(self.kind, "build"):
            return resource or self.resource()
        return self.ready("build", resource or self.resource()).spec.resource

    def activated(self, lease: LeaseView) -> LeaseView:
        """Return the lease after activating it, if its kind has an activation."""
        if not hasattr(self.kind, "activate"):
            return lease
        after = self.ready("activate", lease.resource, lease).spec.lease
        assert after is not None
        return after

    def destroyed(self, resource: ResourceView) -> None:
        """Destroy a resource, which must succeed."""
        self.ready("destroy", resource)

    def mishaps(self, does: Any, clean: Outcome) -> Iterator[Mishap]:
        """Yield one mishap for every call that a run without mishaps made."""
        for at in range(len(clean.calls)):
            yield Mishap(does=does, at=at)

    def names(self, resource: ResourceView) -> list[str]:
        """Return the names of all outside objects, with KEY for the resource's key so that states can be compared."""
        return sorted(thing.name.replace(resource.key, "KEY") for thing in self.outside())


def expect_ready(outcome: Outcome) -> Outcome:
    """Return the outcome, which must be Ready."""
    assert outcome.ended == "ready", f"{outcome.spec.phase}.{outcome.step} ended {outcome.ended}: {outcome.answer}"
    return outcome
