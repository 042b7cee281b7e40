"""Placement: priority, exclusive leases, traits, and blueprints that a request allows or excludes."""

from __future__ import annotations

import pytest
from django.db import transaction

from drydock.core.errors import InvalidRequest
from leases.engine.lifecycle import release
from leases.engine.placement import claims, pending
from leases.messaging.inline import settle
from leases.models import Lease
from leases.operations import infos

LONG_AGO = "2020-01-01T00:00Z"


def test_priority_comes_first_and_age_counts(blueprint, ask, until, settings):
    blueprint(max_resources=1)
    holder = until(ask(), state="active")
    low, old, urgent = ask(priority=-1), ask(), ask(priority=5)
    assert [w.id for w in pending.heads("fake")] == [urgent.pk]
    assert [infos.lease(x).place for x in (urgent, old, low)] == [1, 2, 3]
    release.release(holder.pk, actor="ada")
    urgent.refresh_from_db()
    assert urgent.state == "active"
    Lease.objects.filter(pk=low.pk).update(rank=low.rank - 3 * settings.DRYDOCK.ageing_seconds)
    release.release(urgent.pk, actor="ada")
    low.refresh_from_db()
    assert low.state == "active", "having waited three spans of ageing, it comes before one of higher priority"


def test_an_exclusive_lease_takes_the_whole_and_only_an_empty_one(blueprint, ask, until):
    blueprint(config={"capacity": {"slots": 4, "ram_mib": 100, "extra": {"gpu": 2}}}, max_resources=1)
    small = until(ask(extra={"gpu": 1}), state="active")
    whole = ask(exclusive=True)
    assert whole.state == "pending"
    release.release(small.pk, actor="ada")
    whole.refresh_from_db()
    assert whole.state == "active"
    assert (whole.share.slots, whole.share.ram_mib, whole.share.extra) == (4, 100, {"gpu": 2})
    assert whole.resource.capacities.get().used == 2


def test_traits_are_required_forbidden_and_preferred(blueprint, ask, until):
    blueprint("plain", min_ready=2, max_resources=2, order=1)
    blueprint("fast", config={"traits": ["ssd"]}, min_ready=2, max_resources=2, order=2)
    settle()
    assert ask(traits=["ssd"]).resource.blueprint.name == "fast"
    assert ask(forbidden_traits=["ssd"]).resource.blueprint.name == "plain"
    assert ask(preferred_traits=["ssd"]).resource.blueprint.name == "fast"
    assert ask(preferred_traits=["ssd"]).resource.blueprint.name == "plain"


def test_allowed_and_excluded_blueprints(blueprint, ask, until):
    blueprint("a", order=1)
    blueprint("b", order=2)
    assert until(ask(allowed_blueprints=["b"]), state="active").resource.blueprint.name == "b"
    assert until(ask(excluded_blueprints=["a"]), state="active").resource.blueprint.name == "b"
    with pytest.raises(InvalidRequest, match="Blueprint 'c' does not exist"):
        ask(allowed_blueprints=["c"])


def test_sql_and_python_agree_on_what_fits(blueprint, ask, until):
    """The claim's SQL finds exactly the resources that the declaration says fit."""
    blueprint(config={"attributes": {"color": "red", "size": 5, "zone": "n", "labels": ["a", "b"]}}, min_ready=1)
    settle()
    for asked, fit in (
        ({"color": "red"}, True), ({"color": "blue"}, False), ({"size": 5}, True), ({"size": 6}, False),
        ({"zones": ["s", "n"]}, True), ({"zones": []}, False), ({"labels": ["b"]}, True), ({"labels": ["c"]}, False),
        ({"labels": []}, True), ({"color": "red", "size": 1, "zones": ["n"]}, True),
    ):  # fmt: skip
        from leases.engine.placement.constraints import PlacementRequest

        with transaction.atomic():
            assert bool(claims.look(PlacementRequest(type="fake", requirements=asked))) is fit, asked
