"""Leases for Python programs."""

from __future__ import annotations

import asyncio
import threading
import warnings

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction

from drydock.core.errors import Conflict, InvalidRequest, NotFound, TimedOut
from interfaces.errors import LeaseEnded
from leases.allocator import Allocator, Lease, LeaseFailed, allocate_many
from leases.engine.core import workers
from leases.engine.core.database import InsideTransaction
from leases.messaging.inline import settle
from leases.messaging.private_worker import NoWorkerWarning
from leases.models import Event, Share
from leases.models import Lease as Row
from leases.signals import lease_changed


@pytest.fixture
def working():
    """Somebody carries out what is due, beside the test."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.02):
            settle()
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    yield
    stop.set()
    thread.join()


def test_a_lease_is_waited_for_used_and_released(blueprint, owner, working):
    blueprint()
    with Allocator("fake", owner=owner, ttl="2h").allocate() as lease:
        assert (lease.state, lease.reason) == ("active", "ready")
        assert lease.interface("command").run(["uname"]).ok
    assert lease.state in ("released", "destroyed")
    with pytest.raises(LeaseEnded):
        lease.interface("command")


def test_an_open_interface_refuses_once_the_lease_is_over(blueprint, owner, working):
    blueprint()
    lease = Allocator("fake", owner="ada").allocate().wait_until_active(10)
    command = lease.interface("command")
    lease.release()
    with pytest.raises(LeaseEnded):
        command.run(["uname"])


def test_waiting_ends_in_time_and_says_what_it_waited_for(blueprint, owner):
    blueprint(max_resources=1, config={"capacity": {"slots": 1}})
    Allocator("fake", owner=owner).allocate()
    settle()
    second = Allocator("fake", owner=owner).allocate()
    settle()
    with pytest.raises(TimedOut, match=r"still pending.*is full \(1 of 1 slot in use\)"):
        second.wait_until_active(0.1)
    assert second.info.place == 1
    assert [v.answer for v in second.verdicts] == ["wait"]


def test_what_cannot_be_had_fails_with_reason_and_verdicts(blueprint, owner, working):
    blueprint(config={"capacity": {"slots": 1}})
    lease = Allocator("fake", owner=owner, slots=3).allocate()
    with pytest.raises(LeaseFailed, match="3 slots requested") as failed:
        lease.wait_until_active(10)
    assert (failed.value.state, failed.value.reason) == ("broken", "refused")
    assert failed.value.verdicts[0].blueprint == "pool"


def test_a_callers_transaction_holds_the_row_alone(blueprint, owner):
    blueprint()
    first = Allocator("fake", owner=owner).allocate()
    settle()
    first.release()
    with transaction.atomic():
        lease = Allocator("fake", owner=owner).allocate()
        assert lease.state == "pending"
        assert not Share.objects.filter(lease=lease.id).exists()
        for forbidden in (lease.wait_until_active, lease.__enter__, lambda: lease.interface("command")):
            with pytest.raises(InsideTransaction):
                forbidden()
    settle()
    assert lease.refresh().state == "active"
    with transaction.atomic():
        lease.release()
        assert lease.refresh().state == "active"
        assert lease.info.ending
    settle()
    assert lease.refresh().over


def test_a_rolled_back_caller_has_asked_for_nothing(blueprint, owner):
    blueprint()
    with transaction.atomic():
        Allocator("fake", owner=owner).allocate()
        transaction.set_rollback(True)
    settle()
    assert not Row.objects.exists()
    assert not Event.objects.filter(lease__isnull=False).exists()


def test_an_interface_opened_before_refuses_inside_a_transaction(blueprint, owner):
    blueprint()
    lease = Allocator("fake", owner=owner).allocate()
    settle()
    command = lease.interface("command")
    with transaction.atomic(), pytest.raises(InsideTransaction):
        command.run(["uname"])


def test_what_is_wrong_with_a_request_is_said_with_its_field(blueprint, owner):
    blueprint()
    for field, fields in {
        "ttl": {"ttl": "soon"},
        "requirements.size": {"requirements": {"size": "big"}},
        "slots": {"slots": 0},
        "owner": {"owner": "nobody"},
        "allowed_blueprints": {"allowed_blueprints": ["other"]},
    }.items():
        with pytest.raises(InvalidRequest) as wrong:
            Allocator("fake", **{"owner": owner, **fields}).allocate()
        assert wrong.value.field == field


def test_the_same_key_gives_the_same_lease(blueprint, owner):
    blueprint()
    first = Allocator("fake", owner=owner, idempotency_key="one").allocate()
    assert Allocator("fake", owner=owner, idempotency_key="one").allocate().id == first.id
    with pytest.raises(Conflict):
        Allocator("fake", owner=owner, slots=1, exclusive=True, idempotency_key="one").allocate()


def test_a_group_is_granted_together_on_different_resources(blueprint, owner, working):
    blueprint(config={"capacity": {"slots": 4}})
    leases = allocate_many([Allocator("fake", owner=owner) for _ in range(3)], different="resource")
    for lease in leases:
        lease.wait_until_active(20)
    assert len({lease.info.resource for lease in leases}) == 3


def test_leases_of_others_are_not_to_be_found(blueprint, owner, django_user_model):
    blueprint()
    django_user_model.objects.create_user("eve")
    lease = Allocator("fake", owner=owner).allocate()
    with pytest.raises(NotFound):
        Lease.get(lease.id, owner="eve")
    assert Lease.get(lease.id, owner="ada").id == lease.id


def test_async_code_waits_without_blocking(blueprint, owner, working):
    blueprint()

    async def use() -> tuple[str, str]:
        async with await Allocator("fake", owner=owner).aallocate() as lease:
            command = await lease.ainterface("command")
            done = await asyncio.to_thread(_run_and_close, command)
            state = lease.state
        await sync_to_async(lambda: connection.close())()
        return state, str(done.ok)

    assert asyncio.run(use()) == ("active", "True")


def _run_and_close(command):
    try:
        return command.run(["uname"])
    finally:
        connection.close()


def test_applications_are_told_of_every_change(blueprint, owner):
    blueprint()
    told = []

    def listen(sender, lease_id, state, reason, **_):
        told.append(state)

    lease_changed.connect(listen)
    try:
        lease = Allocator("fake", owner=owner).allocate()
        settle()
        lease.release()
        settle()
    finally:
        lease_changed.disconnect(listen)
    assert told == ["acquired", "active", "released", "destroyed"]


def test_extending(blueprint, owner):
    blueprint()
    lease = Allocator("fake", owner=owner, ttl="1h").allocate()
    settle()
    before = lease.refresh().until
    lease.extend("2h")
    assert lease.info.until > before
    with pytest.raises(Conflict, match="already lasts until"):
        lease.extend("1m")
    with pytest.raises(InvalidRequest, match="in the past"):
        lease.extend(until=before.replace(year=2020))
    lease.release()
    with pytest.raises(Conflict, match="has ended"):
        lease.extend("3h")


def test_heartbeats(blueprint, owner):
    blueprint()
    lease = Allocator("fake", owner=owner, heartbeat_limit="1h").allocate()
    settle()
    lease.heartbeat()
    Row.objects.filter(pk=lease.id).update(heartbeat_limit="00:00:00.001")
    with pytest.raises(Conflict, match="came too late"):
        lease.heartbeat()
    other = Allocator("fake", owner=owner).allocate()
    with pytest.raises(Conflict, match="expects no heartbeats"):
        other.heartbeat()


@pytest.fixture
def inline(settings):
    settings.DRYDOCK_INLINE = True


def test_a_program_without_a_worker_builds_and_cleans_by_itself(blueprint, owner, inline):
    blueprint(kind="fake_activated", config={"boot_polls": 1, "poll_seconds": 0.05})
    with Allocator("fake_activated", owner=owner, ttl="2h").allocate() as lease:
        assert lease.state == "active"
    assert Row.objects.get(pk=lease.id).state == "destroyed"
    waited = Allocator("fake_activated", owner=owner, ttl="2h").allocate().wait_until_active(timeout="60s")
    assert waited.state == "active"
    waited.release()

    async def alone() -> int:
        async with await Allocator("fake_activated", owner=owner, ttl="2h").aallocate() as one:
            assert one.state == "active"
        await sync_to_async(lambda: connection.close())()
        return one.id

    assert Row.objects.get(pk=asyncio.run(alone())).state == "destroyed"


@pytest.mark.parametrize("alive", [False, True])
def test_a_program_is_warned_once_where_nobody_works(blueprint, owner, alive):
    blueprint()
    if alive:
        workers.seen("elsewhere:1")
    lease = Allocator("fake", owner=owner, ttl="2h").allocate()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(TimedOut):
            lease.wait_until_active(timeout=3)
    told = [str(one.message) for one in said if issubclass(one.category, NoWorkerWarning)]
    assert len(told) == (0 if alive else 1)
    assert all("drydock worker" in one and "DRYDOCK_INLINE" in one for one in told)
