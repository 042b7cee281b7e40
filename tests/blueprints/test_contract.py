"""The contract's own pieces: frozen values, capabilities off the classes, models without unknown names."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from blueprints.amounts import Amounts
from blueprints.answers import (
    Absent,
    Failed,
    Hold,
    Maintenance,
    Need,
    NeededLease,
    Ready,
    Scope,
    Unknown,
    Wait,
)
from blueprints.contract import Builds, Checks, Fields, Kind, Plan, Step, capabilities
from blueprints.fake.kind import Fake, FakeActivated
from blueprints.matching import Match
from blueprints.registry import BUILT_IN, KindNotFound, kind
from blueprints.specs import Draft, LeaseView, Part, Problem
from blueprints.testing.rules import frozen
from tests.blueprints.fake_bench import FakeBench

_NEEDED = NeededLease(name="host", type="host")
_MAINTENANCE = Maintenance(relation="host", action="alone")
_VALUES = [
    Ready(facts={"a": 1}),
    Wait(after=1),
    Failed(scope=Scope.STEP, message="no"),
    Unknown(message="lost"),
    Hold(who="you", what="this"),
    Need(leases=(_NEEDED,), maintenance=_MAINTENANCE),
    _NEEDED,
    _MAINTENANCE,
    Draft(),
    Part(part_class="gpu", identity="GPU-1"),
    Problem(message="no"),
    Match("size", ">=", "size"),
    Amounts(),
    Step(name="step", act=lambda spec, memo: Ready()),
]


@pytest.mark.parametrize("value", _VALUES, ids=lambda value: type(value).__name__)
def test_values_are_frozen(value: Any) -> None:
    frozen(value)


def test_absent_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Absent().anything = 1  # type: ignore[attr-defined]


def test_views_and_specs_are_frozen_and_show_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRYDOCK_FAKE_CLOUD", str(tmp_path))
    bench = FakeBench(secrets=True)
    resource = bench.built()
    password = resource.secrets["password"]
    lease = bench.lease(resource)
    spec = bench.spec("check", resource, lease)
    for value in (resource, resource.blueprint, lease, lease.asked, spec):
        frozen(value)
        assert password not in repr(value)


def test_a_lease_view_opens_its_kinds_interfaces_only_through_the_engine() -> None:
    bench = FakeBench()
    resource = bench.resource()
    closed = LeaseView(id=1, key="l", owner="o", asked=bench.asked(), resource=resource)
    with pytest.raises(RuntimeError, match="opener"):
        closed.interface("command")


def test_fields_refuse_unknown_names_and_changes() -> None:
    class Sized(Fields):
        size: int = 1

    with pytest.raises(ValidationError, match="sise"):
        Sized.model_validate({"sise": 2})
    with pytest.raises(ValidationError, match="frozen"):
        Sized().size = 2


class _Least(Kind):
    name: ClassVar[str] = "least"
    resource_type: ClassVar[str] = "least"

    def destroy(self) -> Plan:
        return ()


class _Built(_Least, Builds, Checks):
    def drafts(self, config: Any, asked: Any) -> list[Draft]:
        return []

    def build(self) -> Plan:
        return ()

    def check(self) -> Plan:
        return ()


def test_capabilities_are_read_off_the_classes() -> None:
    assert capabilities(_Least()) == frozenset()
    assert capabilities(_Built()) == {"builds", "checks"}
    fake = {
        "builds", "carried", "registers", "discovers", "checks", "powers", "updates", "lists", "reboots", "resizes",
        "tags", "consoles", "acts",
    }  # fmt: skip
    assert capabilities(Fake()) == fake
    assert capabilities(FakeActivated()) == fake | {"activates", "cleans", "controls"}


def test_a_capability_half_written_is_no_kind() -> None:
    class Half(_Least, Builds):
        def build(self) -> Plan:
            return ()

    with pytest.raises(TypeError, match="drafts"):
        Half()  # type: ignore[abstract]


def test_every_built_in_kind_loads_once_under_its_name() -> None:
    for name in BUILT_IN:
        assert kind(name).name == name
        assert kind(name) is kind(name)


def test_an_unknown_kind_is_refused_with_those_there_are() -> None:
    with pytest.raises(KindNotFound, match="fake"):
        kind("no_such_kind")
