"""A state machine over the engine: requests, groups, releases, extensions, ends of time, drains, losses, in any order.

Whatever the order: what is used is the sum of the shares, nobody holds twice, and in the end everything ends.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import F, Sum
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from blueprints.fake.cloud import Cloud
from blueprints.models import Blueprint
from drydock.core import clock
from leases.engine.core import installation
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.engine.scheduling import request
from leases.messaging import hints
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource, Run, Share, SlotLock
from leases.reasons import Reason
from leases.states import HOLDING
from leases.validation.requests import read

FAULTS = [
    {"does": "refuse", "at": "create", "scope": "offer", "times": 1, "skip": 3, "remember": 0.0},
    {"does": "lose", "at": "create", "times": 2, "skip": 1},
    {"does": "fail", "at": "build.verify", "scope": "step", "times": 1, "skip": 2},
    {"does": "fail", "at": "destroy.delete", "scope": "step", "times": 2},
]
LONG_AGO = "2020-01-01T00:00Z"


class Engine(RuleBasedStateMachine):
    """The engine as its users and operators see it."""

    leases = Bundle("leases")

    @initialize(slots=st.integers(1, 4), maximum=st.integers(1, 3))
    def pools(self, slots: int, maximum: int) -> None:
        clear()
        self.sent = hints.collected()
        self.sent.__enter__()
        self.owner = User.objects.get_or_create(username="ada")[0]
        plain = {
            "provider": "m",
            "capacity": {"slots": slots},
            "offers": [{"offer": "a"}, {"offer": "b"}],
            "faults": FAULTS,
        }
        Blueprint.objects.create(
            name="plain", kind="fake", resource_type="fake", audience="everyone", config=plain, max_resources=maximum
        )
        Blueprint.objects.create(
            name="deep", kind="fake_activated", resource_type="fake_activated", audience="everyone", max_resources=2,
            config={"provider": "m", "capacity": {"slots": 2}},
        )  # fmt: skip

    @rule(
        target=leases,
        kind=st.sampled_from(["fake", "fake", "fake_activated"]),
        slots=st.integers(1, 2),
        exclusive=st.booleans(),
        priority=st.integers(-2, 2),
        again=st.booleans(),
    )
    def request(self, kind: str, slots: int, exclusive: bool, priority: int, again: bool) -> int:
        given = {"type": kind, "slots": slots, "exclusive": exclusive, "priority": priority, "serve_again": again}
        return request.request(read(given), self.owner.pk, actor="ada").id

    @rule(target=leases, count=st.integers(2, 3), different=st.sampled_from(["", "resource"]))
    def group(self, count: int, different: str) -> int:
        _, ids = request.request_group(
            [read({"type": "fake"})] * count, self.owner.pk, actor="ada", different=different
        )
        return ids[0]

    @rule(lease=consumes(leases))
    def release(self, lease: int) -> None:
        release.release(lease, actor="ada")

    @rule(lease=leases)
    def time_is_over(self, lease: int) -> None:
        Lease.objects.filter(pk=lease).update(until=LONG_AGO)

    @rule(lease=leases, held=st.booleans())
    def hold(self, lease: int, held: bool) -> None:
        Lease.objects.filter(pk=lease).update(held=held)

    @rule(drained=st.booleans(), number=st.integers(0, 3))
    def drain(self, drained: bool, number: int) -> None:
        for resource in Resource.objects.filter(state="active").order_by("pk")[number : number + 1]:
            Resource.objects.filter(pk=resource.pk).update(drained=drained)

    @rule(number=st.integers(0, 3))
    def lose(self, number: int) -> None:
        for resource in Resource.objects.filter(state__in=["pending", "active"]).order_by("pk")[number : number + 1]:
            retirement.lose(resource.pk, reason=Reason.LOST, message="it burns")

    @rule()
    def idle_too_long(self) -> None:
        for resource in Resource.objects.filter(state="active", used_slots=0)[:1]:
            retirement.retire_idle(resource.pk, reason=Reason.IDLE, message="idle")

    @rule()
    def work(self) -> None:
        Run.objects.exclude(due_at=None).update(due_at=LONG_AGO)
        settle()

    @invariant()
    def capacity_is_conserved(self) -> None:
        sums = {row["resource"]: row["n"] for row in Share.objects.values("resource").annotate(n=Sum("slots"))}
        for resource in Resource.objects.all():
            assert resource.used_slots == sums.get(resource.pk, 0) <= resource.total_slots, resource

    @invariant()
    def who_holds_has_one_share_and_who_does_not_has_none(self) -> None:
        assert set(Share.objects.values_list("lease", flat=True)) == set(
            Lease.objects.filter(state__in=HOLDING).values_list("pk", flat=True)
        )
        assert not Share.objects.exclude(lease__resource=F("resource")).exists()

    @invariant()
    def a_group_has_all_or_nothing(self) -> None:
        for group in Lease.objects.exclude(group=None).values_list("group", flat=True).distinct():
            members = list(Lease.objects.filter(group=group))
            never_had = [m for m in members if m.acquired_at is None and m.bounces == 0 and m.state == "pending"]
            assert (
                len(never_had) in (0, len(members))
                or any(m.release_wanted or m.bounces for m in members)
                or any(m.state in ("released", "destroyed", "broken") for m in members)
            )

    def teardown(self) -> None:
        if not hasattr(self, "sent"):
            return
        Lease.objects.update(held=False)
        end = clock.monotonic() + 60
        while unfinished := Lease.objects.exclude(state__in=["destroyed", "broken"]) or Resource.objects.filter(
            gone_at=None
        ):
            for lease in Lease.objects.filter(state__in=["pending", "acquired", "active"]):
                release.release(lease.pk, actor="ada")
            for resource in Resource.objects.filter(state="active"):
                retirement.retire_idle(resource.pk, reason=Reason.OPERATOR, message="enough")
            self.work()
            assert clock.monotonic() < end, list(unfinished.values()) + list(Run.objects.values())
        self.sent.__exit__(None, None, None)
        assert (Share.objects.count(), Run.objects.count(), SlotLock.objects.count()) == (0, 0, 0)
        assert Cloud("m").is_empty(), [one.key for one in Cloud("m").instances()]
        for lease in Lease.objects.all():
            told = Event.objects.filter(lease=lease).exclude(to_state="").order_by("id")
            pairs = [(e.from_state, e.to_state) for e in told]
            assert all(a[1] == b[0] for a, b in pairwise(pairs)), pairs
            assert pairs[-1][1] == lease.state


def clear() -> None:
    """An empty database and provider for the next example."""
    for model in (Run, SlotLock, Share, Event):
        model.objects.all().delete()
    Lease.objects.update(replaced_by=None, root=None, for_lease=None)
    Resource.objects.update(reserved_for=None)
    Lease.objects.all().delete()
    Resource.objects.all().delete()
    Blueprint.objects.all().delete()
    Cloud("m").forget()


@pytest.mark.parametrize("examples", [8, pytest.param(25, marks=pytest.mark.slow)])
def test_the_engine_in_any_order(settings: Any, examples: int) -> None:
    installation.forget()
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"head_reservation_seconds": 0.0})
    run_state_machine_as_test(Engine, settings=hypothesis_settings(examples))


def hypothesis_settings(examples: int) -> settings:
    """As many runs of 25 steps each."""
    return settings(max_examples=examples, stateful_step_count=25, suppress_health_check=list(HealthCheck))
