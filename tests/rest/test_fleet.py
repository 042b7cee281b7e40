"""Instances, the fleet and orphans over REST, HTTP and the shell."""

from __future__ import annotations

import json

import pytest
from django.db.models import F
from django.db.models.functions import Now

from blueprints.fake.cloud import Cloud
from blueprints.models import Credential, Reading
from leases.engine.catalogue import poll_schedule
from leases.engine.core import specs
from leases.engine.sync import poll
from leases.messaging.inline import settle
from leases.models import Lease, Resource, Search, Stray
from leases.operations.callers import caller
from leases.rest import tokens
from tests.rest.attempts import Attempts
from tests.rest.test_cli import cli
from tests.rest.test_client import client, server

__all__ = ["cli", "client", "server"]


@pytest.fixture
def boss(api, chief):
    return api(chief, "operate")


@pytest.fixture
def hosts(blueprint):
    """A blueprint of cloud machines whose account was never read: what is asked for waits."""
    return blueprint("hosts", kind="ec2", resource_type="host", config={"credential": "aws"})


@pytest.fixture
def stray(blueprint):
    """Something of ours at a provider without a row, seen once."""
    blueprint("sky", config={"provider": "sky", "destroy_polls": 1, "poll_seconds": 0})
    made = Resource.objects.create(blueprint_id=_blueprint("sky"), type="fake", gone_at=Now())
    Cloud("sky").create(specs.key("r", made.pk), token="t", tags=specs.tags(made), offer="", generation=1)
    look()
    return Stray.objects.get()


def _blueprint(name):
    from blueprints.models import Blueprint

    return Blueprint.objects.get(name=name).pk


def look():
    Search.objects.update(due_at=Now())
    settle()


def later():
    import datetime as dt

    Stray.objects.update(first_seen_at=F("first_seen_at") - dt.timedelta(hours=1))


def test_an_orphan_is_destroyed_at_an_operators_word_and_not_before_its_time(boss, ada, stray, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"orphan_dry_run": True})
    (found,) = boss("GET", "orphans")["results"]
    assert (found["id"], found["side"], found["proof"], found["key"]) == (stray.pk, "object", "proven", stray.key)
    later()
    look()
    assert "DRYDOCK_ORPHAN_DRY_RUN" in boss("GET", "orphans/")["results"][0]["message"]
    said = boss("POST", f"orphans/{stray.pk}/destroy", {"dry_run": True}, code=202)
    assert said["message"].startswith("Dry run: ")
    assert not Stray.objects.get().wanted
    said = boss("POST", f"orphans/{stray.pk}/destroy", code=202)
    assert (said["wanted"], said["wanted_by"]) == ("destroy", "chief")
    for _ in range(4):
        look()
    assert boss("GET", "orphans")["results"] == []
    assert Cloud("sky").is_empty()
    attempt = Attempts(boss)
    attempt("POST", f"orphans/{stray.pk}/destroy", 404, "orphan")
    attempt("POST", f"orphans/{stray.pk}/destroy", 400, "dry", body={"dry": True})
    attempt.done()
    ada("GET", "orphans", code=403)


def test_an_adopted_machine_has_a_row_that_serves_nobody_and_can_be_retired(boss, stray):
    boss("POST", f"orphans/{stray.pk}/adopt", code=202)
    look()
    assert not Resource.objects.filter(origin="adopted").exists(), "it was seen too lately"
    later()
    look()
    assert boss("GET", "orphans")["results"] == []
    adopted = Resource.objects.get(origin="adopted")
    assert (adopted.state, adopted.quarantined, adopted.claimable, adopted.identity) == (
        "active", True, False, stray.key,
    )  # fmt: skip
    assert specs.name_of(adopted) == stray.key != specs.key("r", adopted.pk)
    boss("POST", f"resources/{adopted.pk}/unquarantine")
    adopted.refresh_from_db()
    assert not adopted.claimable, "there is no room on it"
    look()
    assert not Stray.objects.exists(), "it has a row"
    boss("POST", f"resources/{adopted.pk}/retire")
    settle()
    adopted.refresh_from_db()
    assert adopted.state == "destroyed"
    assert Cloud("sky").is_empty()


def test_a_suspect_is_listed_and_never_touched(boss, stray):
    tags = dict(Cloud("sky").instance(stray.key).tags) | {"drydock-proof": "0" * 40}
    Cloud("sky").create("a-copy", token="u", tags=tags, offer="", generation=1)
    look()
    suspect = next(one for one in boss("GET", "orphans")["results"] if one["proof"] == "suspect")
    attempt = Attempts(boss)
    attempt("POST", f"orphans/{suspect['id']}/destroy", 409)
    attempt("POST", f"orphans/{suspect['id']}/adopt", 409)
    attempt.done()
    assert [one["what"] for one in boss("GET", "attention")["results"]].count("suspect") == 1


def test_a_row_without_its_machine_is_listed(boss, blueprint):
    blueprint("shelf")
    row = Resource.objects.create(
        blueprint_id=_blueprint("shelf"), type="fake", state="active", observed="missing", missed=1, price=0.5
    )
    (found,) = boss("GET", "orphans")["results"]
    assert (found["side"], found["resource"], found["id"], found["price"]) == ("row", row.pk, None, 0.5)


def test_a_laptop_settles_orphans_and_makes_instances(cli, chief, stray, hosts, tmp_path):
    _, secret = tokens.create(caller(chief), name="laptop", scope="operate")
    laptop = cli.also(DRYDOCK_TOKEN=secret)
    assert json.loads(laptop("orphans", "--json", code=6).stdout)[0]["key"] == stray.key
    assert stray.key in laptop("orphans", "list", code=6).stdout
    assert "Dry run" in laptop("orphans", "destroy", str(stray.pk), "--dry-run").stdout
    laptop("orphans", "destroy", str(stray.pk), "--yes")
    assert Stray.objects.get().wanted == "destroy"
    assert "sky" in laptop("fleet").stdout
    (first_boot := tmp_path / "boot.yaml").write_text("#cloud-config\npackages: [git]\n")
    made = laptop.json("instances", "create", "--type", "t3.small", "--tag", "a=b", "--user-data", str(first_boot))
    assert Lease.objects.get(pk=made["id"]).requirements["user_data"] == {"packages": ["git"]}
    assert (made["state"], made["tags"]) == ("pending", {"a": "b"})
    assert str(made["id"]) in laptop("instances").stdout
    assert "pending" in laptop("instances", "show", str(made["id"])).stdout
    laptop("instances", "stop", str(made["id"]), code=4)
    laptop("instances", "delete", str(made["id"]))
    laptop("locations")
    laptop("instance-types")


@pytest.fixture
def vendor(blueprint):
    """An account that offers two machines, and a pool without offers."""
    Credential.objects.create(name="vendor", secrets={"provider": "vendor"})
    blueprint("shop", kind="fake_cloud", config={"provider": "vendor", "credential": "vendor"}, order=1)
    blueprint("shelf", order=2)
    cloud = Cloud("vendor")
    cloud.sell("east", "small", vcpus=2, price=0.1)
    cloud.sell("west", "gpu", vcpus=8, price=4.5, gpu_model="a100", gpu_count=1, confidential=["tdx"])
    poll_schedule.due()
    for what in ("places", "inventory"):
        Reading.objects.filter(what=what).update(due_at="2020-01-01T00:00Z")
        assert all([poll.read(one.pk) for one in Reading.objects.filter(what=what)])


def test_the_fleet_tells_what_each_backend_can_and_has(boss, ada, vendor, django_assert_max_num_queries):
    Resource.objects.create(
        blueprint_id=_blueprint("shelf"), type="fake", state="active", price=0.25, power_wanted="off", power="on",
        total_cpu_millicores=4000,
    )  # fmt: skip
    with django_assert_max_num_queries(14):
        # Two of them are the token's.
        found = {one["name"]: one for one in boss("GET", "fleet")["results"]}
    shop, pool = found["shop"], found["shelf"]
    assert (shop["name"], shop["account"], shop["regions"]) == ("shop", "vendor", ["east", "west"])
    assert (shop["confidential"], shop["gpus"], shop["cheapest"]) == (["tdx"], ["a100"], 0.1)
    assert (shop["largest_cpu_millicores"], shop["offers"]) == (8000, 2)
    assert shop["ages"]["inventory"] is not None
    assert (pool["machines"], pool["drift"], pool["price"]) == ({"active": 1}, {"power": 1}, 0.25)
    assert pool["largest_cpu_millicores"] == 4000
    ada("GET", "fleet", code=403)


def test_an_instance_is_a_lease_in_other_words(ada, hosts):
    made = ada("POST", "instances/", {"instance_type": ["t3.small"], "tags": {"a": "b"}, "max_price": 0.5}, code=201)
    assert (made["state"], made["tags"]) == ("pending", {"a": "b"})
    lease = ada("GET", f"leases/{made['id']}")
    assert lease["exclusive"]
    assert lease["requirements"]["market"] == ["on_demand"]
    other = ada("POST", "leases", {"type": "fake"}, code=201)
    assert [one["id"] for one in ada("GET", "instances?tag=a=b")["results"]] == [made["id"]]
    assert ada("GET", f"instances/{made['id']}/")["id"] == made["id"]
    attempt = Attempts(ada)
    attempt("GET", f"instances/{other['id']}", 404, "instance")
    attempt("POST", "instances", 400, "market", body={"market": "black"})
    attempt("POST", "instances", 400, "wings", body={"wings": 2})
    attempt("POST", "instances", 400, "requirements.user_data", body={"user_data": "ssh_pwauth: true"})
    attempt("POST", f"instances/{made['id']}/stop", 409)
    attempt.done()
    assert ada("DELETE", f"instances/{made['id']}/")["state"] in ("terminating", "terminated", "failed")
    settle()
    assert ada("DELETE", f"instances/{made['id']}")["state"] in ("terminated", "failed")
    assert ada("GET", "instances")["results"] == []
    assert len(ada("GET", "instances?all=true")["results"]) == 1


def test_an_idempotency_key_makes_one_instance(ada, hosts):
    first = ada("POST", "instances", {"name": "one", "idempotency_key": "k"}, code=201)
    assert ada("POST", "instances", {"name": "one", "idempotency_key": "k"}, code=201)["id"] == first["id"]
    attempt = Attempts(ada)
    attempt("POST", "instances", 409, body={"name": "two", "idempotency_key": "k"})
    attempt.done()
