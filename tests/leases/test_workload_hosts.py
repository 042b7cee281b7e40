"""Workloads on real hosts: real processes of the lease's own account, here and over SSH, to their end and after it."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from blueprints.local import claims
from blueprints.models import Credential
from interfaces.command import container
from leases.engine.core import specs
from leases.engine.core.database import run
from leases.messaging.inline import settle
from leases.models import Event, Job
from leases.models.job import Watch
from leases.operations import jobs, leases, resources
from leases.operations.callers import caller
from leases.workloads import jobs as mechanism
from leases.workloads import polling
from tests.blueprints import host_peers as peers
from tests.blueprints.host_peers import FIRST_UID, WORKER
from tests.clouds.machines import Machines
from tests.interfaces.test_container import stand_in
from tests.leases import emulated
from tests.leases.test_death import in_child
from tests.peers import require

pytestmark = [pytest.mark.timeout(400, func_only=True), pytest.mark.usefixtures("soon")]
BUSY = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done"


@pytest.fixture(autouse=True)
def _alone():
    peers.needs_root()
    with peers.alone():
        yield


@pytest.fixture
def local(blueprint, monkeypatch):
    """This machine."""
    folder = Path(tempfile.mkdtemp(prefix="drydock-hosts-", dir="/tmp"))
    folder.chmod(0o711)
    monkeypatch.setattr(claims, "FOLDER", folder / "uids")
    with peers.removed(folder):
        config = {"folder": str(folder / "hosts"), "slots": 3, "first_uid": FIRST_UID, "uids": 50}
        blueprint("here", kind="local_host", resource_type="host", config=config)
        yield
        _end_all()


@pytest.fixture
def ssh(blueprint):
    """A host over SSH."""
    with peers.server(f"127.9.1.{WORKER + 131}") as server:
        Credential.objects.create(name="control", secrets={"private_key": server.control.private})
        blueprint("lab", kind="ssh_host", resource_type="host", config={"credential": "control", "min_free_mib": 1})
        root = User.objects.create_superuser("root")
        resources.register(caller(root), "lab", server.registration())
        yield
        _end_all()


def _end_all():
    from leases.engine.resources import retirement
    from leases.models import Lease, Resource
    from leases.reasons import Reason

    Lease.objects.filter(state__in=["pending", "acquired", "active"]).update(release_wanted="released")
    peers.eventually(lambda: settle() is not None and not Lease.objects.filter(ended_at=None).exists(), 120)
    for resource in Resource.objects.filter(gone_at=None):
        retirement.retire_idle(resource.pk, reason=Reason.OPERATOR, message="enough", unwanted=True)
    peers.eventually(lambda: settle() is not None and not Resource.objects.filter(gone_at=None).exists(), 120)


@pytest.fixture(params=["local", "ssh"])
def host(request):
    return request.getfixturevalue(request.param)


def works(ask, line, **given):
    return ask("host", workload={"command": line, **given.pop("more", {})}, **given)


def ended(lease, until, seconds=150):
    until(lease, seconds=seconds, state="destroyed")
    return leases.get(caller("ada"), lease.pk)


def begun(lease, until):
    until(lease, seconds=120, state="active")
    peers.eventually(lambda: settle() is not None and Job.objects.filter(lease=lease, state="running").exists(), 60)
    return Job.objects.get(lease=lease)


def output(found):
    return jobs.output(caller("ada"), found.workload.job).content


def test_a_workload_runs_is_measured_and_its_output_outlives_the_host(host, ask, until):
    found = ended(works(ask, f"echo by $WHO; {BUSY}; exit 3", more={"env": {"WHO": "it's me"}}), until)
    assert (found.workload.outcome, found.workload.exit_code) == ("exited", 3)
    assert output(found) == b"by it's me\n"
    assert found.metrics.cpu_core_seconds > 0.05
    assert found.metrics.complete
    assert found.metrics.network_in_bytes is None, "nobody counts it for one of several accounts"
    assert Event.objects.get(lease=found.id, to_state="released").reason == "workload_failed"


def test_a_signal_is_told_from_an_exit(host, ask, until):
    found = ended(works(ask, ["sh", "-c", "kill -9 $$"]), until)
    assert (found.workload.outcome, found.workload.signal) == ("signal", 9)


def test_what_runs_is_measured_while_it_runs_and_ends_with_the_time_of_its_lease(host, ask, until):
    lease = works(ask, f"echo begun; while :; do {BUSY}; done", metrics=True)
    begun(lease, until)
    account = lease.facts
    for _ in range(2):
        polling.poll(lease.pk)
        seen = Watch.objects.get(lease=lease)
    assert seen.samples >= 2
    assert seen.sample["memory"] > 0
    run("UPDATE leases_lease SET until = clock_timestamp() WHERE id = %s", (lease.pk,))
    found = ended(lease, until)
    assert found.workload.outcome == "cut"
    assert output(found) == b"begun\n"
    assert found.metrics.cpu_core_seconds > seen.cpu_seconds
    assert found.metrics.memory_mib_seconds > 0
    assert not peers.alive(int(account.get("uid") or FIRST_UID))


def test_a_cancelled_workload_ends_its_lease(host, ask, until):
    lease = works(ask, "sleep 300")
    job = begun(lease, until)
    jobs.cancel(caller("ada"), job.pk)
    assert ended(lease, until).workload.outcome == "cancelled"


@pytest.mark.parametrize("moment", ["before the host is asked", "after it was"])
def test_a_worker_killed_while_it_begins_a_workload_starts_no_second_one(host, ask, until, moment):
    lease = works(ask, 'echo started >>"$HOME/starts"; echo once; sleep 300')

    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    def work():
        setattr(mechanism, "_spec" if moment.startswith("before") else "_apply", die)
        while True:
            settle()

    assert in_child(work) == -signal.SIGKILL
    job = begun(lease, until)
    view = specs.lease_view(type(lease).objects.get(pk=lease.pk))
    peers.eventually(lambda: view.interface("filesystem").exists("starts"), 30)
    settle()
    assert view.interface("filesystem").read_text("starts") == "started\n"
    assert Job.objects.get(lease=lease).pk == job.pk
    leases.release(caller("ada"), lease.pk)
    assert output(ended(lease, until)) == b"once\n"


@pytest.mark.slow
def test_a_worker_killed_while_a_workload_ends_loses_neither_output_nor_figures(host, ask, until):
    lease = works(ask, f"{BUSY}; echo result; sleep 1; exit 5")
    begun(lease, until)

    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    def work():
        mechanism._written = die
        while True:
            settle()

    assert in_child(work) == -signal.SIGKILL
    found = ended(lease, until)
    assert (found.workload.exit_code, output(found)) == (5, b"result\n")
    assert found.metrics.cpu_core_seconds > 0.05


def test_a_container_begins_and_goes_with_its_lease(host, ask, until, monkeypatch):
    """Podman's stand-in, for no test has a network to pull an image over; what a real one is told is the same."""
    folder = Path(tempfile.mkdtemp(prefix="dd-podman-", dir="/tmp"))
    monkeypatch.setattr(container, "PODMAN", stand_in(folder))
    try:
        lease = ask("host", workload={"image": "alpine", "command": "echo in $PIN; sleep 300", "env": {"PIN": "4711"}})
        begun(lease, until)
        name = specs.key("l", lease.pk)
        peers.eventually(lambda: (folder / name).exists(), 30)
        leases.release(caller("ada"), lease.pk)
        assert output(ended(lease, until)) == b"in 4711\n"
        asked = (folder / "log").read_text()
        assert asked.splitlines()[-1] == f"rm --force --ignore --time 0 {name}"
        assert "4711" not in asked
        assert not (folder / name).exists()
        missing = ended(ask("host", workload={"image": "missing/one"}), until)
        assert missing.workload.outcome == "no_image"
        assert b"manifest unknown" in output(missing)
    finally:
        for one in folder.iterdir():
            one.unlink()
        folder.rmdir()


def test_a_host_without_podman_says_what_to_do(host, ask, until, monkeypatch):
    monkeypatch.setattr(container, "PODMAN", "no-such-podman")
    found = ended(ask("host", workload={"image": "alpine"}), until)
    assert found.workload.outcome == "no_podman"
    assert "install it" in found.workload.message


@pytest.fixture
def amazon():
    """Amazon's double; its machines are real SSH servers."""
    require("sshd")
    require("sudo")
    machines = Machines()
    with emulated.ec2(machines) as found:
        yield found
        emulated.gone()
    machines.close()


def test_a_workload_on_a_cloud_machine_that_is_gone_afterwards(amazon, ask, until):
    amazon.blueprint()
    emulated.look()
    workload = {"command": f"echo in the cloud; {BUSY}; exit 4"}
    lease = emulated.ready(ask("host", exclusive=True, workload=workload), until)
    found = ended(lease, until)
    assert (found.workload.outcome, found.workload.exit_code) == ("exited", 4)
    assert found.metrics.scope == "machine"
    assert found.metrics.cpu_core_seconds > 0
    assert found.metrics.network_in_bytes is not None
    emulated.gone()
    assert amazon.double.objects() == {}
    assert output(found) == b"in the cloud\n"
