"""What a person should look at."""

from __future__ import annotations

import datetime as dt
import os

import pytest
from django.contrib.auth.models import User

from blueprints.models import Credential, Reading, RememberedError
from drydock import doctor
from drydock.core import clock
from leases.engine.core import installation as engine_installation
from leases.engine.core import workers
from leases.engine.core.database import run
from leases.engine.core.transitions import record_event
from leases.messaging import handlers
from leases.messaging.inline import settle
from leases.models import Event, Installation, ProviderWatch, Resource
from leases.operations import attention, leases, permissions, resources
from leases.operations import installation as installation_of
from leases.operations.callers import caller
from leases.reports import condition


@pytest.fixture
def root(django_user_model):
    return caller(django_user_model.objects.create_superuser("root"))


@pytest.fixture(autouse=True)
def worker():
    workers.seen("elsewhere:1")


def sorts(who):
    return [(one.what, one.kind, one.id) for one in attention.needed(who)]


def test_nothing_needs_it_while_all_is_well(blueprint, ask, root, owner):
    blueprint()
    ask()
    settle()
    assert sorts(root) == sorts(caller(owner)) == []


def test_no_worker_on_servers_of_ones_own(root, settings):
    workers.gone("elsewhere:1")
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"database_url": "postgresql://u@127.0.0.1/x"})
    assert sorts(root) == [("no_worker", "installation", None)]


def test_no_worker_on_private_engines_only_while_one_is_missed(blueprint, ask, root, settings):
    workers.gone("elsewhere:1")
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"database_url": ""})
    assert sorts(root) == []
    blueprint(enabled=False)
    ask()
    assert sorts(root) == [("no_worker", "installation", None)]


def test_quarantined_and_sick_resources(blueprint, ask, root, owner):
    blueprint()
    ask()
    settle()
    resource = Resource.objects.get()
    resources.quarantine(root, resource.pk, message="odd noises")
    run("UPDATE leases_resource SET check_failures = 2")
    found = attention.needed(root)
    assert [(one.what, one.id) for one in found] == [("quarantined", resource.pk), ("sick", resource.pk)]
    assert (found[0].message, found[0].mend) == ("odd noises", f"drydock resources unquarantine {resource.pk}")
    assert sorts(caller(owner)) == []


def test_broken_and_not_gone(blueprint, ask, root):
    blueprint()
    ask()
    settle()
    pk = Resource.objects.get().pk
    run("UPDATE leases_resource SET state = 'broken', message = 'The disk died.'")
    assert [(one.what, one.id, one.message) for one in attention.needed(root)] == [("broken", pk, "The disk died.")]
    run("UPDATE leases_resource SET gone_at = clock_timestamp()")
    assert sorts(root) == []


def test_a_step_that_waits_for_a_person_says_for_whom_and_how_to_go_on(blueprint, ask, root):
    blueprint(config={"faults": [{"does": "hold", "at": "build.boot", "who": "the hands", "what": "Plug it in."}]})
    ask()
    settle()
    resource = Resource.objects.get().pk
    found = attention.needed(root)
    assert [(one.what, one.kind, one.id) for one in found] == [("needs_operator", "resource", resource)]
    assert found[0].message == "build: Plug it in. (for the hands)"
    assert found[0].mend == f"drydock resolve --resource {resource} [--no] -m TEXT"


def test_leases_that_are_held_wait_long_or_are_overdue(blueprint, ask, root, owner, settings, django_user_model):
    blueprint(config={"capacity": {"slots": 1}}, max_resources=1)
    held = ask()
    settle()
    waits = ask()
    settle()
    leases.hold(root, held.pk, reason="a look")
    assert sorts(root) == [("held", "lease", held.pk)]

    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"attention_wait_seconds": 60.0})
    run("UPDATE leases_lease SET created_at = created_at - interval '2 min' WHERE id = %s", (waits.pk,))
    assert ("stuck", "lease", waits.pk) in sorts(root)

    run("UPDATE leases_lease SET until = clock_timestamp() - interval '1 min' WHERE id = %s", (held.pk,))
    assert ("overdue", "lease", held.pk) in sorts(root)
    assert sorts(caller(owner)) == sorts(root)
    assert sorts(caller(django_user_model.objects.create_user("eve"))) == []


def test_remembered_errors_until_they_expire_and_requests_for_authorization(blueprint, root, owner):
    pool = blueprint(audience="authorized")
    RememberedError.objects.create(blueprint=pool, scope="offer", key="big", message="Sold out.")
    RememberedError.objects.create(
        blueprint=pool, scope="zone", key="z", message="Over.", until=clock.now() - dt.timedelta(minutes=1)
    )
    asked = permissions.ask(caller(owner), "pool", message="please")
    found = attention.needed(root)
    assert [(one.what, one.name, one.message) for one in found] == [
        ("remembered_error", "pool", "offer big: Sold out."),
        ("authorization_asked", "pool", "ada requests to use the blueprint. please"),
    ]
    assert found[1].mend == f"drydock authorizations allow {asked.id}"
    permissions.settle(root, asked.id, allow=True)
    assert [one.what for one in attention.needed(root)] == ["remembered_error"]


def test_an_account_that_cannot_be_read(root, owner):
    account = Credential.objects.create(name="vendor", secrets={"key": "x"})
    for place in ("east", "west"):
        Reading.objects.create(
            credential=account, kind="ec2", what="inventory", place=place, message=f"{place} throttles"
        )
    Reading.objects.create(credential=account, kind="ec2", what="places", seen_at=clock.now())
    (one,) = attention.needed(root)
    assert (one.what, one.kind, one.id, one.name) == ("reading_failed", "credential", account.pk, "vendor")
    assert (one.message, one.mend) == ("ec2, inventory of east: east throttles", "drydock credentials show vendor")
    assert sorts(caller(owner)) == []


def test_a_watch_that_fails_for_minutes(root, owner):
    since = clock.now() - dt.timedelta(minutes=6)
    of = {"kind": "dpf", "credential": "vendor", "message": "The account may not watch dpus."}
    ProviderWatch.objects.create(**of, place="ns/DPU", failing_since=since)
    ProviderWatch.objects.create(**of, place="ns/DPUSet", failing_since=clock.now())
    (one,) = attention.needed(root)
    assert (one.what, one.kind, one.name, one.since) == ("watch_failed", "credential", "vendor", since)
    assert one.message == "dpf, ns/DPU: The account may not watch dpus."
    assert one.mend == "drydock credentials show vendor"
    assert sorts(caller(owner)) == []


@pytest.fixture
def whole(settings, tmp_path):
    """Forget what is known of the broker, in a state folder that no other test uses."""
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"state": tmp_path})
    condition.broker(lambda: True)
    yield
    condition.broker(lambda: True)


def test_a_late_sweep_comes_first_and_says_since_when(blueprint, ask, root, owner):
    blueprint(max_resources=0)
    ask()
    settle()
    Installation.objects.update(swept_at=clock.now() - dt.timedelta(minutes=10))
    Resource.objects.update(quarantined=True)
    found = attention.needed(root)[0]
    assert (found.what, found.since) == ("sweep_late", Installation.objects.get().swept_at)
    assert found.message.startswith("The last sweep was 10 min ago, although a sweep is due every 2 s.")
    assert "drydock sweep" in found.mend
    assert ("sweep_late", "installation", None) in sorts(caller(owner))


def test_the_last_worker_tells_since_when_there_is_none(blueprint, ask, root):
    blueprint(max_resources=0)
    ask()
    settle()
    run("UPDATE leases_worker SET seen_at = clock_timestamp() - interval '1 h'")
    found = attention.needed(root)[0]
    assert found.what == "no_worker"
    assert dt.timedelta(minutes=59) < clock.now() - found.since < dt.timedelta(minutes=61)


def test_a_broker_that_is_away_is_told_with_the_time_since(root, owner, whole):
    before = clock.now()
    condition.broker(lambda: False)
    (found,) = attention.needed(root)
    assert (found.what, found.mend) == ("broker_away", "Check BROKER_URL, and check that the broker is running.")
    assert before <= found.since <= clock.now()
    assert condition.broker(lambda: False)[0].since == found.since, "it is one absence"
    assert sorts(caller(owner)) == []


@pytest.fixture
def disk(settings, tmp_path):
    """Bounds between which the disk of a state folder is short of room."""

    def give(low: int, full: int) -> None:
        limits = {"state": tmp_path, "disk_low_mib": low, "disk_full_mib": full}
        settings.DRYDOCK = settings.DRYDOCK.model_copy(update=limits)

    return give


@pytest.mark.parametrize(("full", "what"), [(0, "disk_nearly_full"), (1 << 40, "disk_full")])
def test_a_disk_without_room_comes_first_on_every_face(root, owner, settings, disk, full, what, client):
    disk(1 << 40, full)
    (found,) = attention.needed(root)
    assert found.what == what
    assert f"The disk of {settings.DRYDOCK.state} is " in found.message
    assert sorts(caller(owner)) == [], "an owner can do nothing about it, and need not know the path"
    first = next(iter(doctor.examine()))
    assert (first.check, first.verdict) == ("disk", "fail" if full else "warn")
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["disk"]) == ((503, "full") if full else (200, "ok"))
    assert f"Since {found.since:%Y-%m-%d %H:%M} UTC." in first.message
    client.force_login(User.objects.get(username=root.name))
    overview = client.get("/admin/").content.decode()
    assert f'since <time datetime="{found.since.isoformat()}"' in overview


def test_a_disk_is_known_since_when_it_ran_short_to_every_process_also_when_nobody_looked(root, disk, tmp_path):
    disk(1 << 40, 0)
    before = clock.now()
    handlers.sweep()
    long_ago = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    (file,) = tmp_path.iterdir()
    assert before - dt.timedelta(seconds=1) <= condition.disk()[0].since <= clock.now()
    os.utime(file, (long_ago.timestamp(), long_ago.timestamp()))
    (found,) = condition.disk()
    assert (found.what, found.since) == ("disk_nearly_full", long_ago)
    disk(1 << 40, 1 << 40)
    (found,) = condition.disk()
    assert (found.what, before <= found.since) == ("disk_full", True), "full is another problem than nearly full"
    disk(0, 0)
    assert (condition.disk(), list(tmp_path.iterdir())) == ([], [])


def test_without_a_place_for_files_a_process_remembers_by_itself(disk, tmp_path, monkeypatch):
    disk(1 << 40, 0)
    monkeypatch.setattr(os, "open", _refuse)
    since = condition.disk()[0].since
    assert since is not None
    assert condition.disk()[0].since == since
    disk(0, 0)
    assert condition.disk() == []


def _refuse(*_args, **_more):
    raise OSError(28, "No space left on device")


def test_a_suspended_installation_comes_first_with_the_time_since(root, blueprint):
    blueprint()
    installation_of.suspend(root, "This is a copy.")
    engine_installation.forget()
    found = attention.needed(root)[0]
    assert found.what == "suspended"
    assert "This is a copy." in found.message
    assert found.since == Event.objects.get(kind="installation.suspended").at
    assert next(one for one in doctor.examine() if one.check == "installation").verdict == "fail"


def test_a_problem_of_a_resource_is_as_old_as_the_problem_itself(blueprint, ask, root):
    blueprint()
    ask()
    settle()
    run("UPDATE leases_resource SET since = clock_timestamp() - interval '3 d'")
    resources.quarantine(root, Resource.objects.get().pk, message="odd noises")
    (found,) = attention.needed(root)
    assert clock.now() - found.since < dt.timedelta(minutes=5)


def test_a_resource_says_why_it_is_drained_and_outdated_and_what_its_check_says(blueprint, ask, root):
    pool = blueprint()
    ask()
    settle()
    pk = Resource.objects.get().pk
    resources.drain(root, pk, reason="New disks on Friday.")
    assert resources.get(root, pk).problems == ("Drained: New disks on Friday.",)
    resources.drain(root, pk, drained=False)
    assert resources.get(root, pk).problems == ()
    run("UPDATE blueprints_blueprint SET generation = 3 WHERE id = %s", (pool.pk,))
    run("UPDATE leases_resource SET check_failures = 1")
    record_event("resource.check_failed", "no route to host", resource_id=pk, details={"failures": 1})
    outdated, checked = resources.list_(root)[0].problems
    assert outdated.startswith(
        "Outdated: built from generation 1 of pool, which is at generation 3 since its kind or config"
    )
    assert checked == "The last check failed: no route to host."
    found = {one.what: one.message for one in attention.needed(root)}
    assert found.keys() == {"sick", "update_waits"}  # the lease is in the way of the update
    assert found["sick"] == "no route to host"
