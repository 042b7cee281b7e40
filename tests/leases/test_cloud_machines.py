"""What is done to machines of emulated clouds on purpose; each machine is a real SSH server."""

from __future__ import annotations

import os
import subprocess

import pytest

from blueprints.models import Listing
from drydock.core import clock
from drydock.core.errors import InvalidRequest
from leases.messaging.inline import settle
from leases.models import Event, Resource, Run
from leases.operations import callers, interfaces, machines
from tests.clouds.ec2.plan import Fault
from tests.leases.emulated import gone, interface, look, ready

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make accounts for leases"),
    pytest.mark.timeout(600),
]


@pytest.fixture
def ada(owner):
    return callers.caller(owner)


def held(cloud, ask, until):
    cloud.blueprint()
    look()
    return ready(ask("host", exclusive=True, cpu_millicores=2000), until)


def done(lease, seconds=200):
    """What came of the last act, once nothing is under way."""
    end = clock.monotonic() + seconds
    while Run.objects.exists():
        settle()
        assert clock.monotonic() < end, list(Run.objects.values("phase", "step", "sentence"))
        clock.sleep(0.05)
    return Event.objects.filter(kind__in=("machine.done", "machine.failed")).order_by("-id").first()


def larger(resource):
    """Another type of the machine's own zone, family, architecture and market."""
    there = Listing.objects.filter(
        available=True, location=resource.attributes["region"], zone=resource.attributes.get("zone") or "",
        arch=resource.attributes["arch"], market="on_demand", gpu_count=0,
    )  # fmt: skip
    now = there.get(type=resource.attributes["instance_type"])
    same = there.filter(family=now.family).exclude(pk=now.pk)
    return same.filter(type__startswith=now.type[:2], vcpus__gte=2).order_by("price", "id").first()


def test_a_machine_is_rebooted_grown_tagged_stopped_started_and_retyped(cloud, ask, until, ada):
    lease = held(cloud, ask, until)
    assert set(machines.get(ada, lease.pk).capabilities) == {
        "stop-start", "reboot", "resize-volume", "change-type", "tags", "console-output",
    }  # fmt: skip
    machines.reboot(ada, lease.pk)
    assert done(lease).message == "The machine was rebooted."
    assert interface(lease, "command").check(["echo", "back"]).text == "back\n"
    machines.resize_volume(ada, lease.pk, 100)
    assert done(lease).message == "The disk was resized to 100 GiB."
    machines.set_tags(ada, lease.pk, {"team": "blue"})
    assert done(lease).message == "Tags were set: team."
    with pytest.raises(InvalidRequest, match="reserves names"):
        machines.set_tags(ada, lease.pk, {{"ec2": "aws:x", "gce": "googx", "azure": "azure-x"}[cloud.kind]: "1"})
    machines.stop(ada, lease.pk)
    until(lease.resource, power="off", seconds=120)
    look("status")
    lease.refresh_from_db()
    assert lease.state == "active"
    machines.start(ada, lease.pk)
    until(lease.resource, power="on", seconds=200)
    assert interface(lease, "command").check(["echo", "back"]).text == "back\n"
    gone()
    assert cloud.double.objects() == {}


def test_another_type_is_stopped_changed_and_started(cloud, ask, until, ada):
    lease = held(cloud, ask, until)
    other = larger(lease.resource)
    machines.change_type(ada, lease.pk, other.type)
    assert done(lease).kind == "machine.done"
    resource = Resource.objects.get()
    assert (resource.attributes["instance_type"], resource.price) == (other.type, other.price)
    assert resource.total_cpu_millicores == resource.used_cpu_millicores == 1000 * other.vcpus
    look("status")
    resource.refresh_from_db()
    assert resource.facts["seen"]["type"] == other.type
    assert interface(lease, "command").check(["echo", "back"]).text == "back\n"
    gone()
    assert cloud.double.objects() == {}


def test_what_cannot_be_had_as_its_new_type_is_the_old_one_again(amazon, ask, until, ada):
    lease = held(amazon, ask, until)
    before = lease.resource.attributes["instance_type"]
    other = larger(lease.resource)
    words = "We currently do not have sufficient capacity."
    amazon.double.plan.add(
        Fault(action="StartInstances", code="InsufficientInstanceCapacity", message=words, status=500, times=1)
    )
    machines.change_type(ada, lease.pk, other.type)
    said = done(lease)
    assert said.kind == "machine.failed"
    assert "do not have sufficient capacity" in said.message
    assert f"instance type is {before} again, and it runs" in said.message
    look("status")
    resource = Resource.objects.get()
    assert resource.facts["seen"]["type"] == resource.attributes["instance_type"] == before
    lease.refresh_from_db()
    assert lease.state == "active"
    assert interface(lease, "command").check(["echo", "back"]).text == "back\n"
    gone()


def test_a_console_shows_no_key_of_the_machine(amazon, ask, until, ada):
    lease = held(amazon, ask, until)
    private = lease.resource.secrets["host_private"]
    amazon.double.consoles[lease.resource.facts["instance_id"]] = f"cloud-init: {private}\nlogin: "
    shown = machines.console(ada, lease.pk).text
    assert "login: " in shown
    assert not any(line in shown for line in private.splitlines())
    gone()


def test_a_receipt_leads_there(amazon, ask, until, ada, tmp_path):
    lease = held(amazon, ask, until)
    receipt = interfaces.access(ada, lease.pk)
    (tmp_path / "known").write_text(receipt.known_hosts)
    (tmp_path / "key").write_text(lease.secrets["private_key"])
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "config").write_text(receipt.ssh_config)
    options = ["-o", f"UserKnownHostsFile={tmp_path}/known", "-o", f"IdentityFile={tmp_path}/key"]
    found = subprocess.run(
        ["ssh", "-F", str(tmp_path / "config"), *options, f"drydock-{lease.pk}", "id", "-un"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert found.stdout.strip() == receipt.user, found.stderr
    assert receipt.host_keys[0].fingerprint.startswith("SHA256:")
    assert receipt.command == f"ssh -p {receipt.port} {receipt.user}@{receipt.host}"
    gone()
