"""Waiting for leases to be active and to end: the Python API, both clients, and `drydock wait` over a server."""

from __future__ import annotations

import asyncio
import threading

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction

from blueprints.fake.openers import fakes
from drydock.core.errors import InvalidRequest, TimedOut
from drydock_client.errors import LeaseFailed
from leases.allocator import Allocator, Lease
from leases.engine.core import specs
from leases.engine.core.database import InsideTransaction
from leases.engine.lifecycle import release as lease_release
from leases.local import LocalClient
from leases.messaging.inline import settle
from leases.models import Job
from leases.operations.callers import caller
from leases.rest import tokens
from leases.workloads import jobs as mechanism
from tests.rest.test_cli import cli
from tests.rest.test_client import client, server

__all__ = ["cli", "client", "server"]

PRICED = {"offers": [{"offer": "m.large", "price": 3600}]}


@pytest.fixture
def here(owner, blueprint):
    blueprint(config=PRICED)
    return LocalClient(caller(owner))


def _ended_with(here, code):
    """A lease whose workload has ended with an exit code."""
    made = here.request({"type": "fake", "workload": {"command": ["make"]}}).id
    for _ in range(2):
        settle()
    job = Job.objects.get(lease=made)
    fakes(specs.key("l", made)).command.jobs.finish(mechanism.host_id(job), code)
    mechanism.watch(job.pk)
    for _ in range(2):
        settle()
    return made


def test_the_end_of_a_lease_tells_exit_code_use_and_cost(here, owner):
    made = _ended_with(here, 7)
    end = Lease.get(made, owner=owner).wait_until_ended(timeout=5)
    assert (end.lease.state, end.exit_code) == ("destroyed", 7)
    assert [one.lease_id for one in end.usage] == [made]
    assert end.cost == pytest.approx(sum(one.cost for one in end.usage)) != 0
    assert end.metrics is not None
    assert here.wait_until_ended(made, timeout=5) == end
    assert here.wait(made, until="ended") == end.lease == here.wait(made, until="destroyed")


def test_whoever_waits_sees_the_end_when_it_comes(here, owner):
    made = Allocator("fake", owner=owner).allocate()
    settle()
    with pytest.raises(TimedOut, match="still active"):
        made.wait_until_ended(timeout=0.05)
    with pytest.raises(TimedOut, match="still active"):
        here.wait_until_ended(made.id, timeout=0.05)

    def release():
        try:
            lease_release.release(made.id, actor="ada")
        finally:
            connection.close()

    other = threading.Timer(0.1, release)
    other.start()
    end = made.wait_until_ended(timeout=20)
    other.join()
    assert (end.lease.state, end.exit_code) == ("destroyed", None)


def test_async_code_waits_likewise(here, owner):
    made = Allocator("fake", owner=owner).allocate()
    settle()

    async def use():
        waits = [
            asyncio.ensure_future(made.await_until_ended(timeout=20)),
            asyncio.ensure_future(here.await_until_ended(made.id, timeout=20)),
        ]
        with pytest.raises(TimedOut):
            await here.await_until_ended(made.id, timeout=0.05)
        await made.arelease()
        found = await asyncio.gather(*waits)
        await sync_to_async(lambda: connection.close())()
        return [end.lease.state for end in found]

    assert asyncio.run(use()) == ["destroyed", "destroyed"]


def test_nothing_is_waited_for_inside_a_transaction(here, owner):
    made = here.request({"type": "fake"}).id
    with transaction.atomic():
        for waits in (
            Lease.get(made, owner=owner).wait_until_ended, lambda: here.wait(made), lambda: here.wait_until_ended(made)
        ):  # fmt: skip
            with pytest.raises(InsideTransaction):
                waits()


def test_what_cannot_come_any_more_is_an_error(here):
    made = here.request({"type": "fake"}).id
    settle()
    assert here.wait(made).state == "active"
    with pytest.raises(LeaseFailed):
        here.wait(made, until="pending")
    here.release(made)
    for wanted in ("active", "broken"):
        with pytest.raises(LeaseFailed):
            here.wait(made, until=wanted)
    with pytest.raises(InvalidRequest, match="cannot be waited for"):
        here.wait(made, until="doomsday")


def test_over_http_it_is_the_same(here, client, owner):
    made = _ended_with(here, 3)
    over = client(owner)
    end = over.wait_until_ended(made, timeout=5)
    assert end == here.wait_until_ended(made)
    assert end.exit_code == 3
    assert asyncio.run(over.await_until_ended(made, timeout=5)) == end
    waits = here.request({"type": "fake"}).id
    with pytest.raises(TimedOut):
        over.wait_until_ended(waits, timeout=0.1)


def test_the_shell_waits_with_exit_codes(here, cli, owner):
    laptop = cli.also(DRYDOCK_TOKEN=tokens.create(caller(owner), name="laptop")[1])
    made = here.request({"type": "fake"}).id
    settle()
    number = str(made)
    assert laptop.json("wait", number)[0]["state"] == "active"
    assert "active" in laptop("wait", number, "--for", "active").stderr
    laptop("wait", number, "--for", "ended", "--timeout", "100ms", code=2)
    laptop("wait", number, "--for", "ended", "--timeout", "0.2s", code=8)
    laptop("wait", number, "--for", "doomsday", code=2)
    laptop("wait", "4711", code=3)
    here.release(made)
    (end,) = laptop.json("wait", number, "--for", "ended")
    assert (end["lease"]["state"], end["exit_code"], end["cost"] > 0) == ("destroyed", None, True)
    assert "cost: $" in laptop("wait", number, "--for", "ended").stderr
    laptop("wait", number, code=6)
    laptop("wait", str(_ended_with(here, 7)), "--for", "ended", code=7)
