"""Offers, types and places over HTTP; accounts that are read at once."""

from __future__ import annotations

import pytest

from blueprints.fake.cloud import Cloud
from blueprints.models import Credential, Reading
from leases.engine.catalogue import poll_schedule
from leases.engine.sync import poll
from leases.local import LocalClient
from leases.messaging import hints
from leases.operations.callers import caller
from leases.rest import tokens
from tests.rest.attempts import Attempts
from tests.rest.test_cli import cli
from tests.rest.test_client import client, server

__all__ = ["cli", "client", "server"]


@pytest.fixture
def vendor(blueprint):
    """An account in which seven machines are offered in two places."""
    Credential.objects.create(name="vendor", secrets={"provider": "vendor"})
    blueprint("shop", kind="fake_cloud", config={"provider": "vendor", "credential": "vendor"})
    cloud = Cloud("vendor")
    for number in range(6):
        cloud.sell("east", f"t{number}", vcpus=number, price=number / 10, price_source="provider")
    cloud.sell("west", "gpu", vcpus=8, price=4.5, gpu_model="a100", gpu_count=1, country="DE", confidential=["tdx"])
    poll_schedule.due()
    for what in ("places", "inventory"):
        Reading.objects.filter(what=what).update(due_at="2020-01-01T00:00Z")
        assert all([poll.read(one.pk) for one in Reading.objects.filter(what=what)])
    return cloud


def found(program, query):
    return [one["type"] for one in program("GET", f"offers?{query}")["results"]]


def test_offers_are_filtered_ordered_and_paged(ada, vendor):
    assert found(ada, "gpu=a100&max_price=5&continent=EU&confidential=tdx&all=true") == ["gpu"]
    assert found(ada, "type=t1&type=g*&sort=vcpus") == ["gpu", "t1"]
    assert found(ada, "region=east&vcpus=4") == ["t4", "t5"]
    first = ada("GET", "offers?limit=4")
    second = ada("GET", f"offers?limit=4&cursor={first['next']}")
    assert [one["type"] for one in (*first["results"], *second["results"])] == [*(f"t{n}" for n in range(6)), "gpu"]
    assert second["next"] is None
    assert (first["results"][1]["price"], first["results"][1]["price_source"]) == (0.1, "provider")
    assert first["results"][0]["seen_at"]


def test_types_are_paged_by_id_and_places_are_listed(ada, vendor):
    first = ada("GET", "instance-types?limit=4")
    second = ada("GET", f"instance-types?limit=4&cursor={first['next']}")
    assert len({one["type"] for one in (*first["results"], *second["results"])}) == 7
    assert first["results"][0]["prices"][0].keys() == {"zone", "market", "price", "source", "available"}
    assert [(one["name"], one["offers"]) for one in ada("GET", "locations")["results"]] == [("east", 6), ("west", 1)]


def test_a_wrong_parameter_is_told_by_its_field(ada):
    attempt = Attempts(ada)
    for query, field in (
        ("sort=name", "sort"), ("market=black", "market"), ("continent=XX", "continent.0"), ("gpus=1.5", "gpus"),
        ("confidential=sgx", "confidential.0"), ("max_price=0", "max_price"), ("max_price=cheap", "max_price"),
        ("max_price=nan", "max_price"), ("ram_mib=much", "ram_mib"), ("all=1", "all"), ("limit=0", "limit"),
        ("limit=1001", "limit"), ("cursor=x", "cursor"), ("cursor=1_2_3", "cursor"), ("gpu=a&gpu=b", "gpu"),
        ("wings=2", "wings"), ("type=%00", "type"),
    ):  # fmt: skip
        attempt("GET", f"offers?{query}", 400, field)
    attempt("GET", "instance-types?sort=price", 400, "sort")
    attempt("GET", "instance-types?cursor=1_2", 400, "cursor")
    attempt("GET", "locations?name=east", 400, "name")
    attempt("GET", "credentials?capabilities=1", 403)
    attempt.done()


def test_an_account_is_read_at_once_by_operators(api, chief, ada, vendor):
    boss = api(chief, "operate")
    with hints.collected() as sent:
        told = boss("POST", "credentials/vendor/read", {}, code=202)
        assert {hint for hint, _ in sent} == {"read"}
    assert {one["what"] for one in told["readings"]} == {"places", "inventory", "status", "allowances"}
    assert boss("GET", "credentials/vendor")["readers"] == [{"kind": "fake_cloud", "capabilities": None, "problem": ""}]
    (listed,) = boss("GET", "credentials?capabilities=true")["results"]
    assert [one["found"] for one in listed["readings"] if one["what"] == "inventory"] == [6, 1]
    assert boss("POST", "credentials/nothing/read", {}, code=404)["code"] == "not_found"
    boss("POST", "credentials", {"name": "lab", "secrets": {"a": "x"}}, code=201)
    assert boss("POST", "credentials/lab/read", {}, code=409)["code"] == "conflict"
    ada("POST", "credentials/vendor/read", {}, code=403)


def test_here_and_over_http_are_the_same(client, owner, chief, vendor):
    ada, here = client(owner), LocalClient(caller(owner))
    for wanted in ({}, {"type": ("t*", "gpu"), "max_price": 0.35}, {"sort": "fastest", "all": True, "gpus": 0}):
        assert ada.offers(wanted, limit=3) == here.offers(wanted, limit=3)
    assert [one.type for one in ada.offers({"region": ["west"]})] == ["gpu"]
    assert ada.instance_types({"vcpus": 4}) == here.instance_types({"vcpus": 4})
    assert ada.locations() == here.locations()
    with pytest.raises(Exception, match="must be more than 0"):
        ada.offers({"max_price": 0.0})
    boss = client(chief, "operate")
    assert boss.read_credential("vendor").readings[0].due_at <= boss.credential("vendor").readings[0].due_at
    assert boss.credentials(capabilities=True)[0].readers == boss.credential("vendor").readers


def test_a_laptop_looks_through_them(cli, owner, vendor):
    _, secret = tokens.create(caller(owner), name="laptop")
    laptop = cli.also(DRYDOCK_TOKEN=secret)
    (found,) = laptop.json("offers", "--gpu", "a100", "--max-price", "5", "--continent", "EU")
    assert (found["type"], found["account"], found["confidential"]) == ("gpu", "vendor", ["tdx"])
    told = laptop("offers", "--type", "t*", "--sort", "vcpus", "--limit", "2")
    assert [line.split()[3] for line in told.stdout.splitlines()[1:]] == ["t5", "t4"]
    assert "The first 2" in told.stderr
    assert "max_price" in laptop("offers", "--max-price", "0", code=2).stderr
    laptop("credentials", "read", "vendor", code=7)
