"""Bad reports: refused whole, or without the device that is wrong; the last good one stays; nothing is leaked."""

from __future__ import annotations

import gzip
import json

import pytest
from django.db import connection

from drydock_agent import Device, Hardware, Host, Readiness
from leases import agents
from leases.messaging.inline import settle
from leases.models import Agent, Event, ReportedHardware, Resource, Sync
from leases.operations import attention
from leases.operations.callers import caller
from leases.rest.agents import authentication
from tests.rest.test_agents import HOST, Agents

GOOD = "0000:01:00.0"


def gpu(id, **about):
    given = {"device_class": "gpu", "kind": "gpu", "role": "lease_candidate", "readiness": Readiness.READY}
    return Device(id=id, **given | about)


HOSTILE = {
    "a line break": "0000:02:00.0\nX-Evil: 1", "an escape sequence": "0000:02:00.0\x1b[2J\x07",
    "10,000 characters": "x" * 10_000, "another direction": "0000:02:00.0\u202e", "nothing": "",
}  # fmt: skip
ODD = {
    "a path": gpu("../../other/0000:02:00.0"), "a placeholder": gpu("N/A"), "part of itself": gpu("a", part_of="a"),
    "part of nothing": gpu("a", part_of="b"), "twice": gpu("0000:09:00.0", name="Another"),
    "a hostile model": gpu("a", name="\x1b[2J\n" * 1000, driver="\x1b]0;x\x07", reason="<b>\x1b[31m"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh_buckets() -> None:
    authentication.BUCKETS.forget()


@pytest.fixture
def agent(blueprint, chief):
    """An agent whose last report, with one GPU, was stored."""
    pool = blueprint("hosts", kind="fake", resource_type="host", max_resources=1)
    host = Resource.objects.create(blueprint=pool, type="host", name="node-1", state="active")
    blueprint("cards", kind="accelerators", resource_type="accelerator", config={"reports": "sent"}, max_resources=0)
    made = Agents()
    made.hello(f"Join {agents.create_join_code(caller(chief), 'cards', host=str(host.pk)).code}")
    assert report(made, gpu(GOOD))["stored"]
    settle()
    return made


def hardware(*devices):
    """The JSON form. It is made without the checks of the agent, which would not send what is hostile."""
    written = [one if isinstance(one, dict) else Hardware(host=Host(), devices=(one,)).to_json()["devices"][0]
               for one in devices]  # fmt: skip
    return {"version": 1, "host": {"identities": HOST}, "devices": written}


def report(agent, *devices, code=200):
    return agent.report(hardware=hardware(*devices), code=code)


def stored():
    """Everything that reports change, except when the last one came."""
    return (
        list(Resource.objects.order_by("pk").values()), list(ReportedHardware.objects.values()),
        list(Sync.objects.order_by("pk").values("digest", "conflicts", "message", "found")),
    )  # fmt: skip


def bomb(mib: int) -> bytes:
    return gzip.compress(b" " * (mib << 20), mtime=0)


BODIES = {
    "a bomb": (lambda: bomb(256), "gzip", 400, "more than 4194304 bytes"),
    "a bomb within a bomb": (lambda: gzip.compress(bomb(64), mtime=0), "gzip", 400, "not valid JSON"),
    "too many entries": (json.dumps({"version": 1, "sequence": [0] * 20_001}).encode(), "", 400, ""),
    "too deep": (b'{"version": 1, "hardware": ' + b"[" * 9 + b"]" * 9 + b"}", "", 400, "deep"),
    "deeper than Python": (b"[" * 100_000, "", 400, "not valid JSON"),
    "not a number": (b'{"version": 1, "sequence": NaN}', "", 400, "NaN is not a number"),
    "infinity": (b'{"version": 1, "sequence": -Infinity}', "", 400, "-Infinity is not a number"),
    "a truncated document": (b'{"version": 1, "sequence": 2', "", 400, "not valid JSON"),
}  # fmt: skip


@pytest.mark.parametrize("what", BODIES)
def test_a_bad_body_changes_nothing_and_says_what_is_wrong(agent, what):
    body, encoding, code, words = BODIES[what]
    before = stored()
    found = agent.send(
        "PUT",
        "me/hardware",
        content=body() if callable(body) else body,
        headers={"Content-Encoding": encoding} if encoding else {},
        code=code,
    )
    assert words in found["detail"]
    assert len(json.dumps(found)) < 1000
    assert agent.token not in json.dumps(found)
    assert stored() == before
    assert report(agent, gpu(GOOD), gpu("0000:02:00.0"))["stored"], "the next good report is stored"


def test_a_number_that_overflows_is_refused_with_its_field(agent):
    document = agent.document()
    document["hardware"] = hardware({"id": "a", "link": {"speed": 0.125}})
    before = stored()
    content = json.dumps(document).replace("0.125", "1e999").encode()
    found = agent.send("PUT", "me/hardware", content=content, code=400)
    assert found["field"] == "hardware.devices[0].link.speed"
    assert stored() == before


@pytest.mark.parametrize("what", HOSTILE)
def test_a_report_with_a_hostile_name_is_refused_whole_and_names_the_device(agent, what):
    before = stored()
    found = report(agent, gpu(GOOD), gpu(HOSTILE[what]), code=400)
    assert found["field"] == "hardware.devices[1].id"
    assert found["detail"] == "one line of 1 to 200 printable characters is expected"
    assert stored() == before


@pytest.mark.parametrize("what", ODD)
def test_an_odd_device_spoils_only_itself(agent, what, chief):
    found = report(agent, gpu(GOOD), ODD[what], gpu("0000:08:00.0"))
    assert found["stored"]
    settle()
    known = {one.facts["device"]["id"]: one for one in Resource.objects.filter(type="accelerator", gone_at=None)}
    assert {GOOD, "0000:08:00.0"} <= set(known)
    assert not known[GOOD].quarantined
    assert {known[one].part_of.name for one in (GOOD, "0000:08:00.0")} == {"node-1"}
    assert all(one.isprintable() and len(one) < 1000 for one in found.get("problems", ()))
    (info,) = agents.hardware_reports(caller(chief))
    assert {GOOD, "0000:08:00.0"} <= {one.id for one in agents.hardware_report(caller(chief), info.id).devices}
    assert all(len(one.message) < 2100 for one in attention.needed(caller(chief)))


def test_nothing_that_is_stored_or_told_contains_the_token(agent):
    agent.send("PUT", "me/hardware", content=b"{", code=400)
    report(agent, gpu(GOOD, name=agent.token), code=200)
    agent.report(time="yesterday", code=400)
    texts = [str(list(model.objects.values())) for model in (Agent, Event, Sync)]
    assert not [text for text in texts if agent.token in text]
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM rest_token WHERE digest = %s", (agent.token,))
        assert cursor.fetchone() == (0,)
