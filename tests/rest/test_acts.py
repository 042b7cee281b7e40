"""Acts over HTTP: what is listed, started and cancelled, who may, and hostile bodies."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource, Run

IMAGE = {"arguments": {"image": "blinky", "passes": 2}}


@pytest.fixture
def whole(ada):
    """The resource of a lease of ada's on all of it."""
    made = ada("POST", "leases", {"type": "fake", "exclusive": True}, code=201)["id"]
    settle()
    return Lease.objects.get(pk=made).resource_id


def done():
    while Run.objects.exists():
        settle()


def test_acts_are_listed_with_the_schema_of_their_arguments_started_and_their_end_is_told(ada, whole):
    program = ada("GET", f"resources/{whole}/acts")["results"][0]
    assert (program["name"], program["by"], program["refused"], program["outcome"]) == ("program", "holder", "", "")
    assert program["arguments"]["required"] == ["image"]
    started = ada("POST", f"resources/{whole}/acts/program", IMAGE)
    assert (started["outcome"], started["progress"]["phase"], started["progress"]["act"]) == ("asked", "act", "program")
    assert ada("GET", f"resources/{whole}")["progress"]["act"] == "program"
    done()
    program = ada("GET", f"resources/{whole}/acts")["results"][0]
    assert (program["outcome"], program["progress"]) == ("done", None)
    assert Event.objects.filter(kind="act.asked", actor="ada", resource=whole).count() == 1
    assert [one["name"] for one in ada("GET", "kinds/fake")["acts"]] == ["program", "service", "label"]


def test_an_act_is_cancelled(ada, whole):
    ada("POST", f"resources/{whole}/acts/program", IMAGE)
    assert ada("POST", f"resources/{whole}/acts/program/cancel")["outcome"] == "cancelling"
    done()
    assert ada("GET", f"resources/{whole}/acts")["results"][0]["outcome"] == "cancelled"
    assert ada("POST", f"resources/{whole}/acts/program/cancel", code=404)["code"] == "not_found"
    assert not Resource.objects.get().quarantined


def test_strangers_tokens_that_only_read_and_hostile_bodies_are_refused(api, ada, whole):
    bob = api(User.objects.create_user("bob"))
    at = f"resources/{whole}/acts"
    bob("GET", at, code=404)
    bob("POST", f"{at}/program", IMAGE, code=404)
    bob("POST", f"{at}/program/cancel", code=404)
    reader = api(User.objects.get(username="ada"), scope="read")
    reader("GET", at)
    reader("POST", f"{at}/program", IMAGE, code=403)
    reader("POST", f"{at}/program/cancel", code=403)
    ada("POST", f"{at}/service", code=403)
    for body, field in (
        ({}, "arguments.image"),
        ({"arguments": {"image": "../x"}}, "arguments.image"),
        ({"arguments": {"image": "a", "passes": 10**20}}, "arguments.passes"),
        ({"arguments": {"image": "a", "unknown": 1}}, "arguments.unknown"),
        ({"arguments": []}, "arguments"),
        ({"arguments": {"image": "a"}, "force": True}, "force"),
        ({"arguments": {"image": "a\u0000"}}, "arguments.image"),
    ):
        said = ada("POST", f"{at}/program", body, code=400)
        assert field in [one["field"] for one in said["errors"]], body
    ada("POST", f"{at}/no%00such", {}, code=404)
    ada("POST", f"{at}/explode", {}, code=404)
    ada("POST", f"resources/{10**18}/acts/program", IMAGE, code=404)
    assert not Run.objects.exists()
    assert not Event.objects.filter(kind__startswith="act.").exists()
