"""The view of a cleaning apart from the lease: running or owed, its progress, and its failure."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from blueprints.models import Blueprint
from drydock.cli import resources as cli
from leases.engine.lifecycle import release
from leases.messaging.inline import settle
from leases.models import Debt, Lease, Resource, Run
from leases.operations import attention, fleet, installation, leases, resources
from leases.operations.callers import caller
from leases.reports import figures

PAST, NEVER = "2020-01-01T00:00Z", "2100-01-01T00:00Z"
BUSY = {"does": "fail", "at": "clean.wipe", "scope": "offer", "times": None, "message": "disk 2 is busy"}


@pytest.fixture
def operator():
    return caller(User.objects.create_superuser("root"))


def config(*faults):
    return {
        "clean_apart": True,
        "clean_polls": 4,
        "poll_seconds": 3600,
        "faults": list(faults),
        "capacity": {"slots": 2},
    }


@pytest.fixture
def unclean(blueprint, ask, until, operator):
    """A registered host that is cleaned after a lease, of which another lease holds the second slot."""
    made = blueprint("lab", kind="fake_activated", config=config(), max_resources=1)
    host = Resource.objects.get(pk=resources.register(operator, "lab", {"name": "host-1"}).id)
    until(host, state="active")
    until(ask("fake_activated", by=User.objects.create_user("ben")), state="active")
    lease = until(ask("fake_activated"), state="active")
    release.release(lease.pk, actor="ada")
    settle()
    Run.objects.filter(phase="clean").update(due_at=PAST)
    settle()
    assert made.pk == host.blueprint_id
    return until(host, in_maintenance=True)


@pytest.fixture
def failing(unclean, until):
    """The same host after a failed attempt."""
    Blueprint.objects.update(config=config(BUSY))
    Run.objects.filter(phase="clean").update(due_at=PAST, memo={})
    settle()
    Run.objects.all().delete()
    Debt.objects.update(due_at=NEVER)
    assert Debt.objects.get().tries >= 1
    return until(unclean, in_maintenance=True)


def test_a_resource_shows_how_far_its_cleaning_is(unclean, operator):
    shown = resources.get(operator, unclean.pk).cleaning
    lease = Lease.objects.get(state="destroyed")
    assert (shown.state, shown.percent, shown.sentence) == ("cleaning", 25, "Wiped 1 of 4 parts.")
    assert (shown.leases, shown.failures, shown.failure, shown.next_at) == ((lease.pk,), 0, "", None)
    assert abs((shown.since - lease.ended_at).total_seconds()) < 5


def test_a_resource_shows_which_step_of_its_cleaning_failed_and_what_it_said(failing, operator):
    shown = resources.get(operator, failing.pk).cleaning
    assert (shown.state, shown.percent, shown.sentence) == ("cleaning owed", None, "Waits for its next attempt.")
    assert shown.failure == "clean.wipe: disk 2 is busy"
    assert (shown.failures, shown.next_at.year) == (Debt.objects.get().tries, 2100)


def test_another_owner_learns_nothing_about_the_lease_before(failing):
    ben = caller("ben")
    shown = resources.get(ben, failing.pk)
    assert (shown.cleaning.state, shown.cleaning.leases, shown.cleaning.failure) == ("cleaning owed", (), "")
    assert "disk 2" not in str(shown)


def test_another_owner_sees_how_far_the_cleaning_is_and_not_what_its_steps_say(unclean):
    shown = resources.get(caller("ben"), unclean.pk)
    assert (shown.cleaning.percent, shown.cleaning.sentence, shown.progress.percent) == (25, "", 25)
    assert "Wiped" not in str(shown)


@pytest.mark.parametrize("who", ["root", "ada"])
def test_the_reason_why_a_lease_waits_names_the_cleaning(unclean, ask, operator, who):
    waiting = ask("fake_activated")
    settle()
    said = leases.get(caller(who), waiting.pk).waiting.message
    assert "host-1 must be cleaned first (cleaning: 25 %" in said
    assert ("Wiped 1 of 4 parts" in said) == (who == "root")
    assert "must be cleaned first" in str(leases.explain(caller(who), {"type": "fake_activated"}))


def test_the_reason_why_a_lease_waits_names_the_failure_to_operators(failing, ask, operator):
    waiting = ask("fake_activated")
    settle()
    assert "(cleaning owed: clean.wipe: disk 2 is busy)" in leases.get(operator, waiting.pk).waiting.message
    assert "(cleaning owed)" in leases.get(caller("ada"), waiting.pk).waiting.message


def test_attention_shows_a_cleaning_only_once_it_fails(unclean, operator):
    assert "cleaning_failed" not in {one.what for one in attention.needed(operator)}


def test_attention_shows_the_failing_step(failing, operator):
    (item,) = [one for one in attention.needed(operator) if one.what == "cleaning_failed"]
    tries = Debt.objects.get().tries
    after = f"After lease {Debt.objects.get().lease_id}, failed {tries} times at clean.wipe: disk 2 is busy"
    assert (item.id, item.message, item.mend.split(": ")[1]) == (
        failing.pk,
        after,
        f"drydock resources check {failing.pk}",
    )
    assert "cleaning_failed" not in {one.what for one in attention.needed(caller("ada"))}


@pytest.mark.parametrize(("state", "drift"), [("unclean", "cleaning"), ("failing", "cleaning owed")])
def test_the_fleet_counts_resources_that_must_be_cleaned(request, operator, state, drift):
    request.getfixturevalue(state)
    (backend,) = fleet.backends(operator)
    assert backend.drift == {drift: 1}


@pytest.mark.parametrize(("state", "counted"), [("unclean", "running"), ("failing", "failing")])
def test_the_metrics_count_resources_that_must_be_cleaned(request, state, counted):
    request.getfixturevalue(state)
    (figure,) = [one for one in figures.FIGURES if one.name == "unclean_resources"]
    assert figures.rows(figure.sql) == [("lab", counted, 1)]


def test_a_suspended_installation_lists_the_cleaning_that_it_holds_back(failing, operator):
    installation.suspend(operator, "restored from a backup")
    held = {(one.what, one.name, one.message) for one in installation.standing(operator).held}
    assert ("clean", "host-1", f"After lease {Debt.objects.get().lease_id}.") in held


def test_the_command_line_shows_it(unclean, operator):
    info = resources.get(operator, unclean.pk)
    assert "cleaning 25 %" in cli._flags(info)
    assert "in_maintenance" not in cli._flags(info)
    lease = Lease.objects.get(state="destroyed")
    assert cli._cleaning(info.cleaning) == f"cleaning 25 % after lease {lease.pk} Wiped 1 of 4 parts."


def test_the_command_line_shows_what_failed(failing, operator):
    info = resources.get(operator, failing.pk)
    assert "cleaning owed" in cli._flags(info)
    said = cli._cleaning(info.cleaning)
    assert f"Failed {info.cleaning.failures} times: clean.wipe: disk 2 is busy" in said
    assert said.endswith("Next attempt: 2100-01-01 00:00:00 UTC.")


@pytest.mark.parametrize(
    ("state", "badge", "words"),
    [
        ("unclean", "cleaning", "cleaning: 25 %, Wiped 1 of 4 parts"),
        ("failing", "cleaning owed", "at clean.wipe: disk 2 is busy"),
    ],
)
def test_the_console_shows_it(request, state, badge, words):
    host = request.getfixturevalue(state)
    site = Client()
    site.force_login(User.objects.get(username="root"))
    page = site.get(reverse("admin:leases_resource_change", args=(host.pk,))).content.decode()
    found = site.get(reverse("admin:leases_resource_changelist"), {"attention": "must be cleaned"}).content.decode()
    assert words in page
    for shown in (page, found):
        assert re.search(rf"{badge}\s*</span>", shown)
        assert "host-1" in shown
