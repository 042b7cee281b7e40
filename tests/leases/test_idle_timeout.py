"""Idle cloud machines do not cost for ever unless an operator says so."""

from __future__ import annotations

import datetime as dt

import pytest
from django.contrib.auth.models import User

from blueprints import registry
from drydock_client.values import BlueprintChange
from leases.operations import blueprints
from leases.operations.callers import caller

QUARTER = dt.timedelta(minutes=15)


@pytest.fixture
def chief():
    return caller(User.objects.create_superuser("chief"))


def _add(chief, kind, **change):
    config = {} if kind == "fake" else {"credential": "c"}
    return blueprints.add(chief, "b", kind, config, change=BlueprintChange(**change), enabled=False)


@pytest.mark.parametrize("kind", ["ec2", "gce", "azure"])
def test_a_new_blueprint_of_a_cloud_gives_up_idle_machines_after_a_quarter_of_an_hour(chief, kind):
    assert registry.kind(kind).idle_timeout == QUARTER
    assert _add(chief, kind).idle_timeout == QUARTER
    assert not [one for one in blueprints.check(chief, "b").problems if one["field"] == "idle_timeout"]


@pytest.mark.parametrize(
    ("change", "found"), [({"idle_timeout": "2h"}, dt.timedelta(hours=2)), ({"clear": ["idle_timeout"]}, None)]
)
def test_what_an_operator_says_counts(chief, change, found):
    assert _add(chief, "ec2", **change).idle_timeout == found


def test_a_check_remarks_that_nothing_ends_idle_machines(chief):
    _add(chief, "ec2", clear=["idle_timeout"])
    (remark,) = [one for one in blueprints.check(chief, "b").problems if one["field"] == "idle_timeout"]
    assert not remark["fatal"]
    assert "drydock blueprints change b --idle-timeout 15m" in remark["message"]


def test_what_costs_nothing_while_idle_is_kept(chief):
    assert _add(chief, "fake").idle_timeout is None
    assert not blueprints.check(chief, "b").problems
