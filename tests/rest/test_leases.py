"""Leases over REST: from asking to the end."""

from __future__ import annotations

from django.db import connection
from django.test.utils import CaptureQueriesContext

from leases.inline import settle


def test_how_long_leases_last_is_set_and_told_over_rest(ada, api, chief):
    boss = api(chief, "operate")
    assert boss("PATCH", "blueprints/pool", {"max_ttl": "3h", "default_ttl": 3600})["max_ttl"] == 3 * 3600
    quota = boss("PUT", "quotas", {"user": "ada", "max_ttl": "2h", "default_ttl": "30m"})
    assert (quota["max_ttl"], quota["default_ttl"], quota["max_leases"]) == (7200, 1800, None)
    refused = ada("POST", "leases", {"type": "fake", "ttl": "3h"}, code=400)["errors"]
    assert [(one["field"], one["message"]) for one in refused] == [
        ("ttl", "A lease may last at most 2h: that is the quota of the user ada.")
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
