"""A worker is killed while it builds a DPU for a group on a card of the group's host; another process goes on."""

from __future__ import annotations

import os
import signal

import pytest

from blueprints.fake.cloud import Cloud
from chaos.proof import tree_violations
from drydock.core import clock
from leases.engine.core import database, workers
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.engine.scheduling import request
from leases.messaging import hints
from leases.messaging.inline import settle
from leases.models import Debt, Event, Lease, LeaseGroup, Resource, Run, Share
from leases.operations import callers, resources
from leases.reasons import Reason
from leases.validation.requests import read
from tests.leases.test_death import in_child

PARTS = 64
"""The points are dealt out over so many tests."""
ASKED = ({"type": "fake", "exclusive": True}, {"type": "fake_reported"})


@pytest.fixture
def stage(blueprint, owner, django_user_model, settings, until):
    """A host with one card, and a blueprint whose builds vacate and power-cycle the host of their card."""
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_token_seconds": 0.5})
    workers.seen("elsewhere:1")
    root = callers.caller(django_user_model.objects.create_superuser("root"))
    blueprint("hosts", config={"provider": "hosts", "poll_seconds": 0}, max_resources=0)
    host = until(Resource.objects.get(pk=resources.register(root, "hosts", {"name": "lab"}).id), state="active")
    cards = blueprint("cards", kind="fake_activated", config={"provider": "cards", "poll_seconds": 0}, max_resources=0)
    Resource.objects.create(
        blueprint=cards, type="fake_activated", name="card", state="active", part_of=host, origin="discovered"
    )
    wanted = (("vacate", "build.create"), ("power_cycle", "build.verify"))
    faults = [
        {"does": "need_maintenance", "at": at, "relation": "card.host", "action": action} for action, at in wanted
    ]
    carrier = {"name": "card", "type": "fake_activated"}
    config = {"provider": "dpus", "carrier": carrier, "poll_seconds": 0, "boot_polls": 1, "faults": faults}
    blueprint("dpus", kind="fake_reported", config=config)
    return owner


def _settle_while(going):
    end = clock.monotonic() + 120
    while going():
        settle()
        assert clock.monotonic() < end, list(Run.objects.values())
        clock.sleep(0.01)


def life(owner):
    """Ask for a host and a DPU, have it built, get both, release them, and remove the DPU, in one process."""
    with hints.collected():
        _, ids = request.request_group(
            [read(one) for one in ASKED], owner, actor="ada", same="whole", idempotency_key="once"
        )
        found = Lease.objects.filter(pk__in=ids)
        _settle_while(lambda: found.filter(state__in=["pending", "acquired"]).exists())
        for pk in ids:
            release.release(pk, actor="ada")
        _settle_while(lambda: found.exclude(state__in=["destroyed", "broken"]).exists())
        built = Resource.objects.filter(origin="built", gone_at=None)
        for resource in built.filter(state="active"):
            retirement.retire_idle(resource.pk, reason=Reason.OPERATOR, message="enough")
        _settle_while(lambda: built.exists() or Run.objects.exists() or Share.objects.exists())


def check(when):
    """Both leases were served and ended, the DPU was built once, and the host and its card are free."""
    assert set(Lease.objects.filter(need="").values_list("state", flat=True)) == {"destroyed"}, when
    assert Event.objects.filter(to_state="active", lease__need="").count() == 2, when
    assert Resource.objects.filter(origin="built").count() == 1, when
    cloud = Cloud("dpus")
    assert cloud.is_empty(), when
    assert all(cloud.count("create", key) == 1 for key in {call.key for call in cloud.calls("create")}), when
    there = Resource.objects.exclude(origin="built")
    kept = there.filter(in_maintenance=True) | there.exclude(reserved_for=None) | there.exclude(closed_by=[])
    assert not (kept | there.exclude(used_slots=0)).exists(), when
    assert tree_violations() == [], when


def reset():
    for model in (Run, Debt, Share, Event):
        model.objects.all().delete()
    Lease.objects.exclude(need="").delete()
    for model in (Lease, LeaseGroup):
        model.objects.all().delete()
    Resource.objects.filter(origin="built").delete()
    Cloud("dpus").forget()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_a_worker_may_die_anywhere_while_it_builds_for_a_group(stage, tmp_path, part):
    log = tmp_path.with_suffix(".points")

    def counted():
        with log.open("a", buffering=1) as file:
            database.hook(lambda name: print(name, file=file) and None)
            life(stage.pk)

    assert in_child(counted) == 0
    check("not killed")
    reset()
    passed = log.read_text().split()
    for number in range(part + 1, len(passed) + 1, PARTS):

        def killed(number=number):
            seen = [0]

            def strike(name):
                seen[0] += 1
                if seen[0] == number:
                    os.kill(os.getpid(), signal.SIGKILL)

            database.hook(strike)
            life(stage.pk)

        assert in_child(killed) == -signal.SIGKILL, f"it passed point {number} of {len(passed)}"
        life(stage.pk)
        check(f"killed at {number} ({passed[number - 1]})")
        reset()
