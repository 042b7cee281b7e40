"""What agents send: hello, hardware and orders, and everything that must be refused."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import threading
import uuid

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext

from drydock.core import clock
from drydock_agent import Device, Hardware, Host
from drydock_agent.facts import Readiness
from drydock_agent.messages import HardwareReport, Hello, timestamp
from leases import agents
from leases.engine.core.database import rows
from leases.messaging.inline import settle
from leases.models import Agent, Event, JoinCode, Resource, Sync
from leases.operations.callers import caller
from leases.rest.agents import authentication
from leases.rest.models import Token

HOST = {"dmi_uuid": "4c4c4544-0001-1000-8000-000000000001"}
OTHER = {"dmi_uuid": "4c4c4544-0002-1000-8000-000000000002"}


@pytest.fixture(autouse=True)
def _fresh_buckets() -> None:
    authentication.BUCKETS.forget()


@pytest.fixture
def pool(blueprint):
    return blueprint("cards", kind="fake_reported", config={"provider": "d"}, max_resources=0)


@pytest.fixture
def who(chief):
    return caller(chief)


class Agents:
    """A program that speaks as one agent. The status of an answer is asserted."""

    def __init__(self, name="node-1", identities=HOST):
        self.name, self.identities = name, identities
        self.browser = Browser(raise_request_exception=False)
        self.token, self.sequence = "", 0

    def send(self, method, path, document=None, *, code=200, given="", headers=None, content=None):
        content = json.dumps(document).encode() if content is None and document is not None else content or b""
        given = given or (f"Bearer {self.token}" if self.token else "")
        headers = {**({"Authorization": given} if given else {}), **(headers or {})}
        found = self.browser.generic(
            method, f"/api/v1/agents/{path}", content, content_type="application/json", headers=headers
        )
        assert found.status_code == code, (found.status_code, found.content)
        return json.loads(found.content) if found.content else None

    def hello(self, given="", *, code=200, **changes):
        about = {
            "version": 1, "status": "READY", "name": self.name, "agent_version": "0.1.0", "boot_id": "b-1",
            "time": timestamp(clock.now()), "identities": dict(self.identities),
            "drivers": [{"name": "pci", "type": ["gpu"], "status": "READY"}],
        }  # fmt: skip
        found = self.send("POST", "hello", about | changes, given=given, code=code)
        if code == 200:
            self.token = found["token"]
        return found

    def document(self, *devices, **changes):
        self.sequence += 1
        hardware = Hardware(host=Host(identities=self.identities), devices=tuple(map(card, devices)))
        report = HardwareReport(
            sequence=self.sequence, boot_id="b-1", time=timestamp(clock.now()), hardware=hardware
        ).to_json()
        return report | changes

    def report(self, *devices, code=200, **changes):
        return self.send("PUT", "me/hardware", self.document(*devices, **changes), code=code)


def card(name):
    return name if isinstance(name, Device) else Device(id=name, device_class="gpu")


@pytest.fixture
def joined(pool, who):
    """Make an agent that has joined."""

    def make(name="node-1", identities=HOST, blueprint="cards", **given):
        one = Agents(name, identities)
        one.hello(f"Join {agents.create_join_code(who, blueprint, **given).code}")
        return one

    return make


def known():
    return sorted(Resource.objects.filter(gone_at=None).values_list("identity", flat=True))


def kinds():
    return list(Event.objects.filter(kind__startswith="agent.").order_by("id").values_list("kind", flat=True))


def test_an_agent_joins_reports_and_is_listed(joined, pool, who):
    agent = joined()
    assert agent.report("0000:01:00.0", "0000:02:00.0") == {"version": 1, "stored": True}
    settle()
    assert known() == ["node-1/0000:01:00.0", "node-1/0000:02:00.0"]
    assert agent.report("0000:01:00.0", "0000:02:00.0") == {"version": 1, "stored": False}
    (found,) = agents.agents(who)
    assert (found.place, found.host, found.state, found.message) == ("node-1", "node-1", "reporting", "")
    assert found.drivers == ("pci",)
    assert kinds() == ["agent.code_created", "agent.joined"]


def test_a_report_that_was_not_stored_because_of_another_can_be_sent_again(joined, pool):
    agent = joined()
    agent.report("0000:01:00.0")
    Sync.objects.update(token=uuid.uuid4(), token_until=Now() + dt.timedelta(minutes=1))
    document = agent.document("0000:01:00.0", "0000:02:00.0")
    before = Agent.objects.values("sequence", "boot_id", "reported_at", "problem").get()
    agent.send("PUT", "me/hardware", document | {"boot_id": "b-2"}, code=503)
    assert Agent.objects.values("sequence", "boot_id", "reported_at", "problem").get() == before
    Sync.objects.update(token=None, token_until=None)
    assert agent.send("PUT", "me/hardware", document)["stored"] is True


def test_a_hello_with_the_token_renews_it_and_the_old_one_works_for_five_minutes(joined):
    agent = joined()
    first = agent.token
    assert agent.hello()["blueprint"] == "cards"
    assert agent.token != first
    agent.send("GET", "me/orders", given=f"Bearer {first}")
    left = Token.objects.get(tail=first[-4:], agent__isnull=False)
    assert dt.timedelta(minutes=4) < left.expires_at - clock.now() <= dt.timedelta(minutes=5)
    Token.objects.filter(pk=left.pk).update(expires_at=Now())
    agent.send("GET", "me/orders", given=f"Bearer {first}", code=401)
    agent.hello()
    assert Token.objects.filter(agent__isnull=False).count() == 2
    assert Token.objects.order_by("id").last().expires_at - clock.now() > dt.timedelta(hours=23)


def test_a_code_works_once_for_one_blueprint_and_for_an_hour(pool, who, blueprint):
    agent = Agents()
    made = agents.create_join_code(who, "cards")
    assert made.expires_at - clock.now() <= dt.timedelta(hours=1)
    assert made.code not in str(list(JoinCode.objects.values()))
    assert agent.hello(f"Join {made.code}")["blueprint"] == "cards"
    assert "join code" in Agents("node-2", OTHER).hello(f"Join {made.code}", code=401)["detail"]
    late = agents.create_join_code(who, "cards", ttl="1m").code
    JoinCode.objects.update(expires_at=Now())
    Agents("node-2", OTHER).hello(f"Join {late}", code=401)
    for given in ("Join ddj_nothing", "Join", "Basic abc", f"Bearer {late}", "Bearer ddk_nothing"):
        Agents("node-2", OTHER).hello(given, code=401)
    Agents("node-2", OTHER).hello(code=401)
    agent.send("GET", "me/orders", given=f"Join {agents.create_join_code(who, 'cards').code}", code=401)


def test_a_code_for_a_host_replaces_its_agent_and_serves_no_other_place(joined, who):
    old = joined()
    old.report("0000:01:00.0")
    assert (
        "has joined before" in Agents().hello(f"Join {agents.create_join_code(who, 'cards').code}", code=409)["detail"]
    )
    new = joined(name="renamed", identities=OTHER, host="node-1")
    old.report("0000:01:00.0", code=401)
    new.report("0000:01:00.0")
    (found,) = agents.agents(who)
    assert (found.place, found.host) == ("node-1", "renamed")


def test_two_agents_cannot_be_one_host(joined, who):
    joined()
    code = agents.create_join_code(who, "cards").code
    found = Agents("node-2").hello(f"Join {code}", code=409)
    assert (found["field"], "node-1" in found["detail"]) == ("identities", True)
    Agents("node-2", OTHER).hello(f"Join {code}")


WAITED_FOR = "SELECT 1 FROM pg_locks WHERE NOT granted AND transactionid = pg_current_xact_id()::xid"


def test_two_codes_for_one_new_host_are_used_at_once(pool, who):
    code, stored, over = agents.create_join_code(who, "cards").code, threading.Event(), threading.Event()

    def other():
        with transaction.atomic():
            Agent.objects.create(blueprint=pool, place="node-1", interval=60.0, joined_at=Now())
            stored.set()
            while not rows(WAITED_FOR) and not over.wait(0.05):
                pass
        connection.close()

    thread = threading.Thread(target=other)
    thread.start()
    assert stored.wait(20)
    try:
        assert "has joined before" in Agents().hello(f"Join {code}", code=409)["detail"]
    finally:
        over.set()
        thread.join()


def test_a_blueprint_says_which_places_have_agents(blueprint, who):
    blueprint("few", kind="fake_reported", config={"provider": "e", "places": ["node-7"]}, max_resources=0)
    found = Agents().hello(f"Join {agents.create_join_code(who, 'few').code}", code=403)
    assert "takes no reports about host 'node-1'" in found["detail"]
    Agents("node-7").hello(f"Join {agents.create_join_code(who, 'few').code}")


def test_only_its_own_host(joined):
    """A report and a hello about another host are refused whole, and name the identity."""
    one, two = joined(), joined("node-2", OTHER)
    one.report("0000:01:00.0")
    two.report("0000:02:00.0")
    before = list(Resource.objects.order_by("pk").values())
    hers = {"version": 1, "host": {"identities": OTHER}, "devices": [{"id": "0000:03:00.0"}]}
    found = one.report(hardware=hers, code=403)
    assert found["field"] == "hardware.host.identities.dmi_uuid"
    assert one.hello(identities=OTHER, code=403)["field"] == "identities.dmi_uuid"
    extra = {"version": 1, "host": {"identities": {**HOST, "board_serial": "CN7016"}}, "devices": []}
    two.report("0000:02:00.0", hardware=extra | {"host": {"identities": {**OTHER, "board_serial": "CN7016"}}})
    two.report("0000:02:00.0")
    assert one.report(hardware=extra, code=403)["field"] == "hardware.host.identities.board_serial"
    settle()
    assert list(Resource.objects.order_by("pk").values("identity", "part_of")) == [
        {"identity": row["identity"], "part_of": row["part_of_id"]} for row in before
    ]
    assert "agent.refused" in kinds()


def test_a_report_hangs_nothing_below_another_host(joined, pool):
    one, two = joined(), joined("node-2", OTHER)
    two.report("0000:02:00.0")
    settle()
    whole = "../node-2/0000:02:00.0"
    found = one.report(Device(id="0000:01:00.0", part_of=whole), code=400)
    assert (found["field"], "is not in node-1" in found["detail"]) == ("part_of", True)
    assert known() == ["node-2/0000:02:00.0"]


def test_a_device_of_another_host_is_a_conflict_and_stays(joined, pool):
    """The serial of a device that another agent's last report contains moves nothing and withholds nothing."""
    one, two = joined(), joined("node-2", OTHER)
    serial = {"serial": "GPU-1"}
    two.report(Device(id="0000:02:00.0", identities=serial))
    settle()
    before = Resource.objects.values().get()
    assert one.report(Device(id="0000:01:00.0", identities=serial))["stored"]
    settle()
    assert Resource.objects.values().get() == before
    assert "node-2" in Sync.objects.get(place="node-1").conflicts[0]["message"]


def test_replays_and_wrong_clocks_are_refused(joined, who):
    agent = joined()
    first = agent.document("0000:01:00.0")
    agent.send("PUT", "me/hardware", first)
    settle()
    agent.send("PUT", "me/hardware", agent.document("0000:01:00.0"))
    empty = first | {"hardware": {"version": 1, "host": {"identities": HOST}}}
    for replay in (first, empty):
        found = agent.send("PUT", "me/hardware", replay, code=409)
        assert (found["field"], "report 2 was received before" in found["detail"]) == ("sequence", True)
    for minutes, words in ((6, "ahead of"), (-6, "behind")):
        wrong = timestamp(clock.now() + dt.timedelta(minutes=minutes))
        found = agent.report(time=wrong, code=409)
        assert (found["field"], words in found["detail"], wrong in found["detail"]) == ("time", True, True)
    (row,) = agents.agents(who)
    assert "The clock of the agent's host is" in row.message
    assert row.clock_offset < -350
    assert kinds().count("agent.clock_off") == 1
    assert known() == ["node-1/0000:01:00.0"]
    agent.report("0000:01:00.0")
    assert agents.agents(who)[0].message == ""


def deep(n):
    return [deep(n - 1)] if n else []


BAD = {
    "an unknown field": (lambda d: d | {"extra": 1}, "extra"),
    "an unknown field of a device": (lambda d: _device(d, {"id": "a", "colour": 1}), "hardware.devices[0].colour"),
    "another version": (lambda d: d | {"version": 2}, "version"),
    "no sequence": (lambda d: {k: v for k, v in d.items() if k != "sequence"}, ""),
    "a sequence of text": (lambda d: d | {"sequence": "1"}, "sequence"),
    "a sequence that no row can have": (lambda d: d | {"sequence": 1 << 63}, "sequence"),
    "a negative sequence": (lambda d: d | {"sequence": -1}, "sequence"),
    "a time that is none": (lambda d: d | {"time": "yesterday"}, "time"),
    "a time without a zone": (lambda d: d | {"time": "2026-11-23T08:15:00"}, "time"),
    "a list": (lambda d: [d], ""),
    "too many entries": (lambda d: _device(d, {"id": "a", "nodes": ["x"] * 20_001}), ""),
    "depth": (lambda d: _device(d, {"id": "a", "attributes": {"x": deep(9)}}), ""),
    "a NUL": (lambda d: _device(d, {"id": "a\0b"}), "hardware.devices.0.id"),
    "half a character": (lambda d: _device(d, {"id": "a\ud800"}), "hardware.devices.0.id"),
}


def _device(document, device):
    return document | {"hardware": {"version": 1, "host": {"identities": HOST}, "devices": [device]}}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_report_is_refused_whole_and_names_the_field(joined, what):
    agent = joined()
    agent.report("0000:01:00.0")
    settle()
    before = (list(Resource.objects.values()), list(Sync.objects.values()), list(Agent.objects.values()))
    spoil, field = BAD[what]
    found = agent.send("PUT", "me/hardware", spoil(agent.document()), code=400)
    assert found["field"] == field
    assert (list(Resource.objects.values()), list(Sync.objects.values()), list(Agent.objects.values())) == before


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (b'{"version": 1, "sequence": NaN}', {}), (b'{"version": 1, "version": 1}', {}), (b"\xff", {}),
        (b"[" * 100_000, {}), (b'{"sequence": ' + b"9" * 10_000 + b"}", {}),
        (b"\x1f\x8b garbage", {"Content-Encoding": "gzip"}), (b"{}", {"Content-Encoding": "br"}),
        (gzip.compress(b"{}", mtime=0) + b"more", {"Content-Encoding": "gzip"}),
        (gzip.compress(b"{}", mtime=0)[:-4], {"Content-Encoding": "gzip"}),
        (lambda: gzip.compress(b" " * (64 << 20), mtime=0), {"Content-Encoding": "gzip"}),
    ],
)  # fmt: skip
def test_a_body_that_is_not_json_or_too_large_is_refused(joined, content, headers):
    agent, body = joined(), content() if callable(content) else content
    for method, path in (("PUT", "me/hardware"), ("POST", "hello"), ("POST", "me/orders/1")):
        agent.send(method, path, content=body, headers=headers, code=400)


def test_a_body_over_the_limit_is_refused_before_it_is_read(joined):
    agent = joined()
    assert agent.send("PUT", "me/hardware", content=b" " * ((4 << 20) + 1), code=413)["code"] == "body_too_large"
    agent.send("PUT", "me/hardware", content=gzip.compress(json.dumps(agent.document("a")).encode()),
        headers={"Content-Encoding": "gzip"})  # fmt: skip


def test_a_disabled_blueprint_takes_no_reports(joined, pool, who):
    agent = joined()
    pool.enabled = False
    pool.save()
    assert "disabled" in agent.report("0000:01:00.0", code=409)["detail"]
    assert "disabled" in agents.agents(who)[0].message


def statements(work):
    """The statements of a report, without that of the authentication."""
    with CaptureQueriesContext(connection) as sent:
        work()
    found = [one["sql"] for one in sent.captured_queries if "rest_token" not in one["sql"]]
    assert len(sent) - len(found) == 1
    return [one for one in found if not one.startswith(("SAVEPOINT", "RELEASE", "BEGIN", "COMMIT"))]


def test_an_unchanged_report_takes_at_most_three_statements_and_writes_no_resource(joined):
    agent = joined()
    agent.report("0000:01:00.0", "0000:02:00.0")
    settle()
    agent.report("0000:01:00.0", "0000:02:00.0")
    before = rows("SELECT xmin, id FROM leases_resource ORDER BY id")
    said = statements(lambda: agent.report("0000:01:00.0", "0000:02:00.0"))
    assert 1 + len(said) <= 3, said
    assert rows("SELECT xmin, id FROM leases_resource ORDER BY id") == before


@pytest.mark.parametrize("changed", [1, 4])
def test_a_changed_report_takes_six_statements_and_four_for_each_changed_device(joined, blueprint, changed):
    blueprint("hosts", resource_type="host", max_resources=1, min_ready=1)
    settle()
    blueprint("found", kind="accelerators", config={"reports": "sent"}, resource_type="accelerator")
    agent = joined(blueprint="found", host=str(Resource.objects.get().pk))

    def cards(memory):
        return [
            Device(
                id=f"0000:0{n}:00.0", device_class="gpu", role="lease_candidate", readiness=Readiness.READY,
                identities={"uuid": f"GPU-140000{n}0-0000-4000-8000-000000000001"},
                memory_mib=memory if n < changed else 1,
            )
            for n in range(4)
        ]  # fmt: skip

    agent.report(*cards(2))
    settle()
    agent.report(*cards(2))
    said = statements(lambda: agent.report(*cards(3)))
    assert len(said) <= 6 + 4 * changed, said
    assert Resource.objects.filter(attributes__memory_mib=3).count() == changed


def test_an_unchanged_report_is_not_believed_from_another_host_or_twice(joined):
    agent = joined()
    agent.report("0000:01:00.0")
    assert agent.report("0000:01:00.0")["stored"] is False
    last = agent.document("0000:01:00.0")
    assert agent.send("PUT", "me/hardware", last)["stored"] is False
    assert agent.send("PUT", "me/hardware", last, code=409)["field"] == "sequence"
    # Its row says that it is another host, as after a new join.
    Agent.objects.update(identities=OTHER, problem="")
    found = agent.report("0000:01:00.0", code=403)
    assert found["field"] == "hardware.host.identities.dmi_uuid"


@pytest.mark.parametrize(
    "change", [{"extra": 1}, {"sequence": True}, {"boot_id": "\0"}, {"time": "now"}, {"version": 2}, {"hardware": []}]
)
def test_the_rest_of_an_unchanged_report_is_checked_as_well(joined, change):
    agent = joined()
    agent.report("0000:01:00.0")
    before = Agent.objects.values("sequence", "reported_at").get()
    agent.report("0000:01:00.0", code=400, **change)
    assert Agent.objects.values("sequence", "reported_at").get() == before


@pytest.mark.parametrize("value", ["\ud800", "a\0b", 1, [], None])
def test_hostile_identities_are_refused_like_any_other_value(joined, value):
    agent = joined()
    agent.report("0000:01:00.0")
    document = agent.document("0000:01:00.0")
    document["hardware"]["host"] = {"identities": {"dmi_uuid": value}}
    agent.send("PUT", "me/hardware", document, code=400)


def test_an_unchanged_report_after_silence_or_a_refusal_puts_things_right(joined, who):
    agent = joined()
    agent.report("0000:01:00.0")
    Agent.objects.update(silent_since=Now(), problem="It was refused.")
    assert agent.report("0000:01:00.0")["stored"] is False
    (found,) = agents.agents(who)
    assert (found.state, found.message) == ("reporting", "")


def test_each_agent_is_throttled(joined, who, monkeypatch):
    monkeypatch.setattr(authentication, "PER_MINUTE", 3)
    agent, other = joined(), joined("node-2", OTHER)
    for _ in range(3):
        agent.send("GET", "me/orders")
    assert agent.send("GET", "me/orders", code=429)["code"] == "throttled"
    other.send("GET", "me/orders")


def test_messages_are_those_of_the_agent_package(joined):
    Hello.from_json(
        {
            "version": 1,
            "status": "READY",
            "name": "a",
            "agent_version": "1",
            "boot_id": "",
            "time": timestamp(clock.now()),
        }
    )
