"""Conformance: building, and destroying what a build left, wherever it stopped."""

from __future__ import annotations

from dataclasses import replace

from blueprints.contract import Builds, Discovers, Lists, Offers, Registers
from blueprints.testing.bench import TAGS
from blueprints.testing.outcome import Outcome
from blueprints.testing.phases import Phases, expect_ready, needs
from blueprints.testing.rules import frozen, json_safe


class Making(Phases):
    """Tests that a build creates one object for each key, whatever crashes, and that destroying it leaves nothing."""

    @needs(Builds, Offers, Registers)
    def test_building_makes_something_that_bears_our_tags(self) -> None:
        before = list(self.outside())
        resource = self.built()
        new = [thing for thing in self.outside() if thing not in before]
        assert new or resource.origin != "built", "outside() reports nothing new after the build"
        for thing in new:
            assert thing.tags is None or TAGS.items() <= thing.tags.items(), (
                f"{thing.name} lacks the installation's tags"
            )
        json_safe("facts of the resource", resource.facts)
        self.destroyed(resource)

    @needs(Builds, Offers, Registers)
    def test_building_twice_under_one_key_makes_one_thing(self) -> None:
        resource = self.resource()
        built = self.built(resource)
        once = list(self.outside())
        self.ready("build", self.begun_again(resource, built))
        assert sorted(thing.name for thing in self.outside()) == sorted(thing.name for thing in once)
        self.destroyed(built)

    @needs(Builds, Offers, Registers)
    def test_a_process_that_dies_at_any_call_of_build_is_followed_by_one_that_finishes(self) -> None:
        clean, expected = self._clean_run()
        for mishap in self.mishaps("crash", clean):
            resource = self.resource()
            after = expect_ready(self.resume(self.run("build", resource, mishap=mishap)))
            assert self.names(resource) == expected, f"after {mishap}"
            self.destroyed(after.spec.resource)

    @needs(Builds, Offers, Registers)
    def test_an_answer_that_is_lost_at_any_call_of_build_makes_no_second_thing(self) -> None:
        clean, expected = self._clean_run()
        for mishap in self.mishaps("lose", clean):
            resource = self.resource()
            after = expect_ready(self.run("build", resource, mishap=mishap))
            assert self.names(resource) == expected, f"after {mishap}"
            self.destroyed(after.spec.resource)

    @needs(Builds, Offers, Registers)
    def test_destroy_after_a_crash_at_any_call_of_build_leaves_nothing(self) -> None:
        before = list(self.outside())
        clean, _ = self._clean_run()
        for mishap in self.mishaps("crash", clean):
            self.destroyed(self.run("build", self.resource(), mishap=mishap).spec.resource)
            assert list(self.outside()) == before, f"after {mishap}"

    @needs(Builds, Offers, Registers)
    def test_destroy_after_any_part_of_build_leaves_nothing(self) -> None:
        before = list(self.outside())
        clean, _ = self._clean_run()
        for mishap in self.mishaps("stop", clean):
            self.destroyed(self.run("build", self.resource(), mishap=mishap).spec.resource)
            assert list(self.outside()) == before, f"after {mishap}"

    @needs(Builds, Offers, Registers, Discovers)
    def test_destroying_nothing_succeeds(self) -> None:
        before = list(self.outside())
        self.destroyed(self.resource())
        assert list(self.outside()) == before

    @needs(Builds, Offers, Registers)
    def test_destroying_twice_succeeds_and_leaves_nothing(self) -> None:
        before = list(self.outside())
        resource = self.built()
        self.destroyed(resource)
        assert list(self.outside()) == before
        self.destroyed(resource)
        assert list(self.outside()) == before

    @needs(Builds, Offers, Registers)
    def test_a_process_that_dies_at_any_call_of_destroy_is_followed_by_one_that_finishes(self) -> None:
        before = list(self.outside())
        clean = self.ready("destroy", self.built())
        for mishap in self.mishaps("crash", clean):
            expect_ready(self.resume(self.run("destroy", self.built(), mishap=mishap)))
            assert list(self.outside()) == before, f"after {mishap}"

    @needs(Lists)
    def test_what_was_built_is_listed_with_its_tags_and_can_be_destroyed_by_what_is_listed(self) -> None:
        before = list(self.outside())
        resource = self.built()
        assert isinstance(self.kind, Lists)
        mine = {one.key: one for one in self.kind.owned(self.blueprint(), TAGS["drydock-installation"])}
        assert resource.key in mine, f"owned() does not list {resource.key}"
        frozen(mine[resource.key])
        json_safe("facts of what is listed", mine[resource.key].facts)
        assert TAGS.items() <= mine[resource.key].tags.items()
        others = [one.key for one in self.kind.owned(self.blueprint(), "another1")]
        assert resource.key not in others, "owned() lists an object with another installation's tag"
        self.destroyed(replace(resource, facts=dict(mine[resource.key].facts), secrets={}, attributes={}))
        assert list(self.outside()) == before
        assert resource.key not in [one.key for one in self.kind.owned(self.blueprint(), TAGS["drydock-installation"])]

    def _clean_run(self) -> tuple[Outcome, list[str]]:
        """Build without mishaps and destroy again. Return the outcome, and the names of what was made."""
        resource = self.resource()
        clean = self.ready("build", resource)
        expected = self.names(resource)
        self.destroyed(clean.spec.resource)
        return clean, expected
