"""Jobs outlive the connection that started them, run once, and end when they are told to."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from drydock_agent.disks.errors import DiskError
from drydock_agent.disks.jobs import Jobs
from drydock_agent.disks.machine import Machine
from tests.agent.disk_machine import DiskMachine


@pytest.fixture
def machine(tmp_path):
    one = DiskMachine(tmp_path / "machine")
    yield one
    one.stop_all()


def pid(machine: DiskMachine, job: str) -> int:
    return json.loads((machine.root / f"run/drydock-agent/jobs/{job}/state.json").read_text())["pid"]


def until(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def members(session: int) -> list[str]:
    """Return the names of the programs in a session that have not ended."""
    found = []
    for process in psutil.process_iter(["name", "status"]):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(process.pid) == session and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.info["name"])
    return found


def test_a_job_outlives_the_session_that_started_it_and_shows_its_progress(machine):
    machine.nvme(polls=7)
    starter = subprocess.Popen(
        [sys.executable, "-m", "drydock_agent.program", "disks", "--root", str(machine.root), "erase", "--job", "e-1"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=machine.environment(), cwd="/", start_new_session=True,
    )  # fmt: skip
    # The output ends with the starter, so the job does not hold the connection open.
    output, _ = starter.communicate(timeout=60)
    state = json.loads(output)
    assert (state["id"], state["state"], state["ended_at"]) == ("e-1", "running", "")
    with pytest.raises(ProcessLookupError):
        os.killpg(starter.pid, signal.SIGKILL)
    until(lambda: 0 < machine.show("e-1")["percent"] < 100)
    state = machine.show("e-1")
    assert state["sentence"].startswith("Erasing disks: nvme0n1 nvme_sanitize_crypto (")
    assert "result" not in state
    state = machine.wait("e-1")
    assert (state["state"], state["percent"], state["result"]["disks"][0]["verified"]) == ("done", 100, True)
    assert state["started_at"] < state["ended_at"]
    assert machine.run("jobs", "show", "e-1") == state


def test_a_job_that_is_started_twice_at_once_runs_once(machine):
    machine.nvme(polls=4)
    with ThreadPoolExecutor(3) as pool:
        states = list(pool.map(lambda _: machine.run("disks", "erase", "--job", "e-1", given={}), range(3)))
    assert {one["id"] for one in states} == {"e-1"}
    assert machine.wait("e-1")["state"] == "done"
    assert machine.state("nvme0")["calls"] == ["sanitize --sanact=4 --ause"]
    ended = machine.show("e-1")
    assert machine.run("disks", "erase", "--job", "e-1", given={}) == ended
    refusal = machine.refusal("disks", "erase", "--job", "e-1", given={"samples": 3})
    assert refusal["code"] == "conflict"
    assert machine.show("e-1") == ended


def test_one_job_at_a_time_works_on_the_disks_and_stopping_it_ends_its_tools(machine):
    machine.nvme()
    machine.install("blkdiscard", "#!/bin/sh\nsleep 1000\n")
    machine.run("disks", "erase", "--job", "e-1", given={"methods": {"allowed": ["discard"]}})
    session = pid(machine, "e-1")
    until(lambda: "sleep" in members(session))
    refusal = machine.refusal("disks", "erase", "--job", "e-2", given={})
    assert refusal == {"code": "busy", "message": "Job e-1 is at work on the disks. Wait for it, or stop it."}
    assert machine.show("e-2")["state"] == "unknown"
    assert machine.run("jobs", "stop", "e-1") == {"id": "e-1", "stopped": True}
    assert members(session) == []
    state = machine.show("e-1")
    assert (state["state"], state["error"]["code"]) == ("failed", "stopped")
    assert machine.run("jobs", "stop", "e-1") == {"id": "e-1", "stopped": True}
    machine.run("disks", "erase", "--job", "e-2", given={"methods": {"allowed": ["overwrite"]}})
    assert machine.wait("e-2")["state"] == "done"


def test_a_job_whose_process_was_killed_has_failed_and_its_tools_keep_the_disks(machine):
    machine.nvme()
    machine.install("blkdiscard", "#!/bin/sh\nsleep 1000\n")
    machine.run("disks", "erase", "--job", "e-1", given={"methods": {"allowed": ["discard"]}})
    session = pid(machine, "e-1")
    until(lambda: "sleep" in members(session))
    os.kill(session, signal.SIGKILL)
    state = machine.wait("e-1")
    assert (state["state"], state["error"]["code"]) == ("failed", "died")
    assert "result" not in state
    assert machine.refusal("disks", "erase", "--job", "e-2", given={})["code"] == "busy"
    assert machine.run("jobs", "stop", "e-1") == {"id": "e-1", "stopped": True}
    assert members(session) == []
    assert machine.show("e-1")["error"]["code"] == "died"
    machine.run("disks", "erase", "--job", "e-2", given={"methods": {"allowed": ["overwrite"]}})
    assert machine.wait("e-2")["state"] == "done"


def test_stopping_an_ended_job_does_not_touch_a_process_that_got_its_number(machine):
    machine.virtio()
    machine.erase("e-1")
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as other:
        path = machine.root / "run/drydock-agent/jobs/e-1/state.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"pid": other.pid}))
        assert machine.run("jobs", "stop", "e-1") == {"id": "e-1", "stopped": True}
        assert other.poll() is None
        other.kill()


def test_a_job_from_before_a_reboot_is_unknown(machine):
    state = machine.run("jobs", "show", "e-1")
    assert (state["state"], state["percent"]) == ("unknown", 0)
    assert machine.run("jobs", "stop", "e-1") == {"id": "e-1", "stopped": True}


def test_a_refused_job_was_not_started(machine):
    machine.virtio()
    machine.write("proc/self/mountinfo", "30 1 254:0 / /srv rw,relatime - ext4 /dev/vda rw\n")
    refusal = machine.refusal("disks", "erase", "--job", "e-1", given={})
    assert refusal == {"code": "busy", "message": "vda: The machine itself uses the disk: vda is mounted at /srv."}
    assert machine.show("e-1")["state"] == "unknown"


@pytest.mark.parametrize("id", ["", ".", "..", "../e-1", "a/b", "a b", ".hidden", "x" * 101, "ä", "a\n"])
def test_ids_of_jobs_are_no_paths(machine, id):
    jobs = Jobs(Machine(str(machine.root)))
    for call in (lambda: jobs.show(id), lambda: jobs.stop(id), lambda: jobs.start(id, "", lambda: lambda journal: {})):
        with pytest.raises(DiskError, match="is not a job id") as caught:
            call()
        assert caught.value.code == "bad_request"


def test_nothing_of_a_request_is_stored_and_only_root_can_read_the_state(machine):
    machine.virtio()
    machine.erase("e-1")
    folder = machine.root / "run/drydock-agent/jobs"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert sorted(os.listdir(folder / "e-1")) == ["lock", "log", "request.sha256", "state.json"]
    assert (folder / "e-1/log").read_text() == ""
