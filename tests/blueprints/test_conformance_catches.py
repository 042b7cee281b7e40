"""The conformance suite and the driver catch kinds that break the contract, each by the test meant for it."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import BaseModel, Field, SecretStr

from blueprints.answers import Absent, Answer, Json, Need, NeededLease, Ready, Unknown, Wait
from blueprints.contract import Builds, BulkChecked, Checks, Fields, Kind, Opener, Plan, Step
from blueprints.fake import actions
from blueprints.fake.kind import Fake, FakeActivated
from blueprints.fake.offering import FakeCloud
from blueprints.fake.provider import Provider
from blueprints.matching import Match
from blueprints.records.erasures import Erasure
from blueprints.records.sensors import SensorReading, SensorReport
from blueprints.specs import ResourceView, Spec
from blueprints.testing.conformance import KindConformance
from blueprints.testing.driver import Driver
from blueprints.testing.rules import ContractBroken, called
from blueprints.watches import Changes, WatchNews
from drydock.core import clock
from interfaces.command.fake import FakeCommand
from tests.blueprints.fake_bench import FakeBench
from tests.blueprints.test_conformance_fake import FakeHooks

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRYDOCK_FAKE_CLOUD", str(tmp_path))


def _fails(kind: Kind, test: str) -> None:
    suite: Any = type("Suite", (FakeHooks,), {"kind": kind})()
    with pytest.raises((AssertionError, KeyError, pytest.fail.Exception)):
        getattr(suite, test)()


def _create_anew(spec: Spec, memo: Json) -> Answer:
    name = f"{spec.resource.key}-{next(_numbers)}"
    Provider(spec.config.provider).create(name, token="", tags=spec.tags, offer="", generation=1)
    return Ready(facts={"name": name})


class _ForgetsBookmark(Fake):
    def watch(self, *given: Any) -> Iterator[WatchNews]:
        for news in super().watch(*given):
            yield replace(news, bookmark="")


class _WatchesWithoutTags(Fake):
    def watch(self, *given: Any) -> Iterator[WatchNews]:
        for news in super().watch(*given):
            bare = tuple(replace(one, tags={}) for one in getattr(news, "objects", ()))
            yield replace(news, objects=bare) if isinstance(news, Changes) else news


class _NeverMisses(Fake):
    def watch(self, *given: Any) -> Iterator[WatchNews]:
        for news in super().watch(*given):
            yield replace(news, missed=False) if isinstance(news, Changes) else news


class _Duplicates(Fake):
    def build(self) -> Plan:
        return (Step(name="create", act=_create_anew),)


class _Untagged(Fake):
    def build(self) -> Plan:
        return (Step(name="create", act=_untagged),)


def _untagged(spec: Spec, memo: Json) -> Answer:
    Provider(spec.config.provider).reserve(spec.resource.key, tags={})
    return Ready()


class _NeverDestroys(Fake):
    def destroy(self) -> Plan:
        return (Step(name="delete", act=lambda spec, memo: Ready()),)


class _DestroysByFact(Fake):
    def destroy(self) -> Plan:
        return (Step(name="delete", act=_delete_by_fact),)


def _delete_by_fact(spec: Spec, memo: Json) -> Answer:
    if "instance" in spec.resource.facts:
        return actions.delete(spec, memo)
    return Ready()


class _AlwaysHealthy(Fake):
    def check(self) -> Plan:
        return (Step(name="look", act=lambda spec, memo: Ready()),)


class _Leaks(Fake):
    def build(self) -> Plan:
        secret = {"password": "correct horse"}
        return (Step(name="create", act=lambda spec, memo: Ready(secrets=secret, log="set correct horse")),)


class _LeavesAccess(FakeActivated):
    def deactivate(self) -> Plan:
        return (Step(name="access", act=actions.close_access),)


class _CleansNothing(FakeActivated):
    def clean(self) -> Plan:
        return (Step(name="wipe", act=lambda spec, memo: Ready()),)


def _measured(name: str) -> SensorReport:
    return SensorReport(at=clock.now(), interval=60, readings=(SensorReading(name=name),))


class _ForgetsErasures(FakeActivated):
    """Reports its disks only if it did not erase them before, and not after the answer was lost."""

    def clean(self) -> Plan:
        return (Step(name="wipe", act=_wipe_once),)


def _wipe_once(spec: Spec, memo: Json) -> Answer:
    answer = actions.wipe(spec, memo)
    assert isinstance(answer, Ready)
    provider, key = Provider(spec.config.provider), spec.resource.key
    if provider.settings(key).get("wiped"):
        return Ready()
    provider.set("wiped", key, {"wiped": "yes"})
    now = clock.now()
    return replace(answer, erasures=(_erasure(started_at=now, ended_at=now),))


def _erasure(**more: Any) -> Erasure:
    at = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    return Erasure(**{"disk": "sda", "method": "overwrite", "started_at": at, "ended_at": at, "verified": True, **more})


class _NeverRefuses(Fake):
    def interfaces(self) -> dict[str, Opener]:
        return {"command": lambda lease, still_mine: FakeCommand()}


class _Matchless(Fake):
    matches: ClassVar[Any] = (Match("colour", "=", "color"),)


class _Untyped(Fake):
    Requirements: ClassVar[Any] = BaseModel


class _BadName(Fake):
    name = "Fake Kind"


class _Twins(Fake):
    def check(self) -> Plan:
        return super().check() * 2


class _Declares(Fake):
    capabilities = ("builds",)


class _ChecksUndeclared(Kind, Builds):
    name = "undeclared"
    resource_type = "undeclared"

    def drafts(self, config: Any, asked: Any) -> list[Any]:
        return []

    def build(self) -> Plan:
        return Fake().build()

    def destroy(self) -> Plan:
        return Fake().destroy()

    def check(self) -> Plan:
        return Fake().check()


class _Vouches(Fake):
    def checks_in_bulk(self, config: Any) -> bool:
        return True

    def check_in_bulk(self, resources: Sequence[ResourceView], *, deadline: float) -> BulkChecked:
        return BulkChecked(sound=[one.id for one in resources])


class _ChecksOthers(_Vouches):
    def check_in_bulk(self, resources: Sequence[ResourceView], *, deadline: float) -> BulkChecked:
        return BulkChecked(facts={one.id + 1: {} for one in resources})


class _FixesUnknown(Fake):
    fixed: ClassVar[frozenset[str]] = frozenset({"nothing"})


class _Mumbles(Fake):
    def unforcible(self, before: Any, after: Any) -> str:
        return "because"


class _Random(Fake):
    def drafts(self, config: Any, asked: Any) -> list[Any]:
        return list(super().drafts(config, asked))[:: (-1) ** next(_numbers)]


class _Unfitting(Fake):
    def drafts(self, config: Any, asked: Any) -> Any:
        return super().drafts(config, None)


class _Misplaces(Fake):
    def discover(self, blueprint: Any) -> Any:
        found = super().discover(blueprint)
        return [replace(one, locality=(f"node of {one.identity}", "port 1")) for one in found]


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (_Duplicates(), "test_building_twice_under_one_key_makes_one_thing"),
        (_Untagged(), "test_building_makes_something_that_bears_our_tags"),
        (_NeverDestroys(), "test_destroying_twice_succeeds_and_leaves_nothing"),
        (_DestroysByFact(), "test_destroy_after_a_crash_at_any_call_of_build_leaves_nothing"),
        (_AlwaysHealthy(), "test_a_dead_resource_is_found_dead_and_can_be_destroyed"),
        (_ForgetsBookmark(), "test_a_watch_begins_with_a_listing_and_goes_on_at_its_bookmark"),
        (_WatchesWithoutTags(), "test_a_watch_begins_with_a_listing_and_goes_on_at_its_bookmark"),
        (_NeverMisses(), "test_a_watch_begins_with_a_listing_and_goes_on_at_its_bookmark"),
        (_Leaks(), "test_building_twice_under_one_key_makes_one_thing"),
        (_LeavesAccess(), "test_deactivating_ends_all_access_and_may_be_repeated"),
        (_CleansNothing(), "test_cleaning_removes_what_the_lease_left"),
        (_ForgetsErasures(), "test_cleaning_removes_what_the_lease_left"),
        (_NeverRefuses(), "test_interfaces_refuse_to_work_when_the_lease_is_over"),
        (_Matchless(), "test_matches_name_declared_attributes_and_requirements"),
        (_Untyped(), "test_its_models_are_fields_with_a_schema"),
        (_BadName(), "test_the_kind_and_its_type_have_sane_names"),
        (_Twins(), "test_steps_have_sane_names_that_are_unique_in_their_plan"),
        (_Declares(), "test_capabilities_come_from_the_classes_alone"),
        (_ChecksUndeclared(), "test_no_method_of_a_capability_without_its_class"),
        (_Vouches(), "test_a_bulk_check_changes_nothing_and_finds_no_dead_resource_sound"),
        (_ChecksOthers(), "test_a_bulk_check_changes_nothing_and_finds_no_dead_resource_sound"),
        (_FixesUnknown(), "test_fields_that_are_fixed_are_those_of_a_registration"),
        (_Mumbles(), "test_whether_a_change_disturbs_leases_or_can_be_forced_is_a_sentence_and_always_the_same"),
        (_Random(), "test_drafts_are_the_same_again_and_make_nothing"),
        (_Unfitting(), "test_what_no_resource_meets_has_no_draft"),
        (_Misplaces(), "test_localities_of_discovered_things_can_be_compared"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Kind) else "",
)
def test_the_suite_catches(kind: Kind, test: str) -> None:
    _fails(kind, test)


def test_tests_for_what_a_kind_does_not_do_are_not_collected() -> None:
    def collected(kind: Kind) -> set[str]:
        suite: Any = type("Suite", (KindConformance,), {"kind": kind})
        return {name for name in dir(suite) if name.startswith("test_") and callable(getattr(suite, name))}

    more = collected(FakeActivated()) - collected(Fake())
    assert "test_cleaning_removes_what_the_lease_left" in more
    more -= {
        "test_the_way_past_the_account_of_a_lease_is_not_the_leases",
        "test_nothing_that_a_lease_plants_outlives_it",
    }
    assert all("activat" in name or "clean" in name for name in more)
    assert isinstance(Fake(), Checks)
    assert "test_a_healthy_resource_is_found_healthy_and_looking_changes_nothing" in collected(Fake())


def _spec() -> Spec:
    bench = FakeBench()
    return bench.spec("build", bench.resource())


def _mutates(spec: Spec, memo: Json) -> Answer:
    memo["new"] = 1
    return Ready()


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (_mutates, "changed the memo"),
        (lambda spec, memo: Absent(), "only find may"),
        (lambda spec, memo: None, "not an answer"),
        (lambda spec, memo: Ready(facts={"at": {1, 2}}), "not valid JSON"),
        (lambda spec, memo: Ready(facts={"n": {1: 2}}), "to JSON and back"),
        (lambda spec, memo: Ready(facts={"n": float("nan")}), "not valid JSON"),
        (lambda spec, memo: Wait(memo={"t": (1,)}), "to JSON and back"),
        (lambda spec, memo: Wait(percent=120), "120 percent"),
        (lambda spec, memo: Ready(erasures=(_erasure(verified=False),)), "does not say why sda is not erased"),
        (lambda spec, memo: Ready(erasures=(_erasure(method=""),)), "does not say how sda was erased"),
        (lambda spec, memo: Ready(erasures=(_erasure(bytes=-1),)), "negative number of bytes of sda"),
        (lambda spec, memo: Ready(erasures=({"disk": "sda"},)), "is no Erasure"),  # type: ignore[arg-type]
        (
            lambda spec, memo: Ready(secrets={"key": "12345678"}, erasures=(_erasure(problem="not 12345678"),)),
            "erasures of .* contains a secret",
        ),
        (lambda spec, memo: Ready(gives_back=("imgae",)), "gives back imgae, which is no lease for life"),
        (lambda spec, memo: Ready(sensors={"Fan": 1.0}), "reports the sensors as"),  # type: ignore[arg-type]
        (
            lambda spec, memo: Ready(secrets={"key": "12345678"}, sensors=_measured("Fan 12345678")),
            "sensors of .* contains a secret",
        ),
        (
            lambda spec, memo: Ready(secrets={"key": ["12345678\n"]}, facts={"a": ["x12345678\n"]}),
            "contains a secret",
        ),
    ],
)
def test_rules_of_a_single_call(act: Callable[[Spec, Json], Any], says: str) -> None:
    with pytest.raises(ContractBroken, match=says):
        called(Step(name="step", act=act), _spec(), {}, find=False)


def test_a_step_of_a_lease_gives_nothing_back() -> None:
    bench = FakeBench()
    spec = replace(_spec(), lease=bench.lease(bench.resource()))
    with pytest.raises(ContractBroken, match="gives back image, but its phase is one of a lease"):
        called(Step(name="step", act=lambda spec, memo: Ready(gives_back=("image",))), spec, {}, find=False)


class _Account(Fields):
    region: str = ""
    password: SecretStr | None = None
    key: Annotated[SecretStr, Field(description="Its key.")] = SecretStr("")


class _Told(FakeActivated):
    Credential = _Account


def test_of_a_credential_only_what_its_class_calls_secret_may_not_be_shown() -> None:
    given = {
        "region": "north-west-1",
        "password": "correct horse",
        "key": {"pem": ["battery staple"]},
        "more": "unknown",
    }

    def secrets(kind: Kind) -> set[str]:
        return set(type("Suite", (FakeHooks,), {"kind": kind})().secrets_of(given))

    every = {"correct horse", "pem", "battery staple", "unknown"}
    assert secrets(_Told()) == every
    assert secrets(FakeActivated()) == secrets(FakeCloud()) == every | {"north-west-1"}


@pytest.mark.parametrize(("word", "caught"), [("north-west-1", False), ("correct horse", True)])
def test_a_secret_of_a_credential_in_facts_is_caught(word: str, caught: bool) -> None:
    class Suite(FakeBench):
        kind = _Told()

        def credentials(self) -> Json:
            return {"account": {"region": "north-west-1", "password": "correct horse"}}

    bench = Suite()
    plan = (Step(name="tell", act=lambda spec, memo: Ready(facts={"where": f"in {word}"})),)
    with pytest.raises(ContractBroken, match="contains a secret") if caught else nullcontext():
        bench.driver().run(plan, bench.spec("build", bench.resource()))


def test_find_may_not_answer_what_only_an_act_may() -> None:
    bench = FakeBench()
    failing = bench.run("check", bench.resource()).answer
    assert failing is not None
    step = Step(name="step", act=lambda spec, memo: Ready(), find=lambda spec, memo: failing)
    with pytest.raises(ContractBroken, match="answered Failed"):
        called(step, _spec(), {}, find=True)


def test_the_driver_gives_up_on_a_step_that_never_ends() -> None:
    step = Step(name="step", act=lambda spec, memo: Wait(after=0))
    with pytest.raises(ContractBroken, match="not done after 7 calls"):
        Driver(FakeBench(), tries=7).run((step,), _spec())


def test_a_lost_answer_without_find_repeats_the_act() -> None:
    answers: list[Answer] = [Unknown(message="lost", memo={"task": 1}), Ready()]
    seen: list[Json] = []

    def act(spec: Spec, memo: Json) -> Answer:
        seen.append(dict(memo))
        return answers.pop(0)

    assert Driver(FakeBench()).run((Step(name="step", act=act),), _spec()).ended == "ready"
    assert seen == [{}, {"task": 1}]


def _ask_for_a_host(spec: Spec, memo: Json) -> Answer:
    return Ready() if "host" in spec.parents else Need(leases=(NeededLease(name="host", type="host"),))


class _Undeclared(Fake):
    def build(self) -> Plan:
        return (Step(name="host", act=_ask_for_a_host),)


def test_a_need_that_was_not_declared_is_caught() -> None:
    suite: Any = type("Suite", (FakeHooks,), {"kind": _Undeclared()})()
    with pytest.raises(ContractBroken, match="'host', which `needs` does not name"):
        suite.run("build", suite.resource())
