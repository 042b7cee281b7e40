"""The hardware of hosts as it was last reported: over REST, the client's operations, and for owners and operators."""

from __future__ import annotations

import json
import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from drydock.core import clock
from drydock.core.errors import NotFound
from drydock_agent import Device, Hardware, Host, Link, Readiness, ScanWarning
from drydock_agent.facts import Health
from drydock_agent.messages import HardwareReport, Hello, timestamp
from leases import agents
from leases.agents import reported
from leases.engine.sync import discovery
from leases.messaging.inline import settle
from leases.models import Agent, Finding, ReportedHardware, Resource, Sync
from leases.operations.callers import caller

UUID = {"dmi_uuid": "4c4c4544-0001-1000-8000-000000000001"}
READY, UNREADY, BROKEN = "0000:01:00.0", "0000:02:00.0", "0000:03:00.0"
BRIDGE = "0000:00:01.0"


def gpu(id, **about):
    given = {
        "id": id, "kind": "gpu", "device_class": "gpu", "role": "lease_candidate", "name": "Tesla P100",
        "driver": "nvidia",
        "readiness": Readiness.READY, "numa_node": 1, "iommu_group": 7, "firmware": {"vbios": "86.00.4D"},
        "link": Link(width=8, max_width=16, speed=8.0, max_speed=16.0), "vendor_id": "10de", "device_id": "15f8",
    }  # fmt: skip
    return Device(**given | about)


DEVICES = (
    Device(id=BRIDGE, kind="bridge"), gpu(READY),
    gpu(UNREADY, driver="", readiness=Readiness.SETUP_REQUIRED, reason="No kernel driver is bound to the device."),
    gpu(BROKEN, health=Health.FAILED, problems=("It fell off the bus.",)),
)  # fmt: skip


@pytest.fixture
def host(blueprint):
    pool = blueprint("hosts", kind="fake", resource_type="host", max_resources=1)
    return Resource.objects.create(blueprint=pool, type="host", name="node-1", state="active")


@pytest.fixture
def cards(blueprint):
    return blueprint(
        "cards", kind="accelerators", resource_type="accelerator", config={"reports": "sent"}, max_resources=0
    )


class Reporter:
    """The agent of a host."""

    def __init__(self, who, host, identities=UUID):
        code = agents.create_join_code(who, "cards", host=str(host.pk)).code
        self.identities = identities
        about = {
            "version": 1, "status": "READY", "name": "node-1", "agent_version": agents.server_version(),
            "boot_id": "b", "time": timestamp(clock.now()), "identities": identities,
        }  # fmt: skip
        self.pk = agents.join(code, Hello.from_json(about)).pk

    def report(self, *devices, warnings=()):
        row = Agent.objects.select_related("blueprint").get(pk=self.pk)
        found = Hardware(
            host=Host(memory_mib=4096, identities=self.identities), devices=devices or DEVICES, warnings=warnings
        )
        sent = HardwareReport(sequence=row.sequence + 1, boot_id="b", time=timestamp(clock.now()), hardware=found)
        return agents.accept(row, sent, sent.to_json()["hardware"])


@pytest.fixture
def reporter(cards, host, chief):
    made = Reporter(caller(chief), host)
    made.report()
    return made


def test_an_operator_sees_every_device_with_its_state_and_why(api, chief, owner, reporter, host, ask):
    held = ask("accelerator", requirements={"class": "gpu"})
    operator = api(chief, "operate")
    (listed,) = operator("GET", "hardware?host=node-1")["results"]
    assert (listed["name"], listed["host"], listed["blueprint"], listed["state"]) == ("node-1", host.pk, "cards", "ok")
    assert listed["counts"] == {"gpu": {"ready": 1, "setup_required": 1, "failed": 1}}
    assert (listed["devices"], listed["facts"]) == ([], None)
    shown = operator("GET", f"hardware/{listed['id']}")
    found = {one["id"]: one for one in shown["devices"]}
    assert list(found) == [BRIDGE, READY, UNREADY, BROKEN]
    ready, resource = found[READY], Resource.objects.get(type="accelerator")
    assert (ready["readiness"], ready["resource"], ready["resource_state"]) == ("ready", resource.pk, resource.state)
    assert ready["leases"] == [held.pk]
    assert (ready["driver"], ready["numa_node"], ready["iommu_group"]) == ("nvidia", 1, 7)
    assert (ready["link"], ready["firmware"]) == ("x8 of x16, 8 of 16 GT/s", {"vbios": "86.00.4D"})
    assert found[UNREADY]["readiness"] == "setup_required"
    assert found[UNREADY]["reason"] == "No kernel driver is bound to the device."
    assert found[UNREADY]["resource"] is None
    assert (found[BROKEN]["health"], found[BROKEN]["reason"]) == ("failed", "It fell off the bus.")
    assert shown["facts"]["memory_mib"] == 4096
    operator("GET", "hardware/987654", code=404)
    assert operator("GET", "hardware?host=other")["results"] == []
    operator("GET", "hardware?hosts=node-1", code=400)


def test_an_owner_sees_only_the_devices_of_leases_of_theirs(api, chief, owner, reporter, ask, django_user_model):
    report = Sync.objects.get(hardware__isnull=False).pk
    eve = django_user_model.objects.create_user("eve")
    for user in (owner, eve):
        assert api(user, "read")("GET", "hardware")["results"] == []
        api(user, "read")("GET", f"hardware/{report}", code=404)
    lease = ask("accelerator", requirements={"class": "gpu"})
    assert lease.owner_id == owner.pk
    (listed,) = api(owner, "read")("GET", "hardware")["results"]
    assert listed["counts"] == {"gpu": {"ready": 1}}
    shown = api(owner, "read")("GET", f"hardware/{report}")
    assert [(one["id"], one["leases"]) for one in shown["devices"]] == [(READY, [lease.pk])]
    assert (shown["facts"], shown["warnings"], shown["message"], shown["agent"]) == (None, [], "", None)
    assert UUID["dmi_uuid"] not in json.dumps(shown)
    api(eve, "read")("GET", f"hardware/{report}", code=404)
    api(owner, "lease")("POST", f"hardware/{report}/scan", {}, code=403)
    api(chief, "lease")("POST", f"hardware/{report}/scan", {}, code=403)


def test_the_list_of_an_owner_unpacks_no_report_and_reads_no_secrets(api, chief, owner, reporter, ask, monkeypatch):
    ask("accelerator", requirements={"class": "gpu"})
    read = reported.unpacked
    with monkeypatch.context() as patched, CaptureQueriesContext(connection) as said:
        patched.setattr(reported, "unpacked", lambda _: pytest.fail("a report was unpacked"))
        (listed,) = api(owner, "read")("GET", "hardware")["results"]
        api(chief, "read")("GET", "resources"), api(owner, "read")("GET", "leases"), api(owner, "read")("GET", "jobs")
        agents.agents(caller(chief))
    assert listed["counts"] == {"gpu": {"ready": 1}}
    of = re.compile(r"FROM .(leases_(lease|resource|agent|job|reportedhardware))\b")
    lists = [one["sql"] for one in said if of.search(one["sql"])]
    assert lists
    assert not [one for one in lists if re.search(r"\.\"(secrets|stdin|env|content)\"", one)]

    # An earlier version has not stored the readiness of each device.
    finding = Finding.objects.get(resource__leases__owner=owner)
    del finding.draft["facts"]["device"]["readiness"]
    finding.save()
    unpacked = []
    monkeypatch.setattr(reported, "unpacked", lambda content: unpacked.append(1) or read(content))
    assert api(owner, "read")("GET", "hardware")["results"][0]["counts"] == {"gpu": {"ready": 1}}
    assert unpacked == [1]
    monkeypatch.undo()
    finding.draft["facts"]["device"]["readiness"], finding.draft["attributes"]["health"] = "ready", "failed"
    finding.save()
    assert api(owner, "read")("GET", "hardware")["results"][0]["counts"] == {"gpu": {"failed": 1}}


def test_a_scan_orders_the_agent_to_report(api, chief, reporter):
    report = Sync.objects.get(hardware__isnull=False).pk
    asked = api(chief, "operate")("POST", f"hardware/{report}/scan", {}, code=202)
    assert (asked["by"], asked["agent"]) == ("agent", reporter.pk)
    (order,) = agents.agent(caller(chief), reporter.pk).orders
    assert (order.id, order.action, order.state) == (asked["order"], "discovery", "waiting")
    agents.revoke_agent(caller(chief), reporter.pk)
    said = api(chief, "operate")("POST", f"hardware/{report}/scan", {}, code=409)
    assert "No agent reports" in said["detail"]


def test_a_scan_lets_a_worker_read_a_host_that_drydock_reads_itself(blueprint, host, chief):
    made = blueprint("read", kind="accelerators", resource_type="accelerator", max_resources=0)
    settle()
    sync, _ = Sync.objects.update_or_create(
        blueprint=made, place=str(host.pk), defaults={"due_at": "2050-01-01T00:00Z", "token": None}
    )
    asked = agents.scan_hardware(caller(chief), sync.pk)
    assert (asked.by, asked.order) == ("discovery", None)
    settle()
    info = agents.hardware_report(caller(chief), sync.pk)
    assert info.next_at != asked.next_at
    assert info.state == "failing"
    assert "no control account" in info.message


def test_the_last_report_is_kept_once_and_only_rewritten_when_it_changes(reporter, chief):
    before = ReportedHardware.objects.get()
    with CaptureQueriesContext(connection) as sent:
        assert not reporter.report().stored
    assert not [one for one in sent.captured_queries if "reportedhardware" in one["sql"]]
    reporter.report(*DEVICES[:2], warnings=(ScanWarning(subject="nvidia-smi", message="It did not end in 20 s."),))
    after = ReportedHardware.objects.get()
    assert after.changed_at > before.changed_at
    assert after.counts == {"gpu": {"ready": 1}}
    info = agents.hardware_report(caller(chief), after.pk)
    assert info.warnings == ("nvidia-smi: It did not end in 20 s.",)


def test_of_a_report_that_is_too_large_the_counts_are_kept(reporter, chief, monkeypatch):
    monkeypatch.setattr(discovery, "MOST_HARDWARE", 200)
    reporter.report(*DEVICES[:3])
    row = ReportedHardware.objects.get()
    assert (row.content, row.counts) == (None, {"gpu": {"ready": 1, "setup_required": 1}})
    info = agents.hardware_report(caller(chief), row.pk)
    assert info.devices == ()
    assert "only its counts are kept" in info.message


def test_a_silent_agent_is_shown_with_the_hardware(reporter, chief):
    Agent.objects.update(silent_since=clock.now())
    (info,) = agents.hardware_reports(caller(chief))
    assert info.state == "silent"
    assert "not every 60 s" in info.message


def test_a_host_that_is_gone_and_a_removed_blueprint_show_nothing(reporter, chief, host):
    report = Sync.objects.get(hardware__isnull=False).pk
    assert agents.hardware_report(caller(chief), report).devices
    Resource.objects.filter(pk=host.pk).update(gone_at=clock.now())
    assert agents.hardware_reports(caller(chief)) == []
    with pytest.raises(NotFound):
        agents.hardware_report(caller(chief), report)


def test_a_list_of_hosts_takes_as_many_statements_for_one_as_for_fifty(reporter, cards, host, chief):
    who = caller(chief)

    def statements():
        with CaptureQueriesContext(connection) as sent:
            found = agents.hardware_reports(who)
        return len(found), len(sent)

    one = statements()
    content = ReportedHardware.objects.get().content
    for n in range(49):
        other = Resource.objects.create(blueprint=host.blueprint, type="host", name=f"host-{n}", state="active")
        sync = Sync.objects.create(blueprint=cards, place=str(other.pk), source="sent")
        ReportedHardware.objects.create(sync=sync, digest="", content=content, size=1)
    assert one[0] == 1
    assert statements() == (50, one[1])
    assert len(agents.hardware_reports(who, limit=20)) == 20
