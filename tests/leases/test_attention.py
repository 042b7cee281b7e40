"""What a person should look at."""

from __future__ import annotations

import datetime as dt

import pytest

from blueprints.models import Credential, Reading, RememberedError
from drydock.core import clock
from leases.engine.transaction import run
from leases.inline import settle
from leases.models import Resource
from leases.operations import access, attention, holding, resources, workers
from leases.operations.callers import caller


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
    assert found[0].mend == f"drydock resolve --resource {resource} -m WHAT-WAS-DONE"


def test_leases_that_are_held_wait_long_or_are_overdue(blueprint, ask, root, owner, settings, django_user_model):
    blueprint(config={"capacity": {"slots": 1}}, max_resources=1)
    held = ask()
    settle()
    waits = ask()
    settle()
    holding.hold(root, held.pk, reason="a look")
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
    asked = access.ask(caller(owner), "pool", message="please")
    found = attention.needed(root)
    assert [(one.what, one.name, one.message) for one in found] == [
        ("remembered_error", "pool", "offer big: Sold out."),
        ("authorization_asked", "pool", "ada asks to use it. please"),
    ]
    assert found[1].mend == f"drydock authorizations allow {asked.id}"
    access.settle(root, asked.id, allow=True)
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
