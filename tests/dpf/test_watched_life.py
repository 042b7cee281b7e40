"""The life of a DPU whose steps are called because watches report changes; without that, they wait for minutes."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator

import pytest

from drydock.core import clock
from leases.engine.lifecycle import release, watches
from leases.engine.lifecycle.watches import Key
from leases.engine.resources import retirement
from leases.messaging.inline import settle
from leases.messaging.watcher import WatchThread
from leases.models import Lease, ProviderWatch, Resource, Run
from leases.reasons import Reason
from tests.dpus.api import SET
from tests.leases.conftest import _database as _database
from tests.leases.conftest import ask as ask
from tests.leases.conftest import owner as owner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
LATER = "2100-01-01T00:00Z"
WATCHED = ("BFB", "DPU", "DPUSet", "DPUNode", "DPUNodeMaintenance")
"""The types that change in this test. The watches of others are stored as if they worked."""


@pytest.fixture
def watch(dpf: object) -> Iterator[Callable[[], None]]:
    """Begin to watch what changes in this test, and wait until everything has been listed."""
    begun: list[WatchThread] = []

    def begin() -> None:
        wanted = watches.wanted()
        watches.arrange(wanted)
        stand_in = {"bookmark": "-", "listed_at": clock.now(), "token_until": LATER}
        for key in wanted:
            if key.place.partition("/")[2] in WATCHED:
                begun.append(WatchThread(key, _token(key)))
            else:
                ProviderWatch.objects.filter(kind=key.kind, place=key.place).update(token=uuid.uuid4(), **stand_in)
        _reached(lambda: not ProviderWatch.objects.filter(listed_at=None).exists())

    yield begin
    for one in begun:
        one.stop()
    for one in begun:
        one.join(20)
        assert not one.is_alive()


def _token(key: Key) -> uuid.UUID:
    token = watches.take(key, "here")
    assert token is not None
    ProviderWatch.objects.filter(token=token).update(token_until=LATER)
    return token


def _reached(what: Callable[[], bool]) -> None:
    end = clock.monotonic() + 60
    while not what():
        assert clock.monotonic() < end, list(ProviderWatch.objects.values())
        clock.sleep(0.05)


def test_each_step_of_an_installation_and_a_removal_is_due_when_its_objects_change(lab, ask, watch):
    site = lab()
    host = site.host("h1", "MT2400X00001")
    site.discover()
    watch()
    lease, seldom = ask("dpu"), set[str]()

    def turn() -> None:
        settle()
        far = clock.now() + dt.timedelta(minutes=2)
        seldom.update(Run.objects.filter(due_at__gt=far).values_list("step", flat=True))
        site.reboot()
        site.double.tick()
        clock.sleep(0.1)

    def said() -> list[object]:
        resources = Resource.objects.values("name", "blueprint__name", "state", "message")
        runs = Run.objects.values("resource__name", "phase", "step", "sentence", "due_at", "tries")
        return [*Lease.objects.values("type", "state", "message"), *resources, *runs, *ProviderWatch.objects.values()]

    def until(row, **columns):
        end = clock.monotonic() + 240
        while any(getattr(row, name) != value for name, value in columns.items()):
            assert clock.monotonic() < end, said()
            turn()
            row.refresh_from_db()

    until(lease, state="active")
    assert "provision" in seldom
    assert host.reboots == ["drydock"]
    assert not ProviderWatch.objects.exclude(message="").exists()

    dpu = Resource.objects.get(pk=lease.resource_id)
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    seldom.clear()
    assert retirement.retire_idle(dpu.pk, reason=Reason.OPERATOR, message="The test has ended.")
    until(dpu, state="destroyed")
    assert seldom & {"set", "dpu"}
    assert site.user.all(SET) == []
