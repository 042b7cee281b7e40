"""Jobs: a row first, then a command on the host that is looked at until it is over."""

from __future__ import annotations

import base64

import pytest
from celery import current_app
from django.db import connection

from blueprints.fake.openers import fakes
from blueprints.models import Blueprint
from drydock.core.errors import Conflict, InvalidRequest, NotFound, NotSupported
from drydock_client.jobs import LONGEST_STDIN
from interfaces.deadline import Deadline
from interfaces.errors import DeadlineExceeded, LeaseEnded, NotStarted, Unreachable
from leases import tasks
from leases.engine.core import installation, specs
from leases.engine.core.database import InsideTransaction
from leases.engine.lifecycle import release as mechanism
from leases.messaging import hints
from leases.messaging.handlers import HANDLERS
from leases.messaging.inline import settle
from leases.models import Job, Lease
from leases.operations import interfaces, jobs, leases
from leases.operations.callers import caller
from leases.workloads import jobs as workload_jobs


@pytest.fixture
def ada(owner):
    return caller(owner)


@pytest.fixture
def lease(blueprint, ada):
    blueprint()
    pk = leases.request(ada, {"type": "fake"})
    settle()
    return pk


def on_host(lease):
    return fakes(specs.key("l", lease)).command.jobs


def test_a_job_is_started_followed_and_ends_with_its_code(ada, lease):
    job = jobs.start(ada, lease, ["make", "all"])
    assert (job.state, job.exit_code) == ("running", None)
    name = workload_jobs.host_id(Job.objects.get())
    on_host(lease).say(name, b"half")
    part = jobs.output(ada, job.id)
    assert (part.content, part.over) == (b"half", False)
    on_host(lease).say(name, b" done")
    on_host(lease).finish(name, 3)
    part = jobs.output(ada, job.id, offset=part.next_offset)
    assert (part.content, part.over) == (b" done", True)
    ended = jobs.get(ada, job.id)
    assert (ended.state, ended.exit_code) == ("ended", 3)


def test_the_row_is_there_before_the_host_is_asked(ada, lease, monkeypatch):
    def unreachable(*_, **__):
        assert Job.objects.get().state == "pending"
        raise Unreachable("down")

    monkeypatch.setattr(type(on_host(lease)), "start", unreachable)
    with pytest.raises(Unreachable):
        jobs.start(ada, lease, ["make"])
    monkeypatch.undo()
    workload_jobs.watch(Job.objects.get().pk)
    assert Job.objects.get().state == "running"


def test_what_a_job_reads_is_kept_encrypted_until_it_was_given_it(ada, lease, monkeypatch):
    def unreachable(*_, **__):
        raise Unreachable("down")

    monkeypatch.setattr(type(on_host(lease)), "start", unreachable)
    with pytest.raises(Unreachable):
        jobs.start(ada, lease, ["make"], env={"PIN": "1234"}, stdin=b"hunter2 \0\xff", apart=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT stdin, leases_job::text FROM leases_job")
        kept, row = cursor.fetchone()
    assert kept
    assert "1234" not in row
    assert base64.b64encode(b"hunter2")[:8].decode() not in kept
    monkeypatch.undo()
    workload_jobs.watch(Job.objects.get().pk)
    spec = on_host(lease).started[-1]
    assert (spec.stdin, spec.apart, spec.env) == (b"hunter2 \0\xff", True, {"PIN": "1234"})
    assert (Job.objects.get().stdin, Job.objects.get().env) == (None, None)
    with pytest.raises(InvalidRequest, match="at most"):
        jobs.start(ada, lease, ["make"], stdin=bytes(LONGEST_STDIN + 1))


def test_streams_are_read_one_by_one_only_where_they_are_kept_apart(ada, lease):
    job, other = jobs.start(ada, lease, ["make"], apart=True), jobs.start(ada, lease, ["make"])
    on_host(lease).say(workload_jobs.host_id(Job.objects.get(pk=job.id)), b"oh", "stderr")
    assert jobs.output(ada, job.id, stream="stderr").content == b"oh"
    assert jobs.output(ada, job.id).content == b""
    with pytest.raises(NotSupported, match="together"):
        jobs.output(ada, other.id, stream="stderr")


def test_a_lease_may_end_with_its_job(ada, lease):
    job = jobs.start(ada, lease, ["make"], ends_lease=True)
    on_host(lease).finish(workload_jobs.host_id(Job.objects.get()), 0)
    workload_jobs.watch(job.id)
    settle()
    found = leases.get(ada, lease)
    assert found.state == "destroyed"
    released = [e for e in found_events(ada, lease) if e.to_state == "released"]
    assert released[0].reason == "job_ended"
    assert "exit code 0" in released[0].message


def found_events(ada, lease):
    from leases.operations import events

    return events.list_(ada, lease_id=lease)


def test_a_job_ends_with_its_lease(ada, lease):
    job = jobs.start(ada, lease, ["make"])
    leases.release(ada, lease)
    settle()
    assert jobs.get(ada, job.id).state == "cancelled"
    with pytest.raises(LeaseEnded):
        jobs.output(ada, job.id)


def test_cancelling(ada, lease):
    job = jobs.start(ada, lease, ["make"])
    assert jobs.cancel(ada, job.id).state == "cancelled"
    assert jobs.cancel(ada, job.id).state == "cancelled"
    with pytest.raises(Conflict):
        workload_jobs.require_open(Job.objects.get())


def test_what_the_host_has_lost_is_lost(ada, lease):
    job = jobs.start(ada, lease, ["make"])
    on_host(lease).lose(workload_jobs.host_id(Job.objects.get()))
    assert jobs.get(ada, job.id).state == "lost"


def test_a_job_whose_host_refused_to_start_it_says_why_it_has_no_output(ada, lease, monkeypatch):
    def refuse(*_):
        raise NotStarted("The host did not start a shell: Cannot fork.")

    monkeypatch.setattr(type(on_host(lease)), "start", refuse)
    job = jobs.start(ada, lease, ["make"])
    assert (job.state, job.message) == ("lost", "The host did not start a shell: Cannot fork.")
    with pytest.raises(NotFound, match="it was lost: The host did not start a shell: Cannot fork"):
        jobs.output(ada, job.id)


def test_jobs_of_others_are_not_to_be_found(ada, lease, django_user_model):
    job = jobs.start(ada, lease, ["make"])
    eve = caller(django_user_model.objects.create_user("eve"))
    assert jobs.list_(eve) == []
    for act in (jobs.get, jobs.output, jobs.cancel):
        with pytest.raises(NotFound):
            act(eve, job.id)
    with pytest.raises(NotFound):
        jobs.start(eve, lease, ["make"])


def test_no_host_is_called_inside_a_transaction(ada, lease):
    from django.db import transaction

    with transaction.atomic(), pytest.raises(InsideTransaction):
        jobs.start(ada, lease, ["make"])


def test_the_sweep_has_open_jobs_looked_at(ada, lease):
    job = jobs.start(ada, lease, ["make"])
    with hints.collected() as found:
        workload_jobs.follow()
    assert list(found) == [("job", (job.id,))]


def test_the_end_of_a_lease_is_not_lost_with_the_process_that_saw_its_job_end(ada, lease, monkeypatch):
    job = jobs.start(ada, lease, ["make"], ends_lease=True)
    on_host(lease).finish(workload_jobs.host_id(Job.objects.get()), 0)

    class Killed(BaseException):
        """Nothing more is done in this process."""

    def killed(*_, **__):
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(mechanism, "end", killed)
        with pytest.raises(Killed):
            workload_jobs.watch(job.id)
    assert Job.objects.get().state == "ended"
    settle()
    assert leases.get(ada, lease).state == "destroyed"
    assert [e.reason for e in found_events(ada, lease) if e.to_state == "released"] == ["job_ended"]


def test_jobs_are_followed_without_a_worker_too(ada, lease):
    jobs.start(ada, lease, ["make"], ends_lease=True)
    on_host(lease).finish(workload_jobs.host_id(Job.objects.get()), 0)
    settle()
    assert leases.get(ada, lease).state == "destroyed"


def test_every_hint_has_one_act_and_one_task():
    assert set(HANDLERS) == set(hints.QUEUES)
    tasks.sweep()  # as a worker does, it loads them all
    known = {name for name in current_app.tasks if name.startswith("leases.")}
    assert known == {f"leases.{hint}" for hint in hints.QUEUES}


def followed():
    with hints.collected() as found:
        workload_jobs.follow()
    return [args[0] for _, args in found]


def test_no_job_waits_behind_others_that_are_looked_at_again_and_again(ada, lease, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"sweep_batch": 2})
    one, two, three = (jobs.start(ada, lease, ["make"]).id for _ in range(3))
    Job.objects.update(created_at="2020-01-01T00:00Z")
    assert sorted(followed()) == [one, two]
    assert followed() == [three]
    assert followed() == []


def test_a_tenant_who_stops_what_answers_holds_workers_for_seconds_and_not_again_and_again(ada, lease, monkeypatch):
    leases.request(ada, {"type": "fake"})
    settle()
    other = Lease.objects.latest("pk").pk
    first, second = (jobs.start(ada, lease, ["make"]).id for _ in range(2))
    mine = jobs.start(ada, other, ["make"]).id
    Job.objects.update(created_at="2020-01-01T00:00Z")
    assert sorted(followed()) == [first, second, mine]
    asked = []

    def silent(found, worker):
        asked.append(found.pk)
        raise DeadlineExceeded(f"{Deadline(60).seconds:.0f}")

    monkeypatch.setattr(workload_jobs, "_advance", silent)
    workload_jobs.watch(first)
    bound = int(Job.objects.get(pk=first).message)
    workload_jobs.watch(second)  # its hint was sent already
    assert asked == [first]
    assert bound <= 10
    workload_jobs.watch(mine)
    assert asked == [first, mine]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE leases_job SET due_at = due_at - interval '61 s'")
    assert sorted(followed()) == [first, mine], "one of each lease is tried alone"
    workload_jobs.watch(first)
    assert asked == [first, mine, first]
    with pytest.raises(DeadlineExceeded):
        jobs.start(ada, lease, ["make"])
    asked.clear()
    workload_jobs.watch(Job.objects.latest("pk").pk)
    assert asked == [], "a new job does not have a silent host asked again"


def test_a_job_whose_lease_is_looked_at_by_another_worker_waits_for_the_next_sweep(ada, lease, monkeypatch):
    job = jobs.start(ada, lease, ["make"]).id
    Job.objects.update(created_at="2020-01-01T00:00Z")
    followed()
    asked = []
    monkeypatch.setattr(workload_jobs, "_advance", lambda found, worker: asked.append(found))
    monkeypatch.setattr(hints._local, "collected", None)
    with hints.looking(lease, ada.id):
        workload_jobs.watch(job)
    assert asked == []
    assert followed() == [job]
    workload_jobs.watch(job)
    assert [found.pk for found in asked] == [job]


def test_no_leased_host_is_touched_and_no_lease_gives_up_while_the_installation_is_suspended(ada, lease):
    job = jobs.start(ada, lease, ["make"], ends_lease=True)
    Blueprint.objects.update(enabled=False)
    waiting = leases.request(ada, {"type": "fake", "exclusive": True})
    Lease.objects.filter(pk=waiting).update(give_up_at="2020-01-01T00:00Z")
    files = interfaces.filesystem(ada, lease)
    on_host(lease).finish(workload_jobs.host_id(Job.objects.get()), 0)
    installation.suspend("Copied.")
    for act in (
        lambda: jobs.get(ada, job.id),
        lambda: jobs.start(ada, lease, ["make"]),
        lambda: interfaces.run_command(ada, lease, ["true"]),
        lambda: files.read_bytes("secret"),
    ):
        with pytest.raises(Conflict, match="Copied"):
            act()
    settle()
    workload_jobs.watch(job.id)
    assert [row.state for row in Job.objects.all()] == ["running"]
    assert set(Lease.objects.values_list("id", "state")) == {(lease, "active"), (waiting, "pending")}
