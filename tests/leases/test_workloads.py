"""A lease that carries a workload: begun once when it is active, its end is the lease's, and what it left is kept."""

from __future__ import annotations

import contextlib
import json

import pytest
from django.db import connection

from blueprints.fake.openers import fakes
from drydock.core.errors import Conflict, InvalidRequest
from interfaces.command.fake import Reply
from interfaces.deadline import Deadline
from interfaces.errors import DeadlineExceeded, Unreachable
from leases.engine.core import specs, workloads
from leases.engine.core.database import run
from leases.engine.resources import eviction
from leases.engine.upkeep import pruning
from leases.messaging import hints, inline
from leases.models import Event, Job, Lease
from leases.models.job import KeptOutput, Watch
from leases.operations import jobs, leases
from leases.operations.callers import caller
from leases.validation.requests import read
from leases.workloads import conclusion, polling
from leases.workloads import jobs as mechanism

MACHINE = """\
host boot 100 4096
stat cpu {ticks} 0 0 0
MemTotal: 3072
MemAvailable: 1024
net e: {net} 1 0 0 0 0 0 0 {net}
"""
HELD = "DRYDOCK_LEASE="


@pytest.fixture
def ada(owner):
    return caller(owner)


@pytest.fixture
def active(blueprint, ada):
    """Ask for a lease with a workload, and settle."""
    blueprint()

    def make(**workload):
        asked = {"type": "fake", "workload": {"command": ["make", "all"], **workload}}
        pk = leases.request(ada, asked)
        settle()
        return pk

    return make


def settle():
    """What is due, and what comes due by it."""
    inline.settle()
    inline.settle()


def host(lease):
    return fakes(specs.key("l", lease)).command


def finish(lease, exit_code=0, **left):
    host(lease).jobs.finish(mechanism.host_id(Job.objects.get(lease=lease)), exit_code, **left)
    mechanism.watch(Job.objects.get(lease=lease).pk)
    settle()


def info(ada, lease):
    return leases.get(ada, lease)


def measured_as(lease, *said):
    host(lease).reply(HELD, *(Reply(stdout=one.encode()) for one in said))


def test_a_workload_begins_once_and_the_lease_ends_with_it(ada, active):
    lease = active(env={"TOKEN": "hunter2"}, cwd="src")
    (spec,) = host(lease).jobs.started
    assert (spec.words, spec.env, spec.cwd) == (["make", "all"], {"TOKEN": "hunter2"}, "src")
    polling.poll(lease)
    settle()
    assert len(host(lease).jobs.started) == 1
    running = info(ada, lease).workload
    assert (running.state, running.job, running.command) == ("running", Job.objects.get().pk, ["make", "all"])
    host(lease).jobs.say(spec.id, b"made it\n")
    finish(lease)
    found = info(ada, lease)
    assert found.state == "destroyed"
    assert (found.workload.state, found.workload.outcome, found.workload.exit_code) == ("over", "exited", 0)
    released = Event.objects.get(lease=lease, to_state="released")
    assert (released.reason, released.message) == ("workload_ended", "The workload has ended with exit code 0.")
    part = jobs.output(ada, running.job)
    assert (part.content, part.over, part.truncated) == (b"made it\n", True, False)


@pytest.mark.parametrize(
    ("given", "left", "outcome", "says"),
    [
        ({}, {"exit_code": 3}, "exited", "failed with exit code 3"),
        ({}, {"exit_code": 137}, "signal", "signal 9 (SIGKILL)"),
        ({"image": "alpine"}, {"exit_code": 125, "cause": "image"}, "no_image", "could not pull the image alpine"),
        (
            {"image": "alpine"},
            {"exit_code": 125, "cause": "podman"},
            "no_podman",
            "podman is not installed on its host. Ask an operator",
        ),
        ({"image": "alpine"}, {"exit_code": 125}, "exited", "Podman itself"),
        ({}, {"exit_code": 125, "cause": "podman"}, "exited", "exit code 125"),
    ],
)
def test_how_it_failed_is_on_the_lease(ada, active, given, left, outcome, says):
    lease = active(**given)
    finish(lease, **left)
    found = info(ada, lease)
    assert found.state == "destroyed"
    assert found.workload.outcome == outcome
    assert says in found.workload.message
    released = Event.objects.get(lease=lease, to_state="released")
    assert released.reason == "workload_failed"
    assert says in released.message
    told = Event.objects.filter(lease=lease, kind="lease.workload").last()
    assert (told.details["outcome"], told.details["exit_code"]) == (outcome, left["exit_code"])


def test_a_workload_that_is_lost_and_one_that_is_cancelled(ada, active):
    lost = active()
    host(lost).jobs.lose(mechanism.host_id(Job.objects.get(lease=lost)))
    mechanism.watch(Job.objects.get(lease=lost).pk)
    settle()
    assert info(ada, lost).workload.outcome == "lost"
    cancelled = leases.request(ada, {"type": "fake", "workload": {"command": "sleep 9"}})
    settle()
    jobs.cancel(ada, info(ada, cancelled).workload.job)
    settle()
    assert (info(ada, cancelled).state, info(ada, cancelled).workload.outcome) == ("destroyed", "cancelled")


def test_a_container_is_run_by_podman_and_its_secrets_are_in_no_word(active):
    lease = active(image="docker.io/library/alpine:3", command="echo $PIN", env={"PIN": "4711"}, cwd="/srv")
    (spec,) = host(lease).jobs.started
    assert spec.env == {"PIN": "4711"}
    assert spec.cwd == ""
    assert {"podman", specs.key("l", lease), "docker.io/library/alpine:3", "PIN"} <= set(spec.words)
    assert "4711" not in " ".join(spec.words)
    finish(lease)
    assert any(call.words[-2:] == ["podman", specs.key("l", lease)] for call in host(lease).calls)


def test_secrets_of_a_workload_are_encrypted_until_it_begins_and_shown_nowhere(ada, blueprint):
    blueprint(max_resources=1)
    blocking = leases.request(ada, {"type": "fake", "exclusive": True})
    settle()
    asked = {"type": "fake", "idempotency_key": "k", "workload": {"command": ["make"], "env": {"PIN": "hunter2"}}}
    lease = leases.request(ada, asked)
    with connection.cursor() as cursor:
        cursor.execute("SELECT (SELECT row(l, w)::text FROM leases_lease l JOIN leases_watch w ON w.lease_id = l.id)")
        assert "hunter2" not in cursor.fetchone()[0]
    assert Watch.objects.get().env == {"PIN": "hunter2"}
    assert "hunter2" not in repr(info(ada, lease)) + repr(read(asked))
    assert list(info(ada, lease).workload.variables) == ["PIN"]
    assert info(ada, lease).workload.state == "waiting"
    leases.release(ada, blocking)
    settle()
    assert Watch.objects.get().env is None
    assert Job.objects.get().env is None
    assert not [e for e in Event.objects.all() if "hunter2" in json.dumps(e.details) + e.message]


def test_the_same_workload_is_the_same_request_and_its_shape_does_not_count_it():
    def asked(**given):
        return read({"type": "fake", **given})

    plain, one = asked(), asked(workload={"command": ["a"], "env": {"X": "1"}})
    assert one.fingerprint == asked(workload={"command": ["a"], "env": {"X": "1"}}).fingerprint
    others = [asked(workload={"command": ["a"], "env": {"X": "2"}}), asked(metrics=True), plain]
    assert len({one.fingerprint, *(other.fingerprint for other in others)}) == 4
    assert {one.request_class(None)} == {other.request_class(None) for other in others}


def test_another_workload_under_the_same_key_is_a_conflict(ada, blueprint):
    blueprint()
    asked = {"type": "fake", "idempotency_key": "k", "workload": {"command": ["a"]}}
    first = leases.request(ada, asked)
    assert leases.request(ada, asked) == first
    assert Watch.objects.count() == 1
    with pytest.raises(Conflict):
        leases.request(ada, asked | {"workload": {"command": ["b"]}})


def test_a_group_carries_workloads(ada, blueprint):
    blueprint()
    asked = [{"type": "fake", "workload": {"command": ["a"]}}, {"type": "fake", "metrics": True}]
    ids = leases.request_group(ada, asked)
    settle()
    assert [Watch.objects.get(lease=pk).workload is None for pk in ids] == [False, True]
    assert Job.objects.get().lease_id == ids[0]


@pytest.mark.parametrize(
    ("workload", "field"),
    [
        ({}, "workload"),
        ({"command": []}, "workload.command"),
        ({"command": [" "]}, "workload"),
        ({"command": ["a\0b"]}, "workload.command"),
        ({"command": ["a"], "env": {"1X": "v"}}, "workload.env"),
        ({"command": ["a"], "env": {"X": "a\0b"}}, "workload.env"),
        ({"image": "Not An Image"}, "workload.image"),
        ({"image": "alpine", "env": {"PATH": "/x"}}, "workload.env"),
        ({"image": "alpine", "cwd": "here"}, "workload.cwd"),
        ({"command": ["a"], "what": 1}, "workload.what"),
        ("make", "workload"),
    ],
)
def test_bad_workloads_are_refused_with_the_field(ada, blueprint, workload, field):
    blueprint()
    with pytest.raises(InvalidRequest) as refused:
        leases.request(ada, {"type": "fake", "workload": workload})
    assert any(problem.field.startswith(field) for problem in refused.value.problems), refused.value.problems
    assert not Lease.objects.exists()


def test_a_workload_is_never_served_again(ada, blueprint):
    blueprint()
    with pytest.raises(InvalidRequest, match="never starts twice"):
        leases.request(ada, {"type": "fake", "serve_again": True, "workload": {"command": ["a"]}})


def test_a_kind_that_runs_no_commands_refuses_when_it_is_asked(ada, blueprint, monkeypatch):
    blueprint("mute")
    monkeypatch.setattr(workloads, "_runs_commands", lambda kind: False)
    for asked, field in (({"workload": {"command": ["a"]}}, "workload"), ({"metrics": True}, "metrics")):
        with pytest.raises(InvalidRequest, match="cannot run commands") as refused:
            leases.request(ada, {"type": "fake", **asked})
        assert refused.value.field == field
    assert not Lease.objects.exists()


def test_a_lease_that_ends_first_gathers_before_it_is_cleaned(ada, active):
    lease = active()
    name = mechanism.host_id(Job.objects.get())
    host(lease).jobs.say(name, b"half")
    leases.release(ada, lease)
    settle()
    found = info(ada, lease)
    assert found.state == "destroyed"
    assert (found.workload.outcome, found.workload.exit_code) == ("cut", 143)
    assert jobs.output(ada, found.workload.job).content == b"half"
    assert jobs.get(ada, found.workload.job).state == "cancelled"


def test_a_lease_whose_time_is_over_ends_its_workload(ada, active):
    lease = active()
    run("UPDATE leases_lease SET until = clock_timestamp() WHERE id = %s", (lease,))
    settle()
    found = info(ada, lease)
    assert (found.state, found.workload.outcome) == ("destroyed", "cut")
    assert "The lease expired" in found.workload.message


def test_one_that_never_began_says_so(ada, blueprint):
    blueprint(enabled=False)
    lease = leases.request(ada, {"type": "fake", "workload": {"command": ["a"]}})
    leases.release(ada, lease)
    settle()
    found = info(ada, lease).workload
    assert (found.state, found.outcome, found.job) == ("over", "never", None)
    assert Watch.objects.get().env is None


def test_a_host_that_does_not_answer_holds_no_lease_back_for_long(ada, active, monkeypatch, settings):
    lease = active()

    def unreachable(*_, **__):
        raise Unreachable("down")

    monkeypatch.setattr(type(host(lease)), "run", unreachable)
    leases.release(ada, lease)
    settle()
    assert info(ada, lease).state == "released"
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"gather_seconds": 0})
    settle()
    settle()
    found = info(ada, lease)
    assert (found.state, found.workload.outcome, found.metrics.complete) == ("destroyed", "cut", False)


def test_a_host_that_hangs_while_it_is_gathered_from_holds_a_worker_for_seconds_and_not_again_and_again(
    ada, active, monkeypatch, settings
):
    lease, asked = active(), []

    def silent(*_):
        asked.append(Deadline(60).seconds)
        raise DeadlineExceeded("The command took longer than 10 s.")

    monkeypatch.setattr(type(host(lease).jobs), "cancel", silent)
    leases.release(ada, lease)
    settle()
    settle()
    polling.poll(lease)
    assert info(ada, lease).state == "released"
    assert len(asked) == 1
    assert asked[0] <= settings.DRYDOCK.host_seconds
    run("UPDATE leases_watch SET due_at = due_at - interval '20 s'")
    polling.poll(lease)
    assert len(asked) == 2
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"gather_seconds": 0})
    settle()
    assert info(ada, lease).state == "destroyed"
    run("UPDATE leases_watch SET due_at = clock_timestamp()")
    settle()
    assert (info(ada, lease).workload.outcome, len(asked)) == ("cut", 2)


def test_the_loss_of_the_host_is_the_loss_of_the_workload(ada, active):
    lease = active()
    row = Lease.objects.get(pk=lease)
    eviction.orphan(lease, message="It burned down.")
    settle()
    found = info(ada, lease)
    assert (found.state, found.workload.outcome) == ("broken", "lost")
    assert "It burned down." in found.workload.message
    assert jobs.get(ada, found.workload.job).state == "lost"
    assert row.replaced_by is None


class Killed(BaseException):
    """Nothing more is done in this process."""


@pytest.mark.parametrize("where", ["leases.workloads.jobs.look", "leases.workloads.jobs._apply"])
def test_a_worker_that_dies_while_it_begins_makes_no_second_one(ada, blueprint, monkeypatch, where):
    blueprint()
    lease = leases.request(ada, {"type": "fake", "workload": {"command": ["make"]}})

    def killed(*_, **__):
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(where, killed)
        with pytest.raises(Killed):
            settle()
    settle()
    assert len(host(lease).jobs.started) == 1
    assert Job.objects.count() == 1
    assert info(ada, lease).workload.state == "running"


@pytest.mark.parametrize("where", ["gather", "write"])
def test_a_worker_that_dies_while_it_sees_the_end_loses_nothing(ada, active, monkeypatch, where):
    lease = active()
    name = mechanism.host_id(Job.objects.get())
    host(lease).jobs.say(name, b"result")
    host(lease).jobs.finish(name, 4)

    def killed(*_, **__):
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(conclusion, where, killed)
        with pytest.raises(Killed):
            mechanism.watch(Job.objects.get().pk)
    Job.objects.update(due_at="2020-01-01T00:00Z")
    settle()
    found = info(ada, lease)
    assert (found.state, found.workload.exit_code) == ("destroyed", 4)
    assert jobs.output(ada, found.workload.job).content == b"result"


def test_the_beginning_and_the_end_of_a_long_output_are_kept_and_what_is_cut_is_said(ada, active, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"kept_head_kib": 1, "kept_tail_kib": 1})
    lease = active()
    name = mechanism.host_id(Job.objects.get())
    host(lease).jobs.say(name, b"a" * 2000 + b"b" * 2000)
    finish(lease)
    job = info(ada, lease).workload.job
    first = jobs.output(ada, job)
    assert (first.content, first.next_offset, first.over, first.truncated) == (b"a" * 1024, 1024, False, True)
    gap = jobs.output(ada, job, offset=1024)
    assert (gap.content, gap.next_offset) == (b"\n[... 1952 bytes were not kept ...]\n", 2976)
    last = jobs.output(ada, job, offset=2976, limit=1000)
    assert (last.content, last.over) == (b"b" * 1000, False)
    assert jobs.output(ada, job, offset=3976).over
    assert info(ada, lease).workload.output_size == 4000
    assert info(ada, lease).workload.output_kept == 2048
    with connection.cursor() as cursor:
        cursor.execute("SELECT head FROM leases_keptoutput")
        assert cursor.fetchone()[0].startswith("gAAAA")


def test_what_a_lease_uses_is_counted_and_stays_with_it(ada, blueprint):
    blueprint()
    lease = leases.request(ada, {"type": "fake", "metrics": True, "exclusive": True})
    settle()
    counters = ((500, 10), (900, 25), (950, 30))
    measured_as(lease, *(MACHINE.format(ticks=ticks, net=net) for ticks, net in counters))
    Watch.objects.update(sample=None, sampled_at=None, cpu_seconds=None)
    for _ in range(2):
        polling.poll(lease)
    seen = info(ada, lease).metrics
    assert (seen.scope, seen.cpu_core_seconds, seen.network_in_bytes, seen.complete) == ("machine", 4.0, 15, False)
    leases.release(ada, lease)
    settle()
    found = info(ada, lease)
    assert (found.state, found.metrics.complete) == ("destroyed", True)
    assert found.metrics.cpu_core_seconds == 4.5
    assert found.metrics.memory_mib_seconds > 0
    assert found.metrics.wall_seconds > 0
    assert found.workload is None


def test_nothing_is_looked_at_that_did_not_ask_for_it(ada, blueprint):
    blueprint()
    lease = leases.request(ada, {"type": "fake"})
    settle()
    assert host(lease).calls == []
    assert not Watch.objects.exists()
    assert info(ada, lease).metrics is None


def test_what_is_watched_goes_with_its_lease_when_that_is_pruned(ada, active):
    lease = active()
    host(lease).jobs.say(mechanism.host_id(Job.objects.get()), b"x")
    finish(lease)
    assert KeptOutput.objects.count() == 1
    (walk,) = [one for one in pruning.WALKS if one.model is Lease]
    run("UPDATE leases_lease SET ended_at = ended_at - interval '1 year' WHERE id = %s", (lease,))
    Event.objects.all().delete()
    assert pruning.forget(walk, [lease]) == 1
    assert [model.objects.count() for model in (Watch, KeptOutput, Job)] == [0, 0, 0]


def test_a_measured_lease_that_is_served_again_is_measured_again(ada, blueprint):
    blueprint()
    lease = leases.request(ada, {"type": "fake", "metrics": True, "serve_again": True})
    settle()
    eviction.orphan(lease, message="Gone.")
    settle()
    again = Lease.objects.get(pk=lease).replaced_by
    assert again.watched
    assert Watch.objects.get(lease=again).over_at is None


def test_a_workload_is_begun_by_the_look_that_finds_its_lease_active(active, monkeypatch):
    marks, later = set(), []

    @contextlib.contextmanager
    def looking(lease, owner):
        mine = lease not in marks
        marks.add(lease)
        yield mine
        if mine:
            marks.remove(lease)

    monkeypatch.setattr(hints, "looking", looking)
    monkeypatch.setattr(mechanism, "_look_later", lambda *asked: later.append(asked))
    lease = active()
    assert (len(host(lease).jobs.started), later) == (1, [])
