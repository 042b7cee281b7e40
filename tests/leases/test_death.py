"""A worker is killed with SIGKILL at every commit and around every call of a provider, one after the other; another
process finishes the work each time, and nothing is built twice or left behind."""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections

from blueprints.fake.cloud import Cloud
from blueprints.models import Blueprint
from drydock.core import clock
from leases.engine.core import database
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.engine.scheduling import request
from leases.engine.upkeep import pruning
from leases.messaging import hints
from leases.messaging.inline import settle
from leases.models import Debt, Event, Lease, Resource, Run, Share
from leases.reasons import Reason
from leases.validation.requests import read

PARTS = 8
"""The points are dealt out over so many tests, which run in parallel."""


def whole_life(owner: int) -> None:
    """Ask, build, activate, release, clean, give up, destroy: as a client and a worker do it, in one process."""
    with hints.collected():
        asked = read({"type": "fake_activated", "idempotency_key": "once"})
        lease_id = request.request(asked, owner, actor="ada").id
        _settle_while(lambda: Lease.objects.filter(pk=lease_id, state__in=["pending", "acquired"]).exists())
        release.release(lease_id, actor="ada")
        _settle_while(lambda: Lease.objects.filter(pk=lease_id).exclude(state__in=["destroyed", "broken"]).exists())
        _settle_while(Debt.objects.exists)
        for resource in Resource.objects.filter(state="active"):
            retirement.retire_idle(resource.pk, reason=Reason.OPERATOR, message="enough")
        _settle_while(lambda: Resource.objects.filter(gone_at=None).exists())


def _settle_while(going: Any) -> None:
    end = clock.monotonic() + 30
    while going():
        settle()
        assert clock.monotonic() < end, list(Run.objects.values())
        clock.sleep(0.01)


def in_child(work: Any) -> int:
    """Carry out `work` in a forked process that knows no more than one that was started anew; how it ended."""
    connections.close_all()
    child = os.fork()
    if child == 0:
        try:
            _begin_anew()
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _begin_anew() -> None:
    """A process that has pruned rests for a minute, and this one prunes when it finishes what a killed one began: the
    next would pass fewer points, or other ones, than were counted."""
    for rest in [one for one in vars(pruning).values() if isinstance(one, pruning.Rest)]:
        rest.until = 0.0
    for walk in pruning.WALKS:
        walk.rest.until, walk.place = 0.0, 0


@pytest.fixture
def stage(blueprint, owner, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_token_seconds": 0.15})
    blueprint(kind="fake_activated", config={"provider": "t", "boot_polls": 1, "destroy_polls": 1, "poll_seconds": 0})
    return owner


def reset() -> None:
    """Everything as at the beginning, without a new database."""
    Run.objects.all().delete()
    Debt.objects.all().delete()
    Share.objects.all().delete()
    Event.objects.all().delete()
    Lease.objects.all().delete()
    Resource.objects.all().delete()
    Cloud("t").forget()


def points(owner: User, tmp_path: Any) -> list[str]:
    """The failpoints that one whole life passes, in order."""
    log = tmp_path.with_suffix(".points")

    def live() -> None:
        with log.open("a", buffering=1) as file:
            database.hook(lambda name: print(name, file=file) and None)
            whole_life(owner.pk)

    assert in_child(live) == 0
    reset()
    return log.read_text().split()


def kill_at(number: int, point: str) -> Any:
    """A hook that kills the process at that point of its life; another point in its place fails it."""
    seen = [0]

    def strike(name: str) -> None:
        seen[0] += 1
        if seen[0] == number:
            assert name == point
            os.kill(os.getpid(), signal.SIGKILL)

    return strike


@pytest.mark.timeout(600)
def test_all_lives_pass_the_same_points(stage, tmp_path):
    """Also where this process has lived before: else a point might never be struck, or another in its place."""
    first = points(stage, tmp_path / "first")
    whole_life(stage.pk)
    reset()
    assert points(stage, tmp_path / "second") == first


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_a_worker_may_die_anywhere(stage, tmp_path, part):
    die_and_go_on(stage, tmp_path, part)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", [0, 3, 6])
def test_a_worker_may_die_anywhere_while_it_cleans_apart(stage, tmp_path, part):
    more = {"provider": "t", "poll_seconds": 0, "clean_apart": True, "clean_polls": 1}
    Blueprint.objects.update(config=more)
    die_and_go_on(stage, tmp_path, part)


def die_and_go_on(stage: User, tmp_path: Any, part: int) -> None:
    """Kill the process at every eighth point of a whole life, and let another one finish each of them."""
    passed = points(stage, tmp_path)
    assert set(database.NAMES) == set(passed), "every kind of failpoint is passed"
    killed = Counter[str]()
    for number in range(part + 1, len(passed) + 1, PARTS):

        def live(number: int = number) -> None:
            database.hook(kill_at(number, passed[number - 1]))
            whole_life(stage.pk)

        assert in_child(live) == -signal.SIGKILL, f"it passed point {number} of {len(passed)}"
        killed[passed[number - 1]] += 1
        whole_life(stage.pk)
        check(f"killed at {number} ({passed[number - 1]})")
        reset()
    assert killed


def check(when: str) -> None:
    """One lease, served and ended; one thing built, once; nothing left."""
    assert set(Lease.objects.values_list("state", flat=True)) == {"destroyed"}, when
    assert not Share.objects.exists(), when
    assert not Run.objects.exists(), when
    assert not Debt.objects.exists(), when
    assert set(Resource.objects.values_list("state", flat=True)) == {"destroyed"}, when
    cloud = Cloud("t")
    assert cloud.is_empty(), when
    assert all(cloud.count("create", key) == 1 for key in {call.key for call in cloud.calls("create")}), when
    for lease in Lease.objects.all():
        told = [e.to_state for e in Event.objects.filter(lease=lease).exclude(to_state="").order_by("id")]
        assert told[0] == "pending", when
        assert told[-2:] == ["released", "destroyed"], when
