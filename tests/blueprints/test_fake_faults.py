"""Every fault of the plan strikes where, when and as often as it says."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from blueprints.answers import Failed, Hold, Need, Resolution, Scope, Unknown, Wait
from blueprints.contract import CatalogueStale
from blueprints.fake.config import Config
from blueprints.testing.outcome import Outcome
from drydock.core import clock
from tests.blueprints.fake_bench import FakeBench

_ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRYDOCK_FAKE_CLOUD", str(tmp_path))


def _waits(outcome: Outcome) -> list[int | None]:
    return [call.answer.percent for call in outcome.calls if isinstance(call.answer, Wait)]


@pytest.mark.parametrize("scope", list(Scope))
def test_a_step_fails_with_each_scope_and_nothing_happened(scope: Scope) -> None:
    bench = FakeBench({"does": "fail", "at": "create", "scope": scope, "code": "E42", "times": None})
    outcome = bench.run("build", bench.resource())
    assert outcome.ended == "failed"
    assert outcome.step == "create"
    assert isinstance(outcome.answer, Failed)
    assert (outcome.answer.scope, outcome.answer.code) == (scope, "E42")
    assert bench.cloud.count("create") == 0


def test_a_fault_strikes_as_often_as_it_says_whichever_resource_comes() -> None:
    bench = FakeBench({"does": "fail", "at": "create", "scope": "offer", "skip": 1, "times": 2})
    ended = [bench.run("build", bench.resource()).ended for _ in range(5)]
    assert ended == ["ready", "failed", "failed", "ready", "ready"]


def test_a_fault_can_count_for_each_resource() -> None:
    bench = FakeBench({"does": "fail", "at": "create", "each": True})
    resources = [bench.resource(), bench.resource()]
    answers = [bench.ready("build", resource).calls[1].answer for resource in resources]
    assert all(isinstance(answer, Failed) for answer in answers)


def test_a_fault_is_meant_for_some_keys_and_offers_only() -> None:
    fault = {"does": "fail", "at": "*", "scope": "offer", "offers": "sm*", "times": None}
    bench = FakeBench(fault, offers=[{"offer": "small"}, {"offer": "big"}])
    small, big = bench.kind.drafts(bench.blueprint().config, bench.asked())
    assert bench.run("build", bench.resource(small)).ended == "failed"
    assert bench.run("build", bench.resource(big)).ended == "ready"
    other = FakeBench(fault | {"offers": "*", "keys": "no-such-*"})
    assert other.run("build", other.resource()).ended == "ready"


def test_a_bare_name_means_the_act_in_any_phase_and_never_its_find() -> None:
    bench = FakeBench({"does": "fail", "at": "flash", "scope": "operator"})
    assert bench.run("build", bench.resource()).ended == "failed"
    found = Config.model_validate({"faults": [{"does": "lose", "at": "create"}]}).faults[0]
    assert not found.names("build.create.find")
    assert found.names("build.create")


def test_slow_waits_with_a_rising_percent_in_its_memo() -> None:
    bench = FakeBench({"does": "slow", "at": "create", "polls": 3, "after": 0})
    assert _waits(bench.ready("build", bench.resource())) == [25, 50, 75]
    assert bench.cloud.count("create") == 1
    assert _waits(bench.ready("build", bench.resource())) == []


def test_slow_also_slows_a_step_that_waits_anyway() -> None:
    bench = FakeBench({"does": "slow", "at": "boot", "polls": 1, "after": 0}, boot_polls=3)
    assert _waits(bench.ready("build", bench.resource())) == [50, 25, 50]


def test_slow_may_block() -> None:
    bench = FakeBench({"does": "slow", "at": "reserve", "seconds": 0.05})
    began = clock.monotonic()
    bench.ready("build", bench.resource())
    assert clock.monotonic() - began >= 0.05


@pytest.mark.parametrize(("happened", "creates"), [(True, 1), (False, 1)])
def test_a_lost_answer_leads_to_one_create(happened: bool, creates: int) -> None:
    bench = FakeBench({"does": "lose", "at": "create", "happened": happened})
    outcome = bench.ready("build", bench.resource())
    made = [(call.made, type(call.answer).__name__) for call in outcome.calls if call.step == "create"]
    after = [("find", "Ready")] if happened else [("find", "Absent"), ("act", "Ready")]
    assert made == [("act", "Unknown"), *after]
    assert bench.cloud.count("create") == creates
    assert [one.created for one in bench.cloud.instances()] == [1]


def test_find_may_lose_its_answer_too() -> None:
    bench = FakeBench({"does": "lose", "at": "create"}, {"does": "lose", "at": "build.create.find", "times": 2})
    outcome = bench.ready("build", bench.resource())
    assert sum(isinstance(call.answer, Unknown) for call in outcome.calls) == 3
    assert bench.cloud.count("create") == 1


_BUILD = """
from tests.blueprints.fake_bench import FakeBench
from dataclasses import replace
bench = FakeBench({"does": "kill", "at": "create", "when": %r})
bench.run("build", replace(bench.resource(), key="victim"))
"""


@pytest.mark.parametrize(("when", "creates"), [("before", 0), ("after", 1)])
def test_the_process_is_killed_before_or_after_the_act_and_only_once(when: str, creates: int) -> None:
    for expected in (-signal.SIGKILL, 0):
        ended = subprocess.run([sys.executable, "-c", _BUILD % when], cwd=_ROOT, timeout=60, check=False)
        assert ended.returncode == expected
        if expected:
            assert FakeBench().cloud.count("create", "victim") == creates


@pytest.mark.parametrize("scope", ["offer", "zone"])
def test_capacity_is_refused(scope: str) -> None:
    bench = FakeBench({"does": "refuse", "at": "create", "scope": scope, "remember": 60})
    answer = bench.run("build", bench.resource()).answer
    assert isinstance(answer, Failed)
    assert (answer.scope, answer.code, answer.remember) == (scope, "capacity", 60)
    assert bench.run("build", bench.resource()).ended == "ready"


def test_capacity_is_refused_with_no_other_scope() -> None:
    with pytest.raises(ValidationError):
        FakeBench({"does": "refuse", "at": "create", "scope": "operator"}).blueprint()


def test_it_dies_after_some_checks() -> None:
    bench = FakeBench({"does": "die", "skip": 2})
    resource = bench.built()
    assert [bench.run("check", resource).ended for _ in range(4)] == ["ready", "ready", "failed", "failed"]


def test_it_holds_until_it_is_resolved() -> None:
    bench = FakeBench({"does": "hold", "at": "boot", "who": "the operator", "what": "Turn the key."})
    resource = bench.resource()
    outcome = bench.run("build", resource)
    assert (outcome.ended, outcome.step) == ("held", "boot")
    assert bench.resume(outcome).ended == "held"
    assert [key for _, key in bench.cloud.holds()] == [resource.key]
    bench.cloud.resolve(resource.key)
    assert bench.resume(outcome).ended == "ready"
    assert bench.cloud.holds() == []


def test_a_held_step_receives_the_operators_answer_with_its_memo() -> None:
    bench = FakeBench({"does": "hold", "at": "boot", "who": "ops", "what": "Erase?", "resolved_by": "operator"})
    outcome = bench.run("build", bench.resource())
    assert (outcome.ended, outcome.step) == ("held", "boot")
    assert isinstance(outcome.answer, Hold)
    assert outcome.position.memo == outcome.answer.memo
    assert bench.resume(outcome).ended == "held"

    bench.resolution = Resolution(yes=False, text="it is in use", actor="ann")
    refused = bench.resume(outcome)
    assert isinstance(refused.answer, Failed)
    assert refused.answer.message == "ann answered no: it is in use"

    bench.resolution = Resolution(yes=True)
    done = bench.resume(outcome)
    assert (done.ended, done.spec.resolution) == ("ready", None)


def test_it_needs_leases() -> None:
    leases = [{"name": "host", "type": "fake"}, {"name": "disk", "type": "fake", "same_resource_as": "host"}]
    bench = FakeBench({"does": "need_leases", "leases": leases})
    outcome = bench.ready("build", bench.resource())
    needs = [call.answer for call in outcome.calls if isinstance(call.answer, Need)]
    host = outcome.spec.parents["host"].resource.id
    asked = [[(one.name, one.on_resources) for one in need.leases] for need in needs]
    assert asked == [[("host", ())], [("disk", (host,))]]
    assert sorted(outcome.spec.resource.parents) == ["disk", "host"]


def test_it_needs_slot_locks() -> None:
    locks = [{"name": "port", "scope": "host-1", "candidates": ["80", "81"]}]
    bench = FakeBench({"does": "need_locks", "locks": locks})
    outcome = bench.ready("build", bench.resource())
    assert outcome.spec.resource.locks == {"port": "80"}
    assert sum(isinstance(call.answer, Need) for call in outcome.calls) == 1


def test_a_lease_for_the_phase_is_no_parent_of_the_resource() -> None:
    bench = FakeBench({"does": "need_leases", "leases": [{"name": "host", "type": "fake", "lifetime": "phase"}]})
    outcome = bench.ready("build", bench.resource())
    assert not outcome.spec.resource.parents
    assert "host" in outcome.spec.parents


@pytest.mark.parametrize("action", ["drain", "alone", "power_cycle"])
def test_it_needs_its_neighbours_maintenance(action: str) -> None:
    bench = FakeBench({"does": "need_maintenance", "at": "update.flash", "action": action, "relation": "host"})
    bench.ready("update", bench.built())
    assert [(one.relation, one.action) for one in bench.maintained] == [("host", action)]


def test_faults_strike_one_after_another() -> None:
    bench = FakeBench({"does": "fail", "at": "create"}, {"does": "slow", "at": "create", "polls": 1, "after": 0})
    answers = [type(call.answer).__name__ for call in bench.ready("build", bench.resource()).calls[1:4]]
    assert answers == ["Failed", "Wait", "Ready"]


def test_activation_can_fail_too() -> None:
    bench = FakeBench({"does": "fail", "at": "activate.account", "scope": "offer"})
    resource = bench.built()
    assert bench.run("activate", resource, bench.lease(resource)).ended == "failed"


def test_a_stale_catalogue_is_no_answer() -> None:
    bench = FakeBench(catalogue="stale")
    with pytest.raises(CatalogueStale):
        bench.draft()


def test_a_fault_for_no_step_is_pointed_out() -> None:
    bench = FakeBench({"does": "fail", "at": "no_such_step"}, {"does": "fail", "at": "boot"})
    problems = bench.kind.check_blueprint(bench.blueprint())
    assert [(problem.field, problem.fatal) for problem in problems] == [("faults.0.at", False)]


def test_faults_with_one_name_are_counted_together() -> None:
    bench = FakeBench(
        {"does": "fail", "at": "reserve", "scope": "offer", "name": "one"},
        {"does": "fail", "at": "verify", "scope": "offer", "name": "one"},
    )
    assert [bench.run("build", bench.resource()).ended for _ in range(2)] == ["failed", "ready"]
