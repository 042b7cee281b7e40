"""Leases over REST: from asking to the end."""

from __future__ import annotations

from django.db import connection
from django.test.utils import CaptureQueriesContext

from leases.inline import settle


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
