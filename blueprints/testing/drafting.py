"""Conformance: drafts of resources that are built, registered or discovered."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from blueprints.contract import Builds, Discovers, Registers, Reports
from blueprints.localities import Locality, contradictions, problem
from blueprints.matching import misses
from blueprints.reports import Report, unambiguous
from blueprints.specs import Draft
from blueprints.testing.phases import Phases, needs
from blueprints.testing.rules import frozen, json_safe
from drydock_agent import Hardware


class Drafting(Phases):
    """Drafts of resources that are built, registered or discovered."""

    @needs(Builds)
    def test_drafts_fit_what_is_asked(self) -> None:
        asked = self.asked()
        drafts = self._drafts()
        assert drafts, "the bench's config has no draft for the bench's requirements"
        for draft in drafts:
            self._sane(draft)
            assert not draft.identity, "a resource that is not built yet must not have an identity"
            assert asked.amounts.fits_in(draft.capacity)
            required = asked.requirements.model_dump(mode="json")
            assert not misses(self.kind.matches, draft.attributes, required)

    @needs(Builds)
    def test_drafts_are_the_same_again_and_make_nothing(self) -> None:
        before = list(self.outside())
        assert self._drafts() == self._drafts()
        assert list(self.outside()) == before

    @needs(Builds)
    def test_there_are_drafts_to_keep_a_minimum_ready(self) -> None:
        drafts = self.kind.drafts(self.blueprint().config, None)  # type: ignore[attr-defined]
        for draft in drafts:
            self._sane(draft)

    @needs(Builds)
    def test_what_no_resource_meets_has_no_draft(self) -> None:
        if (impossible := self.impossible()) is not None:
            config = self.blueprint().config
            assert not list(self.kind.drafts(config, self.asked(impossible)))  # type: ignore[attr-defined]

    @needs(Registers)
    def test_a_registered_draft_has_an_identity(self) -> None:
        draft = self.registered()
        self._sane(draft)
        assert draft.identity
        assert draft == self.registered()

    @needs(Registers)
    def test_a_registered_resource_becomes_ready_and_is_handed_back(self) -> None:
        before = list(self.outside())
        resource = self.built(self.resource(self.registered()))
        self.destroyed(resource)
        self.destroyed(resource)
        assert list(self.outside()) == before

    @needs(Discovers)
    def test_what_is_discovered_has_stable_and_unique_identities(self) -> None:
        self.plant()
        found = self._discovered()
        assert found, "nothing was discovered after plant()"
        for draft in found:
            self._sane(draft)
            assert draft.identity
        assert len({draft.identity for draft in found}) == len(found)
        named = [one for draft in found for one in draft.identities]
        assert len(set(named)) == len(named), "two resources have the same identity"
        assert found == self._discovered(), "a second discovery of the same resources returned something else"

    @needs(Discovers)
    def test_what_a_discovered_thing_is_part_of_is_discovered_too(self) -> None:
        self.plant()
        found = self._discovered()
        identities = {draft.identity for draft in found}
        assert {draft.part_of for draft in found if draft.part_of} <= identities

    @needs(Reports)
    def test_a_report_always_results_in_the_same_drafts(self) -> None:
        self.plant()
        found: list[Draft] = []
        for report in self._reports():
            json_safe("content of a report", report.content)
            sent = replace(report, content=json.loads(json.dumps(report.content)))
            drafts = self._drafts_from(report)
            assert drafts == self._drafts_from(report) == self._drafts_from(sent)
            assert sent.content == report.content, "drafts_from changed the report"
            found += drafts
        assert sorted(found, key=lambda draft: draft.identity) == self._discovered()

    @needs(Reports)
    def test_making_drafts_from_a_report_makes_nothing(self) -> None:
        self.plant()
        reports, before = self._reports(), list(self.outside())
        assert any(self._drafts_from(report) for report in reports)
        assert list(self.outside()) == before

    @needs(Reports)
    def test_hardware_that_is_kept_for_people_can_be_read(self) -> None:
        self.plant()
        for report in self._reports() if self.kind.reports_hardware else ():  # type: ignore[attr-defined]
            assert not report.next_page, "reports of hardware have one page"
            Hardware.from_json(report.content)

    def _reports(self) -> list[Report]:
        blueprint, found = self.blueprint(), []
        for place in self.kind.reported_places(blueprint):  # type: ignore[attr-defined]
            found.append(self.kind.read_report(blueprint, place, ""))  # type: ignore[attr-defined]
            while found[-1].next_page:
                found.append(self.kind.read_report(blueprint, place, found[-1].next_page))  # type: ignore[attr-defined]
        return found

    def _drafts_from(self, report: Report) -> list[Draft]:
        return list(self.kind.drafts_from(self.blueprint().config, report))  # type: ignore[attr-defined]

    @needs(Discovers)
    def test_discovered_things_form_trees_of_at_most_four_levels_below_their_tops(self) -> None:
        self.plant()
        wholes = {draft.identity: draft.part_of for draft in self._discovered()}
        for identity in wholes:
            path = [identity]
            while whole := wholes.get(path[-1]):
                assert whole not in path, f"{identity} is part of itself: {path}"
                path.append(whole)
            assert len(path) <= 5, f"{identity} is too deep: {path}"

    @needs(Discovers)
    def test_localities_of_discovered_things_can_be_compared(self) -> None:
        self.plant()
        found = {draft.identity: draft for draft in self._discovered()}
        trees: dict[str, list[Locality]] = {}
        for draft in found.values():
            assert not problem(draft.locality), f"{draft.identity}: {problem(draft.locality)}"
            top = draft
            while top.part_of in found:
                top = found[top.part_of]
            trees.setdefault(top.identity, []).append(draft.locality)
        for top_identity, localities in trees.items():
            assert not contradictions(localities), f"below {top_identity}: {contradictions(localities)}"

    def _drafts(self) -> list[Draft]:
        return list(self.kind.drafts(self.blueprint().config, self.asked()))  # type: ignore[attr-defined]

    def _discovered(self) -> list[Draft]:
        found = self.kind.discover(self.blueprint())  # type: ignore[attr-defined]
        return sorted(found, key=lambda draft: str(draft.identity))

    def _sane(self, draft: Draft) -> None:
        frozen(draft)
        self.kind.Attributes.model_validate(draft.attributes)
        assert unambiguous([draft]) == [draft], "identities must come from `blueprints.identities.real`"
        for name in ("attributes", "facts"):
            json_safe(f"{name} of a draft", getattr(draft, name))
        assert not problem(draft.locality), problem(draft.locality)
        json_safe("capacity of a draft", asdict(draft.capacity))
        assert all(draft.traits), "a trait has no name"
        parts = [(part.part_class, part.identity) for part in draft.parts]
        assert len(set(parts)) == len(parts), "two parts have the same identity"
        assert draft.price is None or draft.price >= 0
