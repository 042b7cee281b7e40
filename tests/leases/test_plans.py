"""Plans whose steps depend on the config, and answers of a lease's steps about its resource."""

from __future__ import annotations

from typing import Any

from blueprints.answers import Answer, Json, Ready
from blueprints.contract import Step
from blueprints.fake.kind import FakeActivated
from blueprints.specs import Spec
from leases.engine.lifecycle import step_results
from leases.models import Event
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, soon, until

__all__ = ["_database", "_quick", "ask", "blueprint", "owner", "soon", "until"]


def never(spec: Spec, memo: Json) -> Answer:
    raise AssertionError("a step that does not apply was called")


def kept(spec: Spec, memo: Json) -> Answer:
    return Ready(facts={"mine": 1}, resource_facts={"known": 2}, resource_secrets={"word": "a-secret-word"})


def test_steps_that_do_not_apply_are_skipped_and_facts_go_where_they_belong(monkeypatch, blueprint, ask, until):
    activate = FakeActivated.activate

    def plan(self: Any) -> Any:
        first = (
            Step(name="never", act=never, applies=lambda config: False), Step(name="kept", act=kept),
            Step(name="not_either", act=never, applies=lambda config: False),
        )  # fmt: skip
        rest = [Step(name=f"real_{step.name}", act=step.act, find=step.find) for step in activate(self)]
        return (*first, *rest, Step(name="last", act=never, applies=lambda config: False))

    skipped, skipping = [], step_results.skipping
    monkeypatch.setattr(step_results, "skipping", lambda count: skipped.append(count) or skipping(count))
    monkeypatch.setattr(FakeActivated, "activate", plan)
    blueprint(kind=FakeActivated.name, resource_type=FakeActivated.resource_type)
    lease = until(ask(FakeActivated.resource_type), state="active")
    resource = lease.resource
    assert (lease.facts["mine"], "known" in lease.facts) == (1, False)
    assert (resource.facts["known"], "mine" in resource.facts) == (2, False)
    assert resource.secrets["word"] == "a-secret-word"
    events = Event.objects.filter(kind="step.done", lease=lease)
    done = [one["step"] for one in events.values_list("details", flat=True)]
    assert "kept" in done
    assert not {"never", "not_either", "last"} & set(done)
    assert skipped == [1], "only at the beginning; further steps are skipped with the step before them"
