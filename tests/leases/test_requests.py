"""What one may ask for: every mistake is told, under the name by which the caller wrote it."""

from __future__ import annotations

import pytest

from drydock.core.errors import Busy, DrydockError, InvalidRequest
from leases.validation import requests


def mistakes(**given):
    with pytest.raises(InvalidRequest) as raised:
        requests.read({"type": "fake", **given})
    return {problem.field: problem.message for problem in raised.value.problems}


def test_all_mistakes_are_told_at_once():
    found = mistakes(ram="much", vcpus="some", ttl="soon", priority=1000, foo=1, until="2020-01-01T00:00Z")
    assert set(found) == {"ram", "vcpus", "ttl", "priority", "foo", "until"}
    assert "past" in found["until"]
    assert "4GiB" in found["ram"]


def test_the_first_is_the_error_s_own_and_all_are_in_its_text():
    with pytest.raises(InvalidRequest) as raised:
        requests.read({"type": "fake", "slots": 0, "priority": "first"})
    error = raised.value
    assert (error.field, error.message) == (error.problems[0].field, error.problems[0].message)
    assert "slots: " in str(error)
    assert "priority: " in str(error)


@pytest.mark.parametrize("requirements", [5, "text", ["list"], {"vcpus": "x"}, {"vcpus": None, "nonsense": 1}])
def test_requirements_that_are_none(requirements):
    assert all(field.split(".")[0] in ("requirements", "vcpus") for field in mistakes(requirements=requirements))


def test_a_mistake_in_a_requirement_has_its_path():
    with pytest.raises(InvalidRequest) as raised:
        requests.read({"type": "host", "requirements": {"arch": 3, "nonsense": 1}})
    assert {p.field for p in raised.value.problems} == {"requirements.arch", "requirements.nonsense"}


def test_one_mistake_without_pydantic_is_one_problem():
    error = InvalidRequest("No.", field="name", hint="Yes.")
    assert [(p.field, p.message) for p in error.problems] == [("name", "No.")]
    assert str(error) == "name: No. Yes."


def test_busy_is_an_error_for_people():
    error = Busy()
    assert isinstance(error, DrydockError)
    assert error.code == "busy"
    assert "again" in error.message
