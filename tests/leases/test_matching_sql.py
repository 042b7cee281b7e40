"""The SQL of a declaration says what the declaration says, for any JSON."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, example, given, settings

from blueprints.matching import Match, misses
from leases.engine.core.database import rows
from leases.engine.placement.constraints import Sql, matches
from tests.blueprints.strategies import Case, cases, likely_cases


def fits(case: Case) -> bool:
    declared, attributes, asked = case
    found = Sql("TRUE")
    for match in declared:
        if asked.get(match.requirement) is not None:
            found &= matches(match, asked[match.requirement])
    sql = f"SELECT coalesce({found.text}, FALSE) FROM (SELECT %s::jsonb AS attributes) r"
    return bool(rows(sql, (*found.params, json.dumps(attributes)))[0][0])


def case(operator: Any, has: Any, asked: Any) -> Case:
    return (Match("alpha", operator, "want_alpha"),), {"alpha": has}, {"want_alpha": asked}


_settings = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_settings
@given(cases())
@example(case("in", None, [None]))
@example(case("contains", [[1, 2]], [1]))
@example(case("contains_all", {}, []))
@example(case("=", [1], 1))
@example(case(">=", "7", 5))
def test_any_json(given_case: Case) -> None:
    assert fits(given_case) is not bool(misses(*given_case))


@_settings
@given(likely_cases())
def test_json_that_often_fits(given_case: Case) -> None:
    assert fits(given_case) is not bool(misses(*given_case))


def test_every_number_that_a_kind_compares_has_an_index_and_statistics(db: None) -> None:
    names = {name for (name,) in rows("SELECT indexname FROM pg_indexes WHERE tablename = 'leases_resource'")}
    assert {f"resource_number_{attribute}" for attribute in ("size", "vcpus", "ram_mib", "disk_mib")} <= names
    known = {name for (name,) in rows("SELECT stxname FROM pg_statistic_ext")}
    assert {f"{name}_known" for name in names if name.startswith("resource_number_")} <= known
