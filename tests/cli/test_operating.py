"""What operators do from the shell, and servers of one's own."""

from __future__ import annotations

import json
import subprocess

import pytest


def test_blueprints_are_added_changed_switched_and_removed(cli):
    made = cli.json("blueprints", "add", "pool", "fake", "boot_polls=1", "--max", "2", "--idle-timeout", "10m")
    assert (made["config"], made["max_resources"], made["idle_timeout"], made["enabled"]) == (
        {"boot_polls": 1},
        2,
        600,
        True,
    )
    assert (
        cli.json("blueprints", "add", "other", "fake", "boot_polls=-1", code=2)["error"]["field"] == "config.boot_polls"
    )
    cli("blueprints", "add", "pool", "fake", code=4)
    changed = cli.json("blueprints", "change", "pool", "boot_polls=0", "--clear", "max")
    assert (changed["generation"], changed["max_resources"]) == (2, None)
    changed = cli.json("blueprints", "change", "pool", "--default-ttl", "8h", "--max-ttl", "30d")
    assert (changed["default_ttl"], changed["max_ttl"], changed["generation"]) == (8 * 3600, 30 * 86400, 2)
    assert "longest lease" in cli("blueprints", "show", "pool").stdout
    assert "exceeds the maximum duration" in cli("blueprints", "change", "pool", "--default-ttl", "31d", code=2).stderr
    assert cli.json("blueprints", "change", "pool", "--clear", "default-ttl", "--clear", "max-ttl")["max_ttl"] is None
    assert cli("blueprints", "disable", "pool").stdout.startswith("pool is disabled")
    assert cli("blueprints", "enable", "pool").stdout.startswith("pool is enabled")
    assert "no problem found" in cli("blueprints", "check", "pool").stderr
    assert "boot_polls" in cli("blueprints", "schema", "fake").stdout
    assert "pool" in cli("blueprints").stdout
    cli("blueprints", "remove", "pool")
    cli("blueprints", "show", "pool", code=3)


def test_resources_are_registered_looked_at_and_given_up(cli, fakes):
    pool = fakes()
    registered = cli.json("resources", "register", pool, "name=own")
    cli("resources", "register", pool, "name=own", code=4)
    cli("sweep")
    resource = str(registered["id"])
    assert cli.json("resources", "show", resource)["state"] == "active"
    assert "quarantined" in cli("resources", "quarantine", resource, "odd noises").stdout
    cli("resources", "unquarantine", resource)
    assert "drained" in cli("resources", "drain", resource).stdout
    cli("resources", "undrain", resource)
    assert "Give a reason" in cli("resources", "destroy", resource, "--force", code=2).stderr
    cli("resources", "destroy", resource, "--force", "--reason", "it burned")
    gone = [found["id"] for found in cli.json("resources", "list", "--gone", "--blueprint", pool)]
    assert gone == [int(resource)]
    assert cli.json("resources", "list", "--blueprint", pool) == []


def test_idle_resources_are_reclaimed(cli, fakes):
    pool = fakes()
    cli("lease", "fake", "--blueprint", pool, "--", "true")
    assert len(cli.json("resources", "list", "--blueprint", pool)) == 1
    assert len(cli.json("reclaim", "--blueprint", pool)["reclaimed"]) == 1
    assert cli.json("resources", "list", "--blueprint", pool) == []


def test_events_are_a_document_a_line_and_are_followed(cli, fakes):
    pool = fakes()
    lines = cli("events", "--blueprint", pool, "--json").stdout.splitlines()
    assert [json.loads(line)["kind"] for line in lines][:1] == ["blueprint.added"]
    following = cli.start("events", "--follow", "--blueprint", pool, "--json")
    assert following.stdout is not None
    assert json.loads(following.stdout.readline())["kind"] == "blueprint.added"
    for _ in lines[1:]:
        following.stdout.readline()
    cli("blueprints", "disable", pool)
    assert json.loads(following.stdout.readline())["kind"] == "blueprint.disabled"
    following.terminate()
    assert following.wait(90) == 143
    following.communicate()


def test_doctor_says_how_things_are(cli):
    done = cli("doctor", code=None)
    assert "database: PostgreSQL" in done.stdout
    findings = [json.loads(line) for line in cli("doctor", "--json", code=None).stdout.splitlines()]
    assert {"check", "verdict", "message", "mend"} == set(findings[0])


def test_a_database_that_does_not_answer_is_told_in_a_line(servers):
    nowhere = servers.also(DATABASE_URL="postgresql://drydock@/x?host=/nowhere")
    done = nowhere("leases", code=1)
    assert done.stderr.startswith("drydock: The database is not reachable: ")
    wrong = servers.also(DATABASE_URL="mysql://x/y")("leases", code=1)
    assert "DATABASE_URL" in wrong.stderr


@pytest.mark.slow
def test_on_servers_of_ones_own_users_are_known_and_workers_are_ones_own(servers):
    assert "not ready for this version" in servers("leases", code=1).stderr
    assert "migrations applied\nchief is an operator." in servers("migrate", "--operator", "chief").stdout
    chief, ada = servers.also(DRYDOCK_USER="chief"), servers.also(DRYDOCK_USER="ada")
    assert "not a user of this installation" in ada("leases", code=7).stderr
    chief("blueprints", "add", "pool", "fake", "--audience", "everyone")

    done = chief("lease", "fake", "--wait", "2s", "--", "true", code=8)
    assert "no worker is running" in done.stderr

    _add_user(servers, "ada")
    assert ada.json("leases") == []
    ada("blueprints", "disable", "pool", code=7)
    ada("leases", "--owner", "chief", code=7)
    assert chief.json("leases", "--owner", "ada") == []


def _add_user(servers, name):
    code = (
        "import django; django.setup(); from django.contrib.auth.models import User;"
        f" User.objects.create_user({name!r})"
    )
    environment = servers.environment | {"DJANGO_SETTINGS_MODULE": "drydock.settings"}
    from tests.cli.conftest import ROOT, sys

    subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, check=True)


def test_kinds_fit_the_page_and_fake_ones_are_shown_where_asked_for(cli):
    for words, fake in (((), False), (("--all",), True)):
        lines = cli("blueprints", "kinds", *words).stdout.splitlines()
        assert max(map(len, lines)) <= 100, max(lines, key=len)
        assert any(line.startswith("fake") for line in lines) is fake
        assert any(line.startswith("working_copy") for line in lines)
    assert "fake" not in cli("lease", "nonsense", code=2).stderr


def test_a_command_is_refused_beforehand_where_no_lease_runs_any(cli, host):
    cli("blueprints", "add", "mute", "webroot")
    before = {lease["id"] for lease in cli.json("leases", "--all", "--type", "webroot")}  # other files lease some too
    refused = cli("lease", "webroot", "--", "ls", code=2)
    assert "A lease on a webroot cannot run commands; its interfaces are: filesystem, httpd." in refused.stderr
    assert {lease["id"] for lease in cli.json("leases", "--all", "--type", "webroot")} == before
    cli("blueprints", "remove", "mute")


def test_acts_are_listed_started_with_arguments_watched_and_cancelled(cli, fakes):
    pool = fakes()
    resource = str(cli.json("resources", "register", pool, "name=own")["id"])
    cli("sweep")
    listed = cli("blueprints", "acts", pool).stdout
    assert "image: string (required)" in listed
    assert "passes: integer = 1" in listed
    assert "program" in cli("resources", "acts", "own").stdout
    cli("resources", "act", "own", "program", "image=blinky", code=1)
    said = cli("resources", "act", resource, "program", "image=blinky", "--yes", "--no-wait").stdout
    assert "program was requested" in said
    assert cli.json("resources", "cancel", resource, "program")["outcome"] == "cancelling"
    cli("sweep")
    outcomes = {one["name"]: one["outcome"] for one in cli.json("resources", "acts", resource)}
    assert outcomes == {"program": "cancelled", "service": "", "label": ""}
    assert cli.json("resources", "act", resource, "label", "text=hello")["outcome"] == "done"
    wrong = cli("resources", "act", resource, "program", "image=a", "passes=99", "--yes", code=2)
    assert "arguments.passes" in wrong.stderr
    assert "has no act" in cli("resources", "act", resource, "explode", code=3).stderr
    said = cli("hardware", "setup", resource, "--vfs", "2", "--yes", code=3).stderr
    assert "has no act 'setup'" in said


def test_a_step_that_waits_for_a_person_is_answered(cli, fakes):
    pool = fakes(
        'faults=[{"does": "hold", "at": "build.boot", "what": "Erase it?", "resolved_by": "operator"}]', "--ready", "1"
    )
    cli("sweep")
    (resource,) = (str(one["id"]) for one in cli.json("resources", "list") if one["blueprint"] == pool)
    assert "Erase it?" in cli("attention").stdout
    assert cli.json("resolve", "--resource", resource, "--no", "-m", "in use") == {"resolved": True, "yes": False}
    cli("sweep")
    cli("resolve", "--resource", resource, code=3)
    assert "answered no: in use" in cli.json("resources", "show", resource)["message"]
    cli("blueprints", "disable", pool)
