"""Another owner's things: whatever the address, the verb or the filter, they are as if they were not there."""

from __future__ import annotations

import gzip
import json
import re

import pytest
from django.contrib.auth.models import User

from blueprints.fake.cloud import Cloud
from blueprints.models import Blueprint, Credential, Reading
from leases.engine.catalogue import poll_schedule
from leases.engine.sync import poll
from leases.messaging.inline import settle
from leases.models import Agent, ReportedHardware, Resource, Stray, Sync
from leases.operations.callers import caller
from leases.rest import tokens
from leases.rest.schema import METHODS
from leases.rest.urls import V1

MISSING = 987_654_321
SECRET = "zanzibar"
BODIES = {
    "note": {"note": "x"}, "transfer": {"to": "eve"}, "jobs": {"command": ["true"]}, "extend": {"ttl": "1h"},
    "server": {"act": "start"}, "agent": {"server": "https://drydock.example.org"}, "power": {"wanted": "on"},
    "confirm": {"fingerprint": "0" * 64}, "quarantine": {"message": "x"}, "no_reboots": {"reason": "x"},
    "update": {"reason": "x"},
    "force_destroy": {"reason": "x"}, "resize": {"disk_gib": 100}, "change-type": {"type_name": "x"},
    "tags": {"tags": {"a": "b"}}, "detach": {"session": "0" * 32},
    "input": {"session": "0" * 32, "sequence": 1, "content": "eA=="},
}  # fmt: skip


def operations():
    """Every operation there is: address, method, what it declares."""
    for address, view in V1.items():
        for method in METHODS:
            act = getattr(view, method, None)
            if act is not None and method in view.http_method_names:
                yield address, method.upper(), act.operation


@pytest.fixture
def theirs(api, owner, blueprint):
    """What ada has: by the first word of an address, an id."""
    blueprint("pool", config={"boot_polls": 0})
    sold(blueprint)
    ada = api(owner)
    given = {"type": "fake", "name": SECRET, "labels": {SECRET: SECRET}}
    group = ada("POST", "groups", {"leases": [given, {**given, "name": f"{SECRET}-2"}]}, code=201)["results"]
    settle()
    job = ada("POST", f"leases/{group[0]['id']}/jobs", {"command": [SECRET]}, code=202)
    asked = ada("POST", "authorizations", {"blueprint": "pool", "message": SECRET}, code=201)
    made = ada("POST", "tokens", {"name": SECRET}, code=201)["about"]
    lease = ada("GET", f"leases/{group[0]['id']}")
    assert lease["state"] == "active"
    pool = Blueprint.objects.get(name="pool")
    orphan = Stray.objects.create(blueprint=pool, key=SECRET, epoch=1, resource_number=1)
    agent = Agent.objects.create(blueprint=pool, place=SECRET, name=SECRET, interval=60)
    cards = blueprint("cards", kind="accelerators", config={"reports": "sent"}, max_resources=0)
    host = Resource.objects.create(blueprint=pool, type="host", name=SECRET, state="active")
    sync = Sync.objects.create(blueprint=cards, place=str(host.pk), source="sent", message=SECRET)
    content = json.dumps({"version": 1, "host": {}, "devices": [{"id": SECRET}]}).encode()
    ReportedHardware.objects.create(sync=sync, digest="", content=gzip.compress(content), size=len(content))
    return {
        "hardware": sync.pk, "agents": agent.pk, "leases": lease["id"], "groups": lease["group"], "jobs": job["id"],
        "resources": lease["resource"], "authorizations": asked["id"],
        "tokens": made["id"], "instances": lease["id"], "orphans": orphan.pk,
    }  # fmt: skip


def sold(blueprint):
    """What is offered in an account of a blueprint that serves only whom it authorizes."""
    account = Credential.objects.create(name=SECRET, secrets={"provider": SECRET})
    config = {"provider": SECRET, "credential": SECRET}
    blueprint("private", kind="fake_cloud", config=config, audience="authorized", note=SECRET)
    Cloud(SECRET).sell(SECRET, SECRET, zone=SECRET, vcpus=1, price=0.1)
    poll_schedule.due()
    for what in ("places", "inventory"):
        assert [poll.read(one.pk) for one in Reading.objects.filter(what=what, credential=account)] == [True]


@pytest.fixture
def eve(api):
    return User.objects.create_user("eve")


def answer(program, method, address, number):
    path = address.replace("<id:id>", str(number))
    query = "?path=x" if re.search(r"/(file|files|tree|page|pages)$", path) else ""
    body = BODIES.get(path.rsplit("/", 1)[-1], {} if method in ("POST", "PATCH") else None)
    found = program.raw(method, path + query, body)
    # An id may be the number of the status, which stays.
    return found.status_code, re.sub(rf'(?<!"status": )\b{number}\b', "ID", found.content.decode())


@pytest.mark.parametrize("scope", ["read", "lease", "operate"])
def test_every_address_answers_as_if_they_were_not_there(api, eve, theirs, scope):
    program = api(eve, scope)
    tried = 0
    for address, method, declared in operations():
        if "<id:id>" not in address:
            continue
        got = answer(program, method, address, theirs[address.split("/")[0]])
        assert got == answer(program, method, address, MISSING), (method, address)
        assert SECRET not in got[1], (method, address)
        assert got[0] in (403, 404), (method, address, got)
        if declared.scope == "read" or scope == declared.scope == "lease":
            assert got[0] == 404, (method, address, got)
        tried += 1
    assert tried > 40


def test_no_list_filter_or_search_tells_of_them(api, eve, theirs):
    program = api(eve)
    values = {
        "owner": "ada", "user": "ada", "group": theirs["groups"], "resource": theirs["resources"], "name": SECRET,
        "lease": theirs["leases"], "label": f"{SECRET}={SECRET}", "blueprint": "pool", "type": "fake", "state": "",
        "all": "true", "held": "true", "gone": "true", "newest": "true", "limit": 1000, "after": 0,
        "cursor": "999999999", "kind": "fake_cloud", "credential": SECRET, "region": SECRET, "continent": "EU",
        "zone": SECRET, "market": "spot", "arch": "x86_64", "vcpus": 1, "ram_mib": 1, "gpu": "a100", "gpu_maker": "x",
        "gpus": 1, "gpu_memory_mib": 1, "confidential": "tdx", "max_price": 100, "max_boot": 100, "sort": "fastest",
        "capabilities": "true", "since": "2020-01-01T00:00:00Z", "until": "2030-01-01T00:00:00Z", "place": SECRET,
        "as_": "json", "by": "owner", "location": SECRET, "instance_type": SECRET, "tag": f"{SECRET}={SECRET}",
        "search": SECRET, "host": SECRET, "serial": SECRET, "verified": "true",
    }  # fmt: skip
    tried = 0
    for address, method, declared in operations():
        if method != "GET" or "<" in address:
            continue
        asked = {field.alias or name: values[name] for name, field in declared.query.model_fields.items()}
        every = [f"{name}={value}" for name, value in asked.items() if value != ""]
        wide = "&".join(f"{name}=true" for name in ("all", "held", "gone") if name in asked)
        for query in ["", wide, *every]:
            found = program.raw("GET", f"{address}?{query}")
            said = found.content.decode()
            assert found.status_code in (200, 403), (address, query, said)
            assert SECRET not in said, (address, query)
            if found.status_code == 200:
                assert '"ada"' not in said, (address, query)
            tried += 1
    assert tried > 30
    for path in ("leases", "explain", "groups", "groups/explain"):
        body = {"leases": [{"type": "fake"}]} if "groups" in path else {"type": "fake"}
        for name in ("ada", "nobody"):
            assert "operator" in program("POST", f"{path}?owner={name}", body, code=403)["detail"]


def test_a_scope_is_asked_for_before_anything_else(api, chief, owner, theirs):
    """With every token that reaches too short, every address says only that."""
    reads, leases = api(chief, "read"), api(chief, "lease")
    tried = 0
    for address, method, declared in operations():
        path = address.replace("<id:id>", "1").replace("<word:name>", "pool").replace("<user:user>", "eve")
        for program, reached in ((reads, ("read",)), (leases, ("read", "lease"))):
            if declared.scope in reached:
                continue
            said = program(method, path, {}, code=403)
            assert (said["code"], "scope" in said["detail"]) == ("not_allowed", True), (method, path)
            tried += 1
    assert tried > 60


def test_bad_tokens_get_nowhere(api, owner, theirs):
    gone = api(owner)
    tokens.revoke(caller(owner), tokens.list_(caller(owner))[0].id)
    for address, method, _ in operations():
        path = (
            address.replace("<id:id>", str(theirs.get(address.split("/")[0], 1)))
            .replace("<word:name>", "pool")
            .replace("<user:user>", "eve")
        )
        found = gone.raw(method, path, {})
        assert found.status_code == 401, (method, path)
        assert SECRET not in found.content.decode()
        assert json.loads(found.content)["code"] == "not_authenticated"


def test_a_key_of_idempotency_is_of_its_owner_and_its_request(api, owner, eve, blueprint):
    blueprint()
    ada, hers = api(owner), api(eve)
    key = {"Idempotency-Key": "k 1"}
    first = ada("POST", "leases", {"type": "fake", "ttl": "1h"}, code=201, headers=key)
    assert ada("POST", "leases", {"type": "fake", "ttl": 3600}, code=201, headers=key)["id"] == first["id"]
    assert ada("POST", "leases", {"type": "fake", "ttl": "2h"}, code=409, headers=key)["code"] == "conflict"
    both = {"type": "fake", "ttl": "1h", "idempotency_key": "other"}
    assert ada("POST", "leases", both, code=400, headers=key)["field"] == "idempotency_key"
    assert hers("POST", "leases", {"type": "fake", "ttl": "1h"}, code=201, headers=key)["id"] != first["id"]
    assert len(ada("GET", "leases?all=true")["results"]) == 1

    ada("POST", f"leases/{first['id']}/release", {})
    settle()
    again = ada("POST", "leases", {"type": "fake", "ttl": "1h"}, code=201, headers=key)
    assert (again["id"], again["state"]) == (first["id"], "destroyed")

    members = {"leases": [{"type": "fake"}, {"type": "fake"}]}
    group = ada("POST", "groups", members, code=201, headers={"Idempotency-Key": "g"})["results"]
    again = ada("POST", "groups", members, code=201, headers={"Idempotency-Key": "g"})["results"]
    assert [one["id"] for one in group] == [one["id"] for one in again]
    ada("POST", "groups", {**members, "same": "resource"}, code=409, headers={"Idempotency-Key": "g"})


def test_a_known_tag_is_not_answered_again(api, owner, blueprint):
    blueprint(config={"boot_polls": 0})
    ada = api(owner)
    made = ada.raw("POST", "leases", {"type": "fake"})
    place, tag = f"leases/{made.json()['id']}", made.headers["ETag"]
    same = ada.raw("GET", place, headers={"If-None-Match": tag})
    assert (same.status_code, same.content, same.headers["ETag"]) == (304, b"", tag)
    settle()
    moved = ada.raw("GET", f"{place}?wait=20", headers={"If-None-Match": tag})
    assert (moved.status_code, moved.json()["state"]) == (200, "active")
    assert moved.headers["ETag"] != tag
    assert moved.headers["Cache-Control"] == "no-store"
