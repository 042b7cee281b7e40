"""Agents that blueprints require, and that do not report: noticed, shown, and without new leases until they return."""

from __future__ import annotations

import datetime as dt

import pytest

from drydock.core import clock
from drydock_agent import Device, Hardware, Host
from drydock_agent.messages import HardwareReport, Hello, timestamp
from leases import agents
from leases.messaging import handlers
from leases.messaging.inline import settle
from leases.models import Agent, Event, Lease, Resource
from leases.operations import attention
from leases.operations.callers import caller
from leases.reports import figures


@pytest.fixture
def root(django_user_model):
    return caller(django_user_model.objects.create_superuser("root"))


@pytest.fixture
def pool(blueprint):
    config = {"provider": "d", "agents": ["node-1"]}
    return blueprint("cards", kind="fake_reported", config=config, max_resources=0)


def hello(**changes):
    about = {
        "version": 1, "status": "READY", "name": "node-1", "agent_version": agents.server_version(), "boot_id": "b",
        "time": timestamp(clock.now()),
    }  # fmt: skip
    return Hello.from_json(about | changes)


@pytest.fixture
def agent(pool, root):
    return agents.join(agents.create_join_code(root, "cards").code, hello())


def report(agent, *devices):
    row = Agent.objects.select_related("blueprint").get(pk=agent.pk)
    hardware = Hardware(host=Host(), devices=tuple(Device(id=one) for one in devices))
    sent = HardwareReport(sequence=row.sequence + 1, boot_id="b", time=timestamp(clock.now()), hardware=hardware)
    agents.accept(row, sent, sent.to_json()["hardware"])
    settle()


def wait(intervals):
    """Let so many intervals pass."""
    for row in Agent.objects.all():
        span = dt.timedelta(seconds=row.interval * intervals)
        Agent.objects.filter(pk=row.pk).update(
            created_at=row.created_at - span, joined_at=row.joined_at and row.joined_at - span,
            reported_at=row.reported_at and row.reported_at - span,
        )  # fmt: skip
    handlers.sweep()
    settle()


def kinds():
    return list(Event.objects.filter(kind__startswith="agent.").order_by("id").values_list("kind", flat=True))


def shown(who):
    return [(one.what, one.message) for one in attention.needed(who) if one.what.startswith("agent")]


def test_an_agent_that_never_joined_is_noticed(pool, root):
    handlers.sweep()
    (row,) = agents.agents(root)
    assert (row.place, row.state, row.message) == ("node-1", "expected", "")
    wait(4)
    wait(4)
    (row,) = agents.agents(root)
    assert "none has joined" in row.message
    assert kinds() == ["agent.silent"]
    ((what, message),) = shown(root)
    assert (what, "node-1" in message) == ("agent_silent", True)
    measured = {figure.name: found for figure, found in figures.measure(5.0)}
    assert [tuple(one) for one in measured["agents"]] == [("cards", "silent", 1)]
    pool.config = {"provider": "d"}
    pool.save()
    handlers.sweep()
    assert agents.agents(root) == []


def test_a_silent_agent_gets_no_new_leases_and_its_leases_stay(agent, root, ask):
    report(agent, "0000:01:00.0", "0000:02:00.0")
    held = ask("fake_reported")
    settle()
    wait(2)
    assert not Resource.objects.exclude(suspect_since=None).exists()
    wait(2)
    assert set(Resource.objects.values_list("observed", flat=True)) == {"silent"}
    waiting = ask("fake_reported")
    settle()
    handlers.sweep()
    settle()
    assert Lease.objects.get(pk=waiting.pk).state == "pending"
    assert Lease.objects.get(pk=held.pk).state == "active"
    assert kinds().count("agent.silent") == 1
    assert shown(root)
    report(agent, "0000:01:00.0", "0000:02:00.0")
    assert not Resource.objects.exclude(suspect_since=None).exists()
    assert Lease.objects.get(pk=waiting.pk).state == "active"
    assert Lease.objects.get(pk=held.pk).state == "active"
    assert kinds()[-1] == "agent.returned"
    assert shown(root) == []


def test_a_check_that_succeeds_does_not_reopen_what_a_silent_agent_reported(agent):
    report(agent, "0000:01:00.0")
    wait(4)
    Resource.objects.update(suspect_since=None, observed="ok")
    handlers.sweep()
    assert Resource.objects.get().observed == "silent"


def test_resources_of_a_revoked_agent_get_no_new_leases(agent, root, ask):
    report(agent, "0000:01:00.0")
    agents.revoke_agent(root, agent.pk)
    waiting = ask("fake_reported")
    settle()
    assert Lease.objects.get(pk=waiting.pk).state == "pending"
    again = agents.join(agents.create_join_code(root, "cards").code, hello())
    report(again, "0000:01:00.0")
    assert Lease.objects.get(pk=waiting.pk).state == "active"


def test_an_agent_that_is_older_than_the_server_is_shown(agent, root):
    assert shown(root) == []
    agents.renew(agent, hello(agent_version="0.0.9"))
    assert shown(root)[0][0] == "agent_outdated"
    assert kinds().count("agent.outdated") == 1
    agents.renew(agent, hello())
    assert shown(root) == []
