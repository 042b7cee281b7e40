"""A lease's note: written by its owner, found again in every face."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from bench import population
from drydock.core.errors import InvalidRequest, NotFound
from leases.admin.toolkit import search
from leases.engine.core.database import rows
from leases.models import Event, Lease
from leases.operations import leases
from leases.operations.callers import caller

pytestmark = pytest.mark.django_db(transaction=True)


def found(who, words):
    return [one.id for one in leases.list_(who, search=words)]


def test_a_note_is_kept_found_and_removed(blueprint, ask, owner):
    blueprint()
    lease, who = ask(), caller(owner)
    leases.set_note(who, lease.pk, note="Benchmark for\nthe Friday talk")
    assert leases.get(who, lease.pk).note == "Benchmark for\nthe Friday talk"
    assert found(who, "friday benchmark") == [lease.pk] == search.lease_ids("friday")
    assert found(who, "monday") == [] == search.lease_ids("monday")
    leases.set_note(who, lease.pk, note="")
    assert found(who, "friday") == [] == search.lease_ids("friday")
    told = list(Event.objects.filter(lease=lease, kind="lease.noted").order_by("id").values_list("message", flat=True))
    assert told == ["The note was changed.", "The note was removed."]


def test_the_same_note_again_is_no_event(blueprint, ask, owner):
    blueprint()
    lease = ask()
    for _ in range(2):
        leases.set_note(caller(owner), lease.pk, note="once")
    assert Event.objects.filter(lease=lease, kind="lease.noted").count() == 1


def test_a_search_finds_the_beginning_of_a_name_too(blueprint, ask, owner):
    blueprint()
    lease = ask(name="Night-build")
    assert found(caller(owner), "night") == [lease.pk]
    assert found(caller(owner), "build") == []


@pytest.mark.parametrize("note", ["x" * 2001, "a\x1b[2J", "\u202egpj.exe"])
def test_what_is_no_note_is_refused(blueprint, ask, owner, note):
    blueprint()
    lease = ask()
    with pytest.raises(InvalidRequest) as refused:
        leases.set_note(caller(owner), lease.pk, note=note)
    assert refused.value.field == "note"
    assert Lease.objects.get(pk=lease.pk).note == ""


def test_strangers_neither_write_nor_find_it(blueprint, ask, owner, django_user_model):
    blueprint()
    lease = ask()
    leases.set_note(caller(owner), lease.pk, note="secret plan")
    stranger = caller(django_user_model.objects.create_user("mallory"))
    with pytest.raises(NotFound):
        leases.set_note(stranger, lease.pk, note="mine")
    assert found(stranger, "plan") == []


def test_a_search_reads_indexes_and_not_every_lease(blueprint, ask, owner, django_user_model):
    blueprint()
    lease = ask(name="Night-build", note="for the Friday talk")
    population.history(owner.pk, "fake", 20_000)
    rows("VACUUM ANALYZE leases_lease")
    operator = caller(django_user_model.objects.create_superuser("root"))
    for words in ("friday", "night"):
        with CaptureQueriesContext(connection) as sent:
            assert found(operator, words) == [lease.pk]
        (searching,) = (one["sql"] for one in sent.captured_queries if "to_tsvector" in one["sql"])
        plan = "\n".join(line for (line,) in rows("EXPLAIN " + searching.replace("%", "%%")))
        assert "lease_note_words" in plan
        assert "lease_name_begins" in plan
        assert re.search(r"Seq Scan on leases_lease\b", plan) is None, plan
