"""Workloads as systemd units of a host: from the request to the proof that nothing of them is left."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from blueprints.accounts.access import prefix
from blueprints.hostshell import HostShell
from blueprints.models import Credential
from blueprints.units import Unit, UnitJobs, removed_all
from blueprints.units.values import FOLDER
from drydock.core.errors import InvalidRequest
from interfaces.command import JobSpec, ShellCommand
from interfaces.errors import NotStarted
from leases.engine.core import specs
from leases.engine.core.database import run
from leases.messaging.inline import settle
from leases.models import Job
from leases.operations import jobs, leases, resources
from leases.operations.callers import caller
from leases.workloads import jobs as mechanism
from leases.workloads import polling
from tests.blueprints import host_peers as peers
from tests.blueprints.host_peers import WORKER
from tests.blueprints.units.host import registered, unit_host
from tests.leases.test_death import in_child
from tests.leases.test_workload_hosts import _end_all as end_all
from tests.leases.test_workload_hosts import begun, ended, output

pytestmark = [pytest.mark.timeout(300, func_only=True), pytest.mark.usefixtures("soon")]
PORTS = ["18080/tcp", "15353/udp"]


@pytest.fixture(autouse=True)
def _alone():
    peers.needs_root()
    with peers.alone():
        yield


@pytest.fixture
def host(blueprint, monkeypatch, tmp_path):
    """A host with systemd, podman and firewalld, as far as can be seen over SSH."""
    with unit_host(f"127.9.1.{WORKER + 141}", monkeypatch, tmp_path) as found:
        Credential.objects.create(name="control", secrets={"private_key": found.server.control.private})
        blueprint("lab", kind="ssh_host", resource_type="host", config={"credential": "control", "min_free_mib": 1})
        root = User.objects.create_superuser("root")
        resources.register(caller(root), "lab", registered(found))
        yield found
        end_all()
        assert found.left() == []
        assert not Path(FOLDER).exists()


@pytest.fixture
def archives(tmp_path, settings):
    """The folder of image archives; a file in it that podman's stand-in takes for an image."""
    folder = tmp_path / "archives"
    folder.mkdir()
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"archives": folder})

    def make(content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        (folder / f"{sha256}.tar").write_bytes(content)
        return sha256

    return make


def works(ask, command, more=None, **given):
    return ask("host", workload={"image": "alpine", "command": command, **(more or {})}, **given)


def unit_files(host) -> list[Path]:
    return list(Path(f"/proc/{host.server.popen.pid}/root/run/systemd/system").glob("*.service"))


def text_of_unit(host) -> str:
    (path,) = unit_files(host)
    return path.read_text()


def test_a_container_is_a_unit_with_the_limits_of_its_lease_and_leaves_nothing(host, ask, until):
    line = "echo as $(id -u) in $PIN; sleep 300"
    lease = works(ask, line, more={"env": {"PIN": "4711"}}, cpu_millicores=500, ram_mib=256)
    job = begun(lease, until)
    lease.refresh_from_db()
    text = text_of_unit(host)
    assert "CPUQuota=50%\n" in text
    assert "MemoryMax=256M\n" in text
    assert "4711" not in text + host.asked
    peers.eventually(lambda: b"4711" in jobs.output(caller("ada"), job.pk).content, 30)
    polling.poll(lease.pk)
    leases.release(caller("ada"), lease.pk)
    found = ended(lease, until)
    assert output(found) == f"as {lease.facts['uid'] << 16} in 4711\n".encode()
    assert (found.workload.unit, found.workload.outcome) == (True, "cut")
    assert (found.metrics.scope, found.metrics.cpu_core_seconds) == ("cgroup", 2.5)
    assert (found.metrics.network_in_bytes, found.metrics.network_out_bytes) == (1000, 2000)
    assert found.metrics.memory_peak_mib == 128
    assert unit_files(host) == []
    assert host.left() == []
    assert not peers.alive(lease.facts["uid"] << 16)


def test_the_exit_code_of_a_unit_is_that_of_its_lease(host, ask, until):
    found = ended(works(ask, "echo made; exit 3"), until)
    assert (found.workload.outcome, found.workload.exit_code, found.workload.unit) == ("exited", 3, True)
    assert output(found) == b"made\n"
    assert found.metrics.cpu_core_seconds == 2.5, "the counters at its end were kept"


def test_ports_are_open_while_the_lease_lasts(host, ask, until):
    lease = works(ask, "sleep 300", more={"ports": [18080, "15353/udp"]})
    begun(lease, until)
    assert host.ports == sorted(PORTS)
    assert list(leases.get(caller("ada"), lease.pk).workload.ports) == PORTS
    run("UPDATE leases_lease SET until = clock_timestamp() WHERE id = %s", (lease.pk,))
    assert ended(lease, until).workload.outcome == "cut"
    assert host.ports == []


def test_a_lease_is_not_over_before_its_ports_are_closed(host, ask, until):
    lease = works(ask, "sleep 300", more={"ports": PORTS})
    begun(lease, until)
    host.breaks("stuck")
    leases.release(caller("ada"), lease.pk)
    for _ in range(5):
        settle()
    lease.refresh_from_db()
    assert lease.state == "released"
    assert len(host.ports) == 2
    host.mended("stuck")
    ended(lease, until)
    assert host.ports == []


def test_a_port_that_another_lease_has_is_refused_and_stays_open(host, ask, until):
    begun(first := works(ask, "sleep 300", more={"ports": PORTS}), until)
    key = specs.lease_view(type(first).objects.get(pk=first.pk)).key
    second = ended(works(ask, "sleep 300", more={"ports": [18080]}), until)
    assert second.workload.outcome == "lost"
    assert f"The port 18080/tcp of this host belongs to drydock-lease-{key}.service." in second.workload.message
    assert host.ports == sorted(PORTS), "the first workload needs it still"
    leases.release(caller("ada"), first.pk)
    ended(first, until)
    assert host.ports == []
    begun(third := works(ask, "sleep 300", more={"ports": [18080]}), until)
    assert host.ports == ["18080/tcp"]
    leases.release(caller("ada"), third.pk)
    ended(third, until)


@pytest.mark.slow
def test_a_port_that_the_operator_has_opened_stays_open(host, ask, until):
    (host.folder / "state" / "ports").mkdir()
    (host.folder / "state" / "ports" / "18080_tcp").touch()
    ended(works(ask, "exit 0", more={"ports": PORTS}), until)
    assert host.ports == ["18080/tcp"]


@pytest.mark.parametrize("moment", [pytest.param("before the host is asked", marks=pytest.mark.slow), "after it was"])
def test_a_worker_killed_while_it_begins_a_unit_starts_no_second_one(host, ask, until, moment):
    lease = works(ask, "echo once; sleep 300")

    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    def work():
        setattr(mechanism, "_spec" if moment.startswith("before") else "_apply", die)
        while True:
            settle()

    assert in_child(work) == -signal.SIGKILL
    begun(lease, until)
    settle()
    assert host.asked.count("systemctl start") == 1
    leases.release(caller("ada"), lease.pk)
    assert output(ended(lease, until)) == b"once\n"


@pytest.mark.slow
def test_a_cancelled_unit_ends_its_lease(host, ask, until):
    job = begun(lease := works(ask, "trap '' TERM; while :; do sleep 1; done"), until)
    jobs.cancel(caller("ada"), job.pk)
    assert ended(lease, until).workload.outcome == "cancelled"


def test_an_archive_is_copied_verified_and_run(host, ask, until, archives, monkeypatch):
    monkeypatch.setattr("blueprints.units.jobs._PIECE", 1 << 10)
    sha256 = archives(b"an image" + 5000 * b".")
    lease = ask("host", workload={"archive": sha256, "command": ["echo", "unpacked"]})
    found = ended(lease, until)
    assert output(found) == b"unpacked\n"
    assert (found.workload.archive, found.workload.outcome) == (sha256, "exited")
    assert "podman pull" not in host.asked


@pytest.mark.slow
def test_an_archive_goes_on_where_a_worker_has_left_off(host, ask, until, archives, monkeypatch):
    monkeypatch.setattr("blueprints.units.jobs._PIECE", 1 << 10)
    sent = []
    receive = UnitJobs._receive

    def stopped(self, offset, piece):
        sent.append(offset)
        if len(sent) == 4:
            raise mechanism.DeadlineExceeded("enough")
        return receive(self, offset, piece)

    monkeypatch.setattr(UnitJobs, "_receive", stopped)
    monkeypatch.setattr(mechanism, "SILENT", 0.0)
    lease = ask("host", workload={"archive": archives(b"an image" + 5000 * b"."), "command": "echo unpacked"})
    assert output(ended(lease, until)) == b"unpacked\n"
    assert sent[:4] == [0, 0, 1024, 2048]
    assert sent[4:6] == [0, 2048], "asked anew, and then from there"


def test_another_archive_than_the_requested_one_is_not_run(host, ask, until, archives):
    sha256 = archives(b"an image")
    path = host.folder / "archives" / f"{sha256}.tar"
    path.write_bytes(b"an image with more in it")
    found = ended(ask("host", workload={"archive": sha256, "command": "echo unpacked"}), until)
    assert found.workload.outcome == "bad_archive"
    assert "load --quiet" not in host.asked
    assert sha256 in found.workload.message


@pytest.mark.slow
def test_an_archive_that_no_worker_has(host, ask, until):
    found = ended(ask("host", workload={"archive": 64 * "a", "command": "true"}), until)
    assert found.workload.outcome == "lost"
    assert "DRYDOCK_ARCHIVES" in found.workload.message


def test_a_unit_that_systemd_does_not_start(host, ask, until):
    host.breaks("broken")
    (host.folder / "state" / "broken").touch()
    found = ended(works(ask, "true", more={"ports": PORTS}), until)
    assert found.workload.outcome == "lost"
    assert "Unit is masked" in found.workload.message
    assert host.ports == []


@pytest.mark.slow
def test_an_image_that_cannot_be_pulled(host, ask, until):
    found = ended(ask("host", workload={"image": "missing/one"}), until)
    assert found.workload.outcome == "no_image"
    assert b"manifest unknown" in output(found)


@pytest.mark.slow
def test_all_units_of_a_host_are_removed_when_it_is_handed_back(host, ask, until):
    begun(lease := works(ask, "sleep 300", more={"ports": PORTS}), until)
    uid = type(lease).objects.get(pk=lease.pk).facts["uid"] << 16
    lease.refresh_from_db()
    view = specs.lease_view(lease)
    there = HostShell(specs._reach(lease.resource), 60)
    assert removed_all(there, prefix(view.resource))
    assert (host.ports, host.left(), unit_files(host)) == ([], [], [])
    peers.eventually(lambda: not peers.alive(uid), 10)
    assert Job.objects.filter(lease=lease).exists()


def test_where_there_is_no_systemd_containers_are_jobs_and_ports_are_refused(blueprint, ask, until):
    with peers.server(f"127.9.1.{WORKER + 151}") as server:
        Credential.objects.create(name="control", secrets={"private_key": server.control.private})
        blueprint("lab", kind="ssh_host", resource_type="host", config={"credential": "control", "min_free_mib": 1})
        resources.register(caller(User.objects.create_superuser("root")), "lab", server.registration())
        found = ended(works(ask, "true", more={"ports": PORTS}), until)
        assert (found.workload.outcome, found.workload.unit) == ("no_units", False)
        assert "systemd" in found.workload.message
        assert ended(works(ask, "true"), until).workload.outcome == "no_podman"
        end_all()


@pytest.mark.parametrize(
    ("workload", "says"),
    [
        ({"image": "alpine", "ports": ["80/tcp"]}, "1024"),
        ({"image": "alpine", "ports": ["http"]}, "write it like 8080/tcp"),
        ({"image": "alpine", "ports": [8080, "8080/tcp"]}, "twice"),
        ({"command": "true", "ports": [8080]}, "ports require an image"),
        ({"image": "alpine", "archive": 64 * "a"}, "cannot be combined"),
        ({"archive": "sha256:" + 64 * "a"}, "archive"),
        ({"archive": 64 * "a", "env": {"PATH": "/"}}, "podman on the host would read PATH"),
        ({"archive": 64 * "a", "cwd": "here"}, "absolute"),
    ],
)
def test_workloads_that_no_host_could_run_are_refused(ask, workload, says):
    with pytest.raises(InvalidRequest, match=says):
        ask("host", workload=workload)


def test_an_account_has_one_unit(host, ask, until):
    begun(lease := works(ask, "sleep 300"), until)
    view = specs.lease_view(type(lease).objects.get(pk=lease.pk))
    below, found = specs.unit_host_of(view)
    assert below is view
    unit = Unit(key="dd-x-1-l9", account=found.account)
    other = UnitJobs(ShellCommand(found.transport, still_mine=lambda: None), unit)
    with pytest.raises(NotStarted, match=f"already runs drydock-lease-{view.key}"):
        other.start(JobSpec(id="j", words=["true"]))
    leases.release(caller("ada"), lease.pk)
    ended(lease, until)
