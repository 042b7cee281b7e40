"""Conformance: health checks, power and updates of an existing resource."""

from __future__ import annotations

from dataclasses import replace

from blueprints.answers import Ready
from blueprints.contract import Checks, Powers, Updates
from blueprints.specs import ResourceView
from blueprints.testing.phases import Phases, needs


class Watching(Phases):
    """Tests of Checks, Powers and Updates."""

    @needs(Checks)
    def test_a_healthy_resource_is_found_healthy_and_looking_changes_nothing(self) -> None:
        resource = self.built()
        before = list(self.outside())
        self.ready("check", resource)
        self.ready("check", resource)
        assert list(self.outside()) == before
        self.destroyed(resource)

    @needs(Checks)
    def test_a_dead_resource_is_found_dead_and_can_be_destroyed(self) -> None:
        before = list(self.outside())
        resource = self.built()
        self.kill(resource)
        assert self.run("check", resource).ended == "failed"
        self.destroyed(resource)
        assert list(self.outside()) == before

    @needs(Checks)
    def test_a_degraded_resource_is_reported_with_a_reason(self) -> None:
        resource = self.built()
        if self.degrade(resource):
            answers = [call.answer for call in self.ready("check", resource).calls]
            said = [one.health for one in answers if isinstance(one, Ready) and one.health is not None]
            assert [one.state for one in said] == ["degraded"]
            assert said[0].reason
        self.destroyed(resource)

    @needs(Checks)
    def test_what_was_destroyed_is_not_healthy(self) -> None:
        resource = self.built()
        if resource.origin == "built":
            self.destroyed(resource)
            assert self.run("check", resource).ended == "failed"
        else:
            self.destroyed(resource)

    @needs(Powers)
    def test_power_goes_where_it_is_wanted_and_stays_there(self) -> None:
        resource = self.built()
        for wanted, seen in (("off", "off"), ("off", "off"), ("on", "on"), ("on", "on"), ("cycle", "on")):
            self._power(resource, wanted, seen)
        self.destroyed(resource)

    @needs(Powers)
    def test_what_is_off_can_be_destroyed(self) -> None:
        before = list(self.outside())
        resource = self.built()
        self._power(resource, "off", "off")
        self.destroyed(resource)
        assert list(self.outside()) == before

    @needs(Updates)
    def test_updating_keeps_the_resource_and_may_be_repeated(self) -> None:
        resource = self.built()
        before = self.names(resource)
        newer = self._newer(resource)
        updated = self.ready("update", newer).spec.resource
        self.ready("update", updated)
        assert self.names(resource) == before
        self.destroyed(updated)

    def _power(self, resource: ResourceView, wanted: str, seen: str) -> None:
        self.ready("power", resource, power=wanted)
        assert self.power_of(resource) == seen, f"after {wanted}"

    def _newer(self, resource: ResourceView) -> ResourceView:
        return replace(resource, blueprint=self.blueprint(generation=2))
