"""Conformance: what a kind declares about itself."""

from __future__ import annotations

import json
import re

import pytest
from pydantic import ValidationError

from blueprints.contract import CAPABILITIES, Carried, Fields, Kind, Registers, Step, capabilities
from blueprints.testing.phases import Phases
from blueprints.testing.rules import frozen, json_safe

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_PHASES = (
    "build", "activate", "deactivate", "clean", "check", "power", "reboot", "resize", "retype", "tag", "update",
    "destroy",
)  # fmt: skip


class Declared(Phases):
    """Tests of the names, models, matches, capabilities and plans that a kind declares."""

    def test_the_kind_and_its_type_have_sane_names(self) -> None:
        assert isinstance(self.kind, Kind)
        assert _NAME.fullmatch(self.kind.name)
        assert _NAME.fullmatch(self.kind.resource_type)

    def test_its_models_are_fields_with_a_schema(self) -> None:
        for model in self._models():
            assert issubclass(model, Fields), f"{model.__name__} is not a subclass of Fields"
            json_safe(f"schema of {model.__name__}", model.model_json_schema())

    def test_its_models_refuse_unknown_names_clearly(self) -> None:
        for model in self._models():
            with pytest.raises(ValidationError, match="no_such_name"):
                model.model_validate({"no_such_name": 1})

    def test_the_config_of_the_bench_is_valid_and_goes_through_json(self) -> None:
        config = self.kind.Config.model_validate(self.config())
        assert self.kind.Config.model_validate(json.loads(config.model_dump_json())) == config

    def test_every_requirement_may_be_left_out(self) -> None:
        assert self.kind.Requirements() is not None

    def test_matches_name_declared_attributes_and_requirements(self) -> None:
        for match in self.kind.matches:
            assert match.attribute in self.kind.Attributes.model_fields
            assert match.requirement in self.kind.Requirements.model_fields
            frozen(match)

    def test_fields_that_are_fixed_are_those_of_a_registration(self) -> None:
        if isinstance(self.kind, Registers):
            assert self.kind.fixed <= self.kind.Registration.model_fields.keys()

    def test_capabilities_come_from_the_classes_alone(self) -> None:
        assert not hasattr(self.kind, "capabilities"), (
            "a kind must not declare capabilities, which follow from its classes"
        )
        assert capabilities(self.kind) <= {one.name for one in CAPABILITIES}

    def test_no_method_of_a_capability_without_its_class(self) -> None:
        for method in {name for one in CAPABILITIES for name in _methods(one.base)}:
            bases = tuple(one.base for one in CAPABILITIES if method in _methods(one.base))
            has_it = getattr(self.kind, method, None) is not None
            assert has_it == isinstance(self.kind, bases), f"{method} belongs to {bases}"

    def test_a_carrier_is_leased_alone_and_for_life_and_is_among_the_needed_types(self) -> None:
        config = self.kind.Config.model_validate(self.config())
        carrier = self.kind.carrier(config, None) if isinstance(self.kind, Carried) else None
        if carrier is not None:
            assert (carrier.exclusive, carrier.lifetime) == (True, "life")
            assert carrier.type in self.kind.needed_types(config)

    def test_what_it_lacks_is_what_its_class_could(self) -> None:
        lacking = self.kind.lacking(self.kind.Config.model_validate(self.config()))
        assert lacking <= {one.base for one in CAPABILITIES if isinstance(self.kind, one.base)}

    def test_steps_have_sane_names_that_are_unique_in_their_plan(self) -> None:
        for phase in _PHASES:
            if not hasattr(self.kind, phase):
                continue
            plan = self.plan(phase)
            assert isinstance(plan, tuple)
            assert plan, f"the plan of {phase} is empty"
            assert all(isinstance(step, Step) for step in plan)
            names = [step.name for step in plan]
            assert all(_NAME.fullmatch(name) for name in names), names
            assert len(set(names)) == len(names)
            assert all(step.deadline > 0 for step in plan)

    def test_a_plan_is_the_same_whenever_it_is_asked_for(self) -> None:
        for phase in _PHASES:
            if hasattr(self.kind, phase):
                assert [_shape(s) for s in self.plan(phase)] == [_shape(s) for s in self.plan(phase)]

    def test_looking_at_a_blueprint_makes_nothing(self) -> None:
        before = list(self.outside())
        problems = self.kind.check_blueprint(self.blueprint())
        assert not [problem for problem in problems if problem.fatal]
        assert list(self.outside()) == before

    def _models(self) -> list[type[Fields]]:
        names = ("Config", "Requirements", "Attributes", "Registration")
        return [model for name in names if (model := getattr(self.kind, name, None))]


def _methods(base: type) -> frozenset[str]:
    return frozenset(getattr(base, "__abstractmethods__", ()))


def _shape(step: Step) -> tuple[str, bool, bool, float]:
    return step.name, step.find is None, step.interruptible, step.deadline
