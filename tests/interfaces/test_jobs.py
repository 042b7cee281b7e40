"""Jobs: started once, read by offset, found again by another process, ended with what they left behind."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from drydock.core.errors import InvalidRequest
from interfaces.command import Job, Jobs, JobSpec, JobState
from interfaces.command.fake import FakeCommand
from interfaces.command.shell import ShellJobs
from interfaces.errors import ConnectionLost, DeadlineExceeded, JobConflict, JobMissing
from tests.interfaces.conftest import Peer
from tests.interfaces.test_command import STUBBORN, gone, sleepers


def over(jobs: Jobs, id: str) -> Job:
    return jobs.wait(id, timeout=60, every=0.05)


def until(jobs: Jobs, id: str, content: bytes) -> None:
    end = time.monotonic() + 30
    while content not in jobs.output(id).content:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_job_runs_and_leaves_its_exit_code_and_output(peer: Peer) -> None:
    jobs = peer.command.jobs
    spec = JobSpec(id="one", words="echo out; echo err >&2; echo $WHAT; pwd; exit 4", env={"WHAT": "it's"})
    assert jobs.start(spec).id == "one"
    job = over(jobs, "one")
    assert (job.state, job.exit_code, job.truncated) == (JobState.EXITED, 4, False)
    output = jobs.output("one")
    assert output.content == f"out\nerr\nit's\n{peer.home}\n".encode()
    assert output.over
    assert job.output_size == output.next_offset == len(output.content)


def test_a_job_reads_what_it_is_given_and_its_streams_may_be_kept_apart(peer: Peer) -> None:
    jobs = peer.command.jobs
    given = bytes(range(256)) * 5000
    spec = JobSpec(id="reads", words="sha256sum; echo err >&2", stdin=given, apart=True)
    jobs.start(spec)
    assert over(jobs, "reads").exit_code == 0
    assert jobs.output("reads").content.split()[0].decode() == hashlib.sha256(given).hexdigest()
    errors = jobs.output("reads", 0, 2, "stderr")
    assert (errors.content, errors.over) == (b"er", False)
    assert jobs.output("reads", errors.next_offset, stream="stderr").content == b"r\n"
    assert not [path for path in peer.home.rglob("*") if path.is_file() and given[:300] in path.read_bytes()]
    assert jobs.start(spec).state is JobState.EXITED
    for other in (dataclasses.replace(spec, stdin=b"x"), dataclasses.replace(spec, apart=False)):
        with pytest.raises(JobConflict):
            jobs.start(other)
    jobs.start(JobSpec(id="none", words="cat; echo end >&2"))
    over(jobs, "none")
    assert jobs.output("none").content == b"end\n"
    assert jobs.output("none", stream="stderr").content == b""


def test_exact_arguments(peer: Peer) -> None:
    jobs = peer.command.jobs
    jobs.start(JobSpec(id="exact", words=["printf", "%s|", "$(touch hit)", "a\nb", "ü'"], cwd="/"))
    assert over(jobs, "exact").exit_code == 0
    assert jobs.output("exact").content.decode() == "$(touch hit)|a\nb|ü'|"


def test_output_is_read_by_offset_while_it_runs(peer: Peer) -> None:
    jobs = peer.command.jobs
    jobs.start(JobSpec(id="talk", words="echo first; until [ -e go ]; do sleep 0.05; done; echo second"))
    until(jobs, "talk", b"first\n")
    part = jobs.output("talk", 0, 4)
    assert (part.content, part.next_offset, part.over) == (b"firs", 4, False)
    assert jobs.output("talk", 6).content == b""
    assert not jobs.output("talk", 6).over
    (peer.home / "go").touch()
    over(jobs, "talk")
    rest = jobs.output("talk", part.next_offset)
    assert (rest.content, rest.over) == (b"t\nsecond\n", True)


def test_started_twice_it_runs_once(peer: Peer) -> None:
    jobs = peer.command.jobs
    spec = JobSpec(id="once", words="echo ran >>ran; sleep 0.3")
    threads = [threading.Thread(target=jobs.start, args=(spec,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    over(jobs, "once")
    assert jobs.start(spec).state is JobState.EXITED
    assert (peer.home / "ran").read_text() == "ran\n"


def test_another_spec_under_the_same_id_is_refused(peer: Peer) -> None:
    jobs = peer.command.jobs
    jobs.start(JobSpec(id="same", words="true"))
    with pytest.raises(JobConflict):
        jobs.start(JobSpec(id="same", words="false"))
    over(jobs, "same")


def test_more_output_than_the_bound_is_dropped_and_the_job_goes_on(peer: Peer) -> None:
    jobs = peer.command.jobs
    line = "head -c 30000000 /dev/zero | tr '\\0' x; touch finished"
    jobs.start(JobSpec(id="loud", words=line, max_output=1 << 20))
    job = over(jobs, "loud")
    assert (job.exit_code, job.output_size, job.truncated) == (0, 1 << 20, True)
    assert (peer.home / "finished").exists()
    assert jobs.output("loud", (1 << 20) - 3).content == b"xxx"


def test_cancelling_ends_the_whole_family(peer: Peer) -> None:
    jobs = peer.command.jobs
    jobs.start(JobSpec(id="stubborn", words=f"echo up; {STUBBORN}"))
    until(jobs, "stubborn", b"up\n")
    assert jobs.status("stubborn").state is JobState.RUNNING
    assert sleepers(peer)
    with pytest.raises(JobConflict):
        jobs.remove("stubborn")
    assert jobs.cancel("stubborn").state is JobState.CANCELLED
    assert not sleepers(peer)
    assert jobs.cancel("stubborn").state is JobState.CANCELLED


def test_what_a_job_left_running_ends_with_it(peer: Peer) -> None:
    jobs = peer.command.jobs
    jobs.start(JobSpec(id="leaves", words="(setsid sleep 321 &); exit 0"))
    assert over(jobs, "leaves").exit_code == 0
    assert sleepers(peer)
    jobs.end_all()
    assert not sleepers(peer)
    assert jobs.list() == []


def test_cancelling_before_it_starts_keeps_it_from_starting(peer: Peer) -> None:
    peer.command.check("mkdir -p .drydock/jobs/never")
    jobs = peer.command.jobs
    assert jobs.status("never").state is JobState.STARTING
    assert jobs.cancel("never").state is JobState.CANCELLED
    jobs.start(JobSpec(id="never", words="touch hit"))
    assert not (peer.home / "hit").exists()


@pytest.mark.parametrize("code", ["abc", "99999999999999999999", "256", "-1", "a b", "1\nx exited 0 0 0", "٣"])
def test_an_exit_code_that_is_none_is_lost(peer: Peer, code: str) -> None:
    jobs = peer.command.jobs
    jobs.start(JobSpec(id="forged", words=["ln", "-s", "--", code, "../forged/exit"], cwd=".drydock/jobs/forged"))
    for job in (over(jobs, "forged"), *jobs.list()):
        assert (job.id, job.state, job.exit_code) == ("forged", JobState.LOST, None)
    jobs.remove("forged")


def test_a_folder_beside_those_of_the_jobs_is_no_job(peer: Peer) -> None:
    jobs = peer.command.jobs
    jobs.start(JobSpec(id="one", words="true"))
    over(jobs, "one")
    peer.command.check("cd .drydock/jobs && mkdir 'a b' \"$(printf 'x\\ny what 0 0 0')\"")
    assert [job.id for job in jobs.list()] == ["one"]


def test_a_job_killed_from_outside_is_lost(peer: Peer) -> None:
    jobs = peer.command.jobs
    jobs.start(JobSpec(id="victim", words="sleep 321"))
    assert gone(lambda: not sleepers(peer))
    peer.command.check("kill -9 $(readlink .drydock/jobs/victim/claim | cut -d. -f1)")
    assert gone(lambda: jobs.status("victim").state is JobState.RUNNING)  # a killed process may end a moment later
    job = jobs.status("victim")
    assert (job.state, job.exit_code) == (JobState.LOST, None)
    jobs.cancel("victim")
    assert not sleepers(peer)


def test_a_number_taken_by_another_process_is_not_mistaken_for_the_job(peer: Peer) -> None:
    jobs = peer.command.jobs
    other = peer.command.jobs
    other.start(JobSpec(id="bystander", words="sleep 321"))
    jobs.start(JobSpec(id="old", words="sleep 321"))
    # As if the old one's number had been given to the other: same number, another start time.
    peer.command.check(
        "cd .drydock/jobs && n=$(readlink bystander/claim | cut -d. -f1) && kill -9 $(readlink old/claim |"
        " cut -d. -f1) && rm old/claim && ln -s $n.1.boot old/claim"
    )
    assert jobs.status("old").state is JobState.LOST
    jobs.cancel("old")
    assert other.status("bystander").state is JobState.RUNNING
    other.cancel("bystander")
    assert not sleepers(peer)


def test_all_jobs_are_listed_and_removed(peer: Peer) -> None:
    jobs = peer.command.jobs
    assert jobs.list() == []
    for id in ("b", "a.1", "a"):
        jobs.start(JobSpec(id=id, words="true"))
    assert [job.id for job in jobs.list()] == ["a", "a.1", "b"]
    jobs.end_all()
    jobs.remove("a")
    assert jobs.list() == []


def test_what_is_not_there_is_missing(peer: Peer) -> None:
    for act in (peer.command.jobs.status, peer.command.jobs.output, peer.command.jobs.cancel):
        with pytest.raises(JobMissing):
            act("nothing")


@pytest.mark.parametrize("said", [b"", b"one runn", b"one running - 4"])
def test_half_an_answer_does_not_say_that_there_is_no_job(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShellJobs, "_ask", lambda *_, **__: said)
    jobs = ShellJobs(cast(Any, None), "jobs")
    for ask in (jobs.status, jobs.output, lambda id: jobs.remains(id, 1, 1)):
        with pytest.raises(ConnectionLost, match=re.escape(repr(said.decode()))):
            ask("one")


@pytest.mark.parametrize("id", ["", ".", "..", "a/b", "../x", "-rf", "a b", "a\n", "$(x)", "x" * 101])
def test_what_is_no_id_is_refused(peer: Peer, id: str) -> None:
    with pytest.raises(InvalidRequest):
        JobSpec(id=id, words="true")
    for act in (peer.command.jobs.status, peer.command.jobs.cancel, peer.command.jobs.remove):
        with pytest.raises(InvalidRequest):
            act(id)


def test_waiting_gives_up_and_the_job_goes_on(peer: Peer) -> None:
    jobs = peer.command.jobs
    jobs.start(JobSpec(id="long", words="sleep 321"))
    with pytest.raises(DeadlineExceeded):
        jobs.wait("long", timeout=0.3)
    assert jobs.status("long").state is JobState.RUNNING
    jobs.cancel("long")


STARTER = """
import json, os, sys
from interfaces.command import JobSpec, ShellCommand
from interfaces.endpoints import endpoint_from_json
from interfaces.transports import transport_to
given = json.loads(sys.stdin.read())
transport = transport_to(endpoint_from_json(given["endpoint"]), private_key=given["key"])
command = ShellCommand(transport, still_mine=lambda: None)
print(command.jobs.start(JobSpec(id="orphan", words="echo begun; until [ -e go ]; do sleep 0.05; done; exit 6")))
os.kill(os.getpid(), 9)
"""


def test_a_job_outlives_the_process_that_started_it(peer: Peer, request: pytest.FixtureRequest) -> None:
    import json

    key = request.getfixturevalue("sshd").user.private if peer.kind == "ssh" else ""
    endpoint = peer.transport.endpoint.to_json()  # type: ignore[attr-defined]
    given = json.dumps({"endpoint": endpoint, "key": key}).encode()
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", STARTER], input=given, cwd=root, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == -9, done.stderr
    jobs = peer.command.jobs
    assert jobs.status("orphan").state is JobState.RUNNING
    (peer.home / "go").touch()
    assert over(jobs, "orphan").exit_code == 6
    assert jobs.output("orphan").content == b"begun\n"


def test_secrets_of_a_job_do_not_stay_on_disk_or_in_the_list_of_processes(peer: Peer) -> None:
    jobs = peer.command.jobs
    jobs.start(JobSpec(id="quiet", words="sleep 321", env={"PASSWORD": "hunter2"}))
    assert gone(lambda: not sleepers(peer))
    assert "hunter2" not in str([process.info["cmdline"] for process in psutil.process_iter(["cmdline"])])
    files = [path for path in peer.home.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"hunter2" in path.read_bytes()]
    assert (peer.home / ".drydock/jobs/quiet").stat().st_mode & 0o077 == 0
    jobs.cancel("quiet")


def test_the_fake_behaves_alike() -> None:
    jobs = FakeCommand().jobs
    spec = JobSpec(id="one", words="work", max_output=4)
    assert jobs.start(spec).state is jobs.start(spec).state is JobState.RUNNING
    assert jobs.started == [spec]
    with pytest.raises(JobConflict):
        jobs.start(JobSpec(id="one", words="other"))
    jobs.say("one", b"abcdef")
    assert jobs.output("one", 1, 2).content == b"bc"
    assert jobs.output("one", stream="stderr").content == b""
    with pytest.raises(JobConflict):
        jobs.remove("one")
    with pytest.raises(DeadlineExceeded):
        jobs.wait("one", timeout=1)
    jobs.finish("one", 3)
    assert jobs.wait("one", timeout=1) == Job(
        id="one", state=JobState.EXITED, exit_code=3, output_size=4, truncated=True
    )
    jobs.start(JobSpec(id="two", words="x"))
    jobs.lose("two")
    assert [job.state for job in jobs.list()] == [JobState.EXITED, JobState.LOST]
    jobs.end_all()
    with pytest.raises(JobMissing):
        jobs.status("one")


def test_the_beginning_and_the_end_of_what_it_said_come_in_one_call(peer: Peer) -> None:
    jobs = peer.command.jobs
    jobs.start(JobSpec(id="talks", words="printf 'first%0100dlast' 0; exit 2"))
    over(jobs, "talks")
    left = jobs.remains("talks", 5, 4)
    assert (left.head, left.tail, left.size, left.job.exit_code) == (b"first", b"last", 109, 2)
    assert left.cpu_seconds is not None
    whole = jobs.remains("talks", 80, 80)
    assert len(whole.head + whole.tail) == 109
    with pytest.raises(JobMissing):
        jobs.remains("other", 5, 4)


def test_of_an_output_over_its_bound_the_end_is_kept_too(peer: Peer) -> None:
    jobs = peer.command.jobs
    jobs.start(JobSpec(id="much", words="head -c 400000 /dev/zero | tr '\\0' x; echo the end", max_output=1024))
    job = over(jobs, "much")
    assert (job.truncated, job.output_size) == (True, 1024)
    left = jobs.remains("much", 10, 8)
    assert (left.head, left.tail) == (b"x" * 10, b"the end\n")
    assert left.size > 1024
