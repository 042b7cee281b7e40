"""Conformance: the acts that a kind declares."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pydantic import SecretBytes, SecretStr, ValidationError

from blueprints.answers import Json
from blueprints.contract import Acts, DeclaredAct, Fields, Step, acts_of, offered_acts
from blueprints.specs import ResourceView
from blueprints.testing.outcome import Mishap, Outcome
from blueprints.testing.phases import Phases, expect_ready, needs
from blueprints.testing.rules import json_safe

_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
_STEP = re.compile(r"[a-z][a-z0-9_]{0,31}")


class Acting(Phases):
    """Tests that every declared act is described completely, and has its effect once, whatever crashes."""

    @needs(Acts)
    def test_acts_are_declared_completely(self) -> None:
        assert isinstance(self.kind, Acts)
        declared = self.kind.acts()
        assert len({act.name for act in declared}) == len(declared), "two acts have the same name"
        for act in declared:
            assert isinstance(act, DeclaredAct)
            assert _NAME.fullmatch(act.name), act.name
            assert act.summary[:1].isupper(), f"{act.name}: the summary is not a sentence"
            assert act.summary.endswith("."), f"{act.name}: the summary is not a sentence"
            assert act.by in ("operator", "holder")
            assert act.holders in ("keep", "refuse", "wait")
            assert act.power in ("any", "on", "off")
            names = [step.name for step in act.plan() if isinstance(step, Step)]
            assert names, f"{act.name}: its plan has no steps"
            assert all(_STEP.fullmatch(name) for name in names), names
            assert len(set(names)) == len(names), names
            assert names == [step.name for step in act.plan()], f"{act.name}: its plan changes"

    @needs(Acts)
    def test_arguments_of_acts_have_a_schema_and_no_secrets(self) -> None:
        for act in acts_of(self.kind).values():
            assert issubclass(act.Arguments, Fields), f"{act.name}: Arguments is not a subclass of Fields"
            json_safe(f"schema of {act.name}", act.Arguments.model_json_schema())
            for name, field in act.Arguments.model_fields.items():
                secret = field.annotation in (SecretStr, SecretBytes)
                assert not secret, f"{act.name}.{name} would be recorded in events"
            with pytest.raises(ValidationError, match="no_such_name"):
                act.Arguments.model_validate({"no_such_name": 1})
            read = act.Arguments.model_validate(self.act_arguments(act.name))
            assert act.Arguments.model_validate(json.loads(read.model_dump_json())) == read

    @needs(Acts)
    def test_an_act_that_is_repeated_makes_nothing_more(self) -> None:
        for act in self._offered():
            resource, clean = self._clean(act)
            once = self._seen(act, resource)
            self._acted(act, clean.spec.resource)
            assert self._seen(act, resource) == once, act.name
            self.destroyed(clean.spec.resource)

    @needs(Acts)
    def test_a_process_that_dies_at_any_call_of_an_act_is_followed_by_one_that_finishes(self) -> None:
        for act, mishap, expected in self._mishaps_of_acts("crash"):
            resource = self._prepared(act)
            before = self._act(act, resource, mishap=mishap)
            after = expect_ready(self.driver().run(act.plan(), before.spec, start=before.position))
            assert self._seen(act, resource) == expected, f"{act.name} after {mishap}"
            self.destroyed(after.spec.resource)

    @needs(Acts)
    def test_an_answer_that_is_lost_at_any_call_of_an_act_changes_nothing(self) -> None:
        for act, mishap, expected in self._mishaps_of_acts("lose"):
            resource = self._prepared(act)
            after = self._acted(act, resource, mishap=mishap)
            assert self._seen(act, resource) == expected, f"{act.name} after {mishap}"
            self.destroyed(after.spec.resource)

    @needs(Acts)
    def test_destroy_after_any_part_of_an_act_leaves_nothing(self) -> None:
        before = list(self.outside())
        for act, mishap, _ in self._mishaps_of_acts("stop"):
            self.destroyed(self._act(act, self._prepared(act), mishap=mishap).spec.resource)
            assert list(self.outside()) == before, f"{act.name} after {mishap}"

    def _mishaps_of_acts(self, does: Any) -> Iterator[tuple[DeclaredAct, Mishap, Json]]:
        """Yield each act with a mishap for each of its calls, and what is seen after a run without mishaps."""
        for act in self._offered():
            resource, clean = self._clean(act)
            expected = self._seen(act, resource)
            self.destroyed(clean.spec.resource)
            for mishap in self.mishaps(does, clean):
                yield act, mishap, expected

    def _offered(self) -> Sequence[DeclaredAct]:
        """Return the acts that resources with the config of the bench offer."""
        return list(offered_acts(self.kind, self.blueprint().config).values())

    def _clean(self, act: DeclaredAct) -> tuple[ResourceView, Outcome]:
        resource = self._prepared(act)
        return resource, self._acted(act, resource)

    def _prepared(self, act: DeclaredAct) -> ResourceView:
        """Return a resource with the power that the act needs."""
        resource = self.built()
        if act.power == "off":
            self.ready("power", resource, power="off")
        return resource

    def _seen(self, act: DeclaredAct, resource: ResourceView) -> Json:
        return {"outside": self.names(resource), **self.seen_of_act(resource, act.name)}

    def _acted(self, act: DeclaredAct, resource: ResourceView, *, mishap: Mishap | None = None) -> Outcome:
        return expect_ready(self._act(act, resource, mishap=mishap))

    def _act(self, act: DeclaredAct, resource: ResourceView, *, mishap: Mishap | None = None) -> Outcome:
        return self.driver().run(act.plan(), self.act_spec(act, resource), mishap=mishap)
