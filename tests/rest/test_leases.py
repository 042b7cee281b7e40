"""Leases over REST: from asking to the end."""

from __future__ import annotations

from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext

from leases.messaging.inline import settle


def test_how_long_leases_last_is_set_and_told_over_rest(ada, api, chief):
    boss = api(chief, "operate")
    assert boss("PATCH", "blueprints/pool", {"max_ttl": "3h", "default_ttl": 3600})["max_ttl"] == 3 * 3600
    quota = boss("PUT", "quotas", {"user": "ada", "max_ttl": "2h", "default_ttl": "30m"})
    assert (quota["max_ttl"], quota["default_ttl"], quota["max_leases"]) == (7200, 1800, None)
    refused = ada("POST", "leases", {"type": "fake", "ttl": "3h"}, code=400)["errors"]
    assert [(one["field"], one["message"]) for one in refused] == [
        ("ttl", "A lease can last at most 2h, because of the quota of the user ada.")
    ]
    made = ada("POST", "leases", {"type": "fake"}, code=201)
    assert made["ttl"] == 1800
    settle()
    for given in ({"ttl": "900d"}, {"ttl": "3h"}):
        refused = ada("POST", f"leases/{made['id']}/extend", given, code=400)
        assert "the quota of the user ada" in refused["errors"][0]["message"]
    boss("PUT", "quotas", {"user": "ada", "max_ttl": None})
    refused = ada("POST", f"leases/{made['id']}/extend", {"ttl": "4h"}, code=400)
    assert "the limit of the blueprint pool" in refused["errors"][0]["message"]
    assert boss("PATCH", "blueprints/pool", {"clear": ["max_ttl", "default_ttl"]})["default_ttl"] is None


def test_a_lease_is_asked_for_waited_for_and_released(api, owner, blueprint):
    blueprint()
    ada = api(owner)
    made = ada.raw("POST", "leases", {"type": "fake", "ttl": "2h", "labels": {"team": "a"}})
    assert made.status_code == 201
    lease = made.json()
    assert (lease["state"], lease["owner"], lease["ttl"], lease["place"]) == ("pending", "ada", 7200.0, 1)
    assert made.headers["Location"] == f"/api/v1/leases/{lease['id']}"

    settle()
    active = ada("GET", f"leases/{lease['id']}?wait=5")
    assert active["state"] == "active"
    assert [one["id"] for one in ada("GET", "leases?label=team=a")["results"]] == [lease["id"]]

    ada("POST", f"leases/{lease['id']}/release", {"message": "done"})
    settle()
    assert ada("GET", f"leases/{lease['id']}")["state"] == "destroyed"
    assert ada("GET", "leases")["results"] == []
    assert len(ada("GET", "leases?all=true")["results"]) == 1


def test_who_looks_at_one_lease_does_not_read_the_whole_queue(ada):
    waiting = [ada("POST", "leases", {"type": "fake", "slots": 1, "exclusive": True}, code=201)["id"] for _ in range(5)]
    settle()
    with CaptureQueriesContext(connection) as asked:
        places = [ada("GET", f"leases/{pk}")["place"] for pk in waiting]
    assert places == [None, None, 1, 2, 3]
    assert not [one["sql"] for one in asked if "ROW_NUMBER" in one["sql"]]


def test_a_command_may_have_several_lines(ada, held):
    ada("POST", f"leases/{held}/jobs", {"command": ["sh", "-c", "echo one\necho two"]}, code=202)
    ada("POST", f"leases/{held}/jobs", {"command": "echo one\n\techo two"}, code=202)


def test_a_note_is_written_searched_and_removed_over_rest(ada):
    made = ada("POST", "leases", {"type": "fake", "note": "for the Friday talk"}, code=201)
    assert [one["id"] for one in ada("GET", "leases?search=friday")["results"]] == [made["id"]]
    assert ada("PUT", f"leases/{made['id']}/note", {"note": "for Monday"})["note"] == "for Monday"
    assert ada("GET", "leases?search=friday")["results"] == []
    refused = ada("PUT", f"leases/{made['id']}/note", {"note": "x" * 2001}, code=400)
    assert refused["errors"][0]["field"] == "note"
    assert ada("GET", f"leases/{made['id']}")["note"] == "for Monday"


def test_a_lease_is_transferred_over_rest_and_the_former_owner_is_a_stranger(ada, api, django_user_model):
    user = django_user_model.objects.create_user("bob")
    bob = api(user)
    made = ada("POST", "leases", {"type": "fake"}, code=201)
    settle()
    refused = ada("POST", f"leases/{made['id']}/transfer", {"to": "bob"}, code=400)
    assert "only to members of your groups" in refused["errors"][0]["message"]
    Group.objects.create(name="team").user_set.add(user, django_user_model.objects.get(username="ada"))
    bob("POST", f"leases/{made['id']}/transfer", {"to": "bob"}, code=404)
    assert ada("POST", f"leases/{made['id']}/transfer", {"to": "nobody"}, code=400)["errors"][0]["field"] == "to"
    ada("POST", f"leases/{made['id']}/transfer", {"to": "bob", "message": "yours now"}, code=204)
    settle()
    ada("GET", f"leases/{made['id']}", code=404)
    found = bob("GET", f"leases/{made['id']}")
    assert (found["owner"], found["state"]) == ("bob", "active")
