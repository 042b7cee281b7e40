"""Reports whose text about the hardware a web process knows: it is not read, and they are checked like others."""

from __future__ import annotations

import json

import pytest
from django.db import connection
from django.db.models.functions import Now

from drydock_agent import wire
from leases import agents
from leases.agents import hardware
from leases.agents.repeats import Known, Repeats
from leases.models import Agent, Sync
from leases.operations.callers import caller
from leases.rest import tokens
from tests.leases.test_reconnect import terminate
from tests.rest.test_agents import OTHER, Agents

CARD = "0000:01:00.0"


@pytest.fixture
def agent(blueprint, chief, monkeypatch):
    """An agent whose text about its hardware is known. From now on, reading this text is an error."""
    monkeypatch.setattr(hardware, "REPEATS", Repeats())
    blueprint("cards", kind="fake_reported", config={"provider": "d"}, max_resources=0)
    made = Agents()
    made.hello(f"Join {agents.create_join_code(caller(chief), 'cards').code}")
    assert [made.report(CARD)["stored"] for _ in range(2)] == [True, False]

    def read(values):
        raise AssertionError("The hardware was read.")

    monkeypatch.setattr(hardware, "content_digest", read)
    return made


def test_hardware_whose_text_is_known_is_not_read(agent, monkeypatch):
    before = Agent.objects.get()
    assert agent.report(CARD)["stored"] is False
    after = Agent.objects.get()
    assert (after.sequence, after.reported_at > before.reported_at) == (before.sequence + 1, True)
    with pytest.raises(AssertionError):
        agents.accept_unchanged(after, agent.document(CARD), b"")


def test_a_known_text_is_recognized_however_the_rest_is_written(agent):
    document = agent.document(CARD)
    ordered = dict(sorted(document.items(), reverse=True))
    assert agent.send("PUT", "me/hardware", content=json.dumps(ordered).encode())["stored"] is False


@pytest.mark.parametrize(
    "change", [{"extra": 1}, {"sequence": True}, {"boot_id": "\0"}, {"time": "now"}, {"version": 2}, {"boot_id": {}}]
)
def test_the_rest_is_checked(agent, change, monkeypatch):
    monkeypatch.undo()
    before = Agent.objects.values("sequence", "reported_at").get()
    agent.report(CARD, code=400, **change)
    assert Agent.objects.values("sequence", "reported_at").get() == before


def test_it_is_not_believed_twice_from_another_host_or_with_a_wrong_clock(agent, monkeypatch):
    monkeypatch.undo()
    last = agent.document(CARD)
    assert agent.send("PUT", "me/hardware", last)["stored"] is False
    assert agent.send("PUT", "me/hardware", last, code=409)["field"] == "sequence"
    assert agent.report(CARD, time="2020-01-01T00:00:00Z", code=409)["field"] == "time"
    Agent.objects.update(identities=OTHER, problem="")
    assert agent.report(CARD, code=403)["field"] == "hardware.host.identities.dmi_uuid"


def test_it_is_stored_again_and_puts_things_right_as_any_other(agent, monkeypatch, chief):
    monkeypatch.undo()
    Sync.objects.update(digest="")
    assert agent.report(CARD)["stored"] is True
    Agent.objects.update(silent_since=Now(), problem="It was refused.")
    assert agent.report(CARD)["stored"] is False
    (found,) = agents.agents(caller(chief))
    assert (found.state, found.message) == ("reporting", "")


def test_another_text_is_read(agent, monkeypatch):
    monkeypatch.undo()
    assert agent.report("0000:02:00.0")["stored"] is True
    assert agent.report(CARD)["stored"] is True


def test_an_agent_is_authenticated_on_a_new_connection_if_the_one_before_was_lost(agent):
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = cursor.fetchone()[0]
    terminate(pid)
    found = tokens.agent_of(agent.token)
    assert found is not None
    assert found[0].place == Agent.objects.get().place


# The texts themselves

HARDWARE = {"version": 1, "host": {}, "devices": [{"id": 'a \\ " é'}]}
KNOWN = Known(digest="d", identities={})


def body(hardware, **rest):
    return json.dumps({"sequence": 1, **rest, "hardware": hardware, "version": 1}, ensure_ascii=False).encode()


@pytest.fixture
def repeats():
    made = Repeats(most=2)
    made.learn(1, body(HARDWARE), HARDWARE, KNOWN)
    return made


def test_a_known_text_is_taken_out(repeats):
    rest, known = repeats.recognize(1, body(HARDWARE, time="now"))
    assert rest == {"sequence": 1, "time": "now", "hardware": {}, "version": 1}
    assert known is KNOWN


OTHERS = {
    "another agent": (2, body(HARDWARE)),
    "a changed text": (1, body(HARDWARE | {"devices": [{"id": "b \\ \" é"}]})),
    "a longer text": (1, body(HARDWARE | {"traits": ["x"]})),
    "other spaces": (1, body(HARDWARE).replace(b'"host": {}', b'"host":  {}')),
    "in another field": (1, json.dumps({"extra": json.loads(body(HARDWARE))}, ensure_ascii=False).encode()),
    "within a text": (1, json.dumps({"extra": body(HARDWARE).decode()}, ensure_ascii=False).encode()),
    "an empty object first": (1, b'{"hardware": {}, "x": ' + body(HARDWARE) + b"}"),
    "another character set": (1, body(HARDWARE).decode().encode("utf-16-le")),
    "a name twice": (1, b'{"hardware": 1, ' + body(HARDWARE)[1:]),
    "a list": (1, b"[" + body(HARDWARE) + b"]"),
    "nothing": (1, b""),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHERS)
def test_other_bodies_are_not_recognized(repeats, what):
    assert repeats.recognize(*OTHERS[what]) is None


def test_what_is_left_must_be_valid(repeats):
    whole = body(HARDWARE)
    for spoilt in (whole[:-1], whole + b"x", whole[:-1] + b', "hardware": {}}'):
        with pytest.raises(wire.Malformed):
            repeats.recognize(1, spoilt)


def test_a_text_that_is_not_found_is_not_learned():
    made = Repeats()
    for text in (body(HARDWARE)[1:], body(HARDWARE)[:-30], body({}), b'{"hardware": "\xff"}', b'{"x": 1}'):
        made.learn(1, text, HARDWARE, KNOWN)
        assert made.recognize(1, body(HARDWARE)) is None


def test_the_agents_that_reported_the_longest_ago_are_forgotten(repeats):
    for one in (2, 1, 3):
        repeats.learn(one, body(HARDWARE), HARDWARE, KNOWN)
    assert [one for one in (1, 2, 3) if repeats.recognize(one, body(HARDWARE))] == [1, 3]
