"""Machines over HTTP: what is asked and answered, who may, and what is not supported."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from blueprints.models import Blueprint
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource, Run
from tests.rest.attempts import Attempts

ACTS = {
    "stop": {}, "start": {}, "reboot": {}, "resize": {"disk_gib": 100}, "change-type": {"type_name": "big"},
    "tags": {"tags": {"team": "a"}},
}  # fmt: skip


@pytest.fixture
def whole(ada):
    """A lease of ada's on all of a machine."""
    made = ada("POST", "leases", {"type": "fake", "exclusive": True}, code=201)["id"]
    settle()
    return made


def done():
    while Run.objects.exists():
        settle()


def test_acts_are_asked_for_and_their_outcome_is_told(ada, whole):
    for act, word in (("reboot", "rebooted"), ("resize", "100 GiB"), ("tags", "team")):
        asked = ada("POST", f"leases/{whole}/{act}", ACTS[act])
        phase = "tag" if act == "tags" else act
        assert (asked["outcome"], asked["progress"]["phase"]) == ("asked", phase)
        done()
        info = ada("GET", f"leases/{whole}/machine")
        assert (info["act"], info["outcome"], info["progress"]) == (phase, "done", None)
        assert word in info["message"]
    assert (info["disk_gib"], info["tags"]) == (100, {"team": "a"})
    ada("POST", f"leases/{whole}/stop")
    done()
    assert ada("GET", f"leases/{whole}/machine")["power"] == "off"
    assert ada("POST", f"leases/{whole}/reboot", code=409)["code"] == "conflict"
    ada("POST", f"leases/{whole}/start")
    done()
    assert ada("GET", f"leases/{whole}/machine")["power"] == "on"
    assert ada("POST", f"leases/{whole}/console")["text"] == ""
    assert Event.objects.filter(kind="machine.console", lease=whole, actor="ada").count() == 1


def test_what_is_not_supported_names_the_capability(ada, whole):
    said = ada("POST", f"leases/{whole}/change-type", {"type_name": "big"}, code=409)
    assert (said["code"], said["capability"]) == ("not_supported", "change-type")
    assert "not supported by the kind fake" in said["detail"]
    Blueprint.objects.update(config={"lacks": ["powers", "reboots", "resizes", "tags", "consoles"]})
    names = {"stop": "stop-start", "start": "stop-start", "reboot": "reboot", "resize": "resize-volume", "tags": "tags"}
    for act, name in names.items():
        assert ada("POST", f"leases/{whole}/{act}", ACTS[act], code=409)["capability"] == name
    assert ada("POST", f"leases/{whole}/console")["source"] == "record"
    assert ada("GET", f"leases/{whole}/access", code=409)["capability"] == "access"
    assert ada("GET", f"leases/{whole}/machine")["capabilities"] == []
    assert not Run.objects.exists()


def test_strangers_and_holders_of_a_part_are_refused_and_nothing_is_done(api, ada, whole, held):
    bob = api(User.objects.create_user("bob"))
    refused = Attempts(bob)
    for act, body in ACTS.items():
        refused("POST", f"leases/{whole}/{act}", 404, body=body)
        refused("POST", f"resources/1/{act}", 403, body=body)
    refused("POST", f"leases/{whole}/console", 404)
    refused("GET", f"leases/{whole}/machine", 404)
    refused("GET", f"leases/{whole}/access", 404)
    refused("GET", "resources/1/machine", 403)
    refused.done()
    assert not Run.objects.exists()


def test_a_part_of_a_machine_is_not_the_whole(api, owner, blueprint):
    blueprint("wide", config={"capacity": {"slots": 4}})
    program = api(owner)
    lease = program("POST", "leases", {"type": "fake"}, code=201)["id"]
    settle()
    for act, body in ACTS.items():
        if act != "change-type":
            assert program("POST", f"leases/{lease}/{act}", body, code=403)["code"] == "not_allowed"
    assert program("POST", f"leases/{lease}/console", code=403)
    assert Lease.objects.get().state == "active"


def test_operators_do_it_to_any_machine(api, chief, ada, whole):
    program = api(chief, "operate")
    resource = Resource.objects.get().pk
    program("POST", f"resources/{resource}/reboot")
    done()
    assert program("GET", f"resources/{resource}/machine")["outcome"] == "done"
    assert program("POST", f"resources/{resource}/console")["resource"] == resource
    program("POST", "resources/4711/reboot", code=404)


def test_wrong_bodies_change_nothing(ada, whole):
    wrong = Attempts(ada)
    for body in ({}, {"disk_gib": 0}, {"disk_gib": "1"}, {"disk_gib": 1 << 40}, {"disk_gib": 10, "x": 1}):
        wrong("POST", f"leases/{whole}/resize", 400, body=body)
    for tags in ({}, {"a": 1}, {"drydock-x": "1"}, {"a": "b" * 300}, {"": "b"}):
        wrong("POST", f"leases/{whole}/tags", 400, body={"tags": tags})
    wrong.done()
