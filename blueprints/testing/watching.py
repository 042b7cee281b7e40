"""Conformance: health checks, power and updates of an existing resource."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from blueprints.answers import Ready
from blueprints.contract import Activates, BulkChecked, BulkChecks, Checks, Powers, Updates
from blueprints.specs import LeaseView, ResourceView
from blueprints.testing.phases import Phases, expect_ready, needs

_BULK = 30.0
"""Seconds that a bulk check may take."""


class Watching(Phases):
    """Tests of Checks, BulkChecks, Powers and Updates."""

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

    @needs(BulkChecks)
    def test_a_bulk_check_changes_nothing_and_finds_no_dead_resource_sound(self) -> None:
        resource = self.built()
        for _ in range(2):
            resource = self.ready("check", resource).spec.resource
        before = list(self.outside())
        for _ in range(2):
            found = self._checked_in_bulk(resource)
            assert {*found.sound, *found.facts} <= {resource.id}, "it is about resources that it was not given"
        assert list(self.outside()) == before
        self.kill(resource)
        assert not self._checked_in_bulk(resource).sound
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

    @needs(Updates)
    def test_whether_a_change_disturbs_leases_or_can_be_forced_is_a_sentence_and_always_the_same(self) -> None:
        assert isinstance(self.kind, Updates)
        config = self.blueprint().config
        for before in (None, config):
            for told in (self.kind.disruption, self.kind.unforcible):
                said = told(before, config)
                assert said == told(before, config)
                assert said == "" or (said[:1].isupper() and said.endswith(".")), f"{said!r} is not a sentence"

    @needs(Updates)
    def test_a_change_that_disturbs_no_lease_leaves_a_lease_as_it_is(self) -> None:
        if self.changed_config() is None:
            return
        assert isinstance(self.kind, Updates)
        assert self.kind.disruption(self.blueprint().config, self._changed(self.built()).blueprint.config) == ""
        resource = self.built()
        lease = self.activated(self.lease(resource))
        before, access = self.names(resource), self._access(lease)
        updated = self.ready("update", self._changed(lease.resource), disruptive=False).spec.resource
        self.ready("update", updated, disruptive=False)
        assert (self.names(resource), self._access(lease)) == (before, access)
        for name in self.kind.interfaces():
            self.use(lease.interface(name))
        self.destroyed(updated)

    @needs(Updates)
    def test_a_process_that_dies_at_any_call_of_an_update_is_followed_by_one_that_finishes(self) -> None:
        for newer, disruptive in self._updates():
            resource = self.built()
            clean = self.ready("update", newer(resource), disruptive=disruptive)
            expected = self.names(resource)
            self.destroyed(clean.spec.resource)
            for does in ("crash", "lose"):
                for mishap in self.mishaps(does, clean):
                    resource = self.built()
                    after = self.run("update", newer(resource), mishap=mishap, disruptive=disruptive)
                    after = expect_ready(self.resume(after) if does == "crash" else after)
                    assert self.names(resource) == expected, f"after {mishap}"
                    self.destroyed(after.spec.resource)

    @needs(Updates)
    def test_a_lease_can_be_set_up_again_after_an_update_that_was_forced(self) -> None:
        if not (isinstance(self.kind, Updates) and self.kind.forcible and isinstance(self.kind, Activates)):
            return
        resource = self.built()
        lease = self.activated(self.lease(resource))
        access = self._access(lease)
        updated = self.ready("update", self._newer(lease.resource), disruptive=True).spec.resource
        lease = self.activated(replace(lease, resource=updated))
        assert self._access(lease) == access
        for name in self.kind.interfaces():
            self.use(lease.interface(name))
        self.ready("deactivate", updated, lease)
        assert self._access(lease) == []
        self.destroyed(updated)

    def _checked_in_bulk(self, resource: ResourceView) -> BulkChecked:
        """Return the result for one resource, without what the engine does not pass."""
        assert isinstance(self.kind, BulkChecks)
        plain = replace(resource, parts=(), parents={}, locks={}, part_of=())
        if not self.kind.checks_in_bulk(plain.blueprint.config):
            return BulkChecked()
        return self.kind.check_in_bulk([plain], deadline=_BULK)

    def _updates(self) -> Iterator[tuple[Callable[[ResourceView], ResourceView], bool]]:
        """Yield how a resource becomes outdated, and whether its update may disturb leases."""
        yield self._newer, True
        if self.changed_config() is not None:
            yield self._changed, False

    def _access(self, lease: LeaseView) -> list[str]:
        return list(self.access_of(lease)) if isinstance(self.kind, Activates) else []

    def _changed(self, resource: ResourceView) -> ResourceView:
        config = self.kind.Config.model_validate(self.changed_config())
        return replace(resource, blueprint=replace(self.blueprint(generation=2), config=config))

    def _power(self, resource: ResourceView, wanted: str, seen: str) -> None:
        self.ready("power", resource, power=wanted)
        assert self.power_of(resource) == seen, f"after {wanted}"

    def _newer(self, resource: ResourceView) -> ResourceView:
        return replace(resource, blueprint=self.blueprint(generation=2))
