"""Registered resources over REST, HTTP and here: registered, found by name, corrected, removed."""

from __future__ import annotations

import pytest

from blueprints.fake.cloud import Cloud
from blueprints.models import Credential
from drydock_client.errors import DrydockError
from interfaces.keys import PublicKey
from leases.messaging.inline import settle
from leases.models import Event, Resource
from tests.interfaces.sshd import own_address, start_sshd
from tests.rest.test_client import client, server

__all__ = ["client", "server"]


@pytest.fixture
def boss(api, chief):
    return api(chief, "operate")


@pytest.fixture
def pool(blueprint):
    """Whatever is registered first fails at its last step."""
    fault = {"does": "fail", "at": "build.verify", "message": "There is no such host.", "times": 1}
    return blueprint("pool", config={"faults": [fault], "capacity": {"slots": 4}})


def test_what_fails_its_first_check_stays_listed_until_it_is_corrected(boss, pool):
    made = boss("POST", "blueprints/pool/resources", {"name": "alpha", "attributes": {"color": "red"}}, code=201)
    settle()
    events = Event.objects.filter(kind="resource.check_failed", resource=made["id"])
    assert [one.message for one in events] == ["First check failed: There is no such host."]
    changed = boss("PATCH", f"resources/{made['id']}", {"attributes": {"color": "blue"}, "capacity": {"slots": 2}})
    assert changed["id"] == made["id"]
    settle()
    (found,) = boss("GET", "resources?name=alpha")["results"]
    assert (found["state"], found["attributes"]["color"], found["capacity"]["slots"]["total"]) == ("active", "blue", 2)
    assert found["suspect_since"] is None
    event = Event.objects.get(kind="resource.changed", resource=made["id"])
    assert (event.actor, event.message) == ("chief", "Changed: attributes, capacity.")


def test_it_stays_with_its_problem_while_it_goes_on_failing(boss, blueprint):
    fault = {"does": "fail", "at": "build.verify", "message": "There is no such host.", "times": None}
    blueprint("pool", config={"faults": [fault]})
    made = boss("POST", "blueprints/pool/resources", {"name": "alpha"}, code=201)["id"]
    for _ in range(3):
        settle()
    found = boss("GET", f"resources/{made}")
    assert (found["state"], found["message"]) == ("pending", "First check failed: There is no such host.")
    assert found["suspect_since"]
    assert found["progress"]["sentence"].startswith("Attempt ")
    assert [one["what"] for one in boss("GET", "attention")["results"] if one["id"] == made] == ["first_check"]
    assert Event.objects.filter(kind="resource.check_failed", resource=made).count() == 1, "told once"
    boss("POST", f"resources/{made}/retire", {})
    settle()
    assert boss("GET", f"resources/{made}")["state"] == "destroyed"
    assert not Cloud("default").instances()
    assert boss("GET", "resources?name=alpha")["results"] == []


def test_wrong_fields_and_callers_are_refused(boss, api, owner, blueprint):
    blueprint("pool")
    made = boss("POST", "blueprints/pool/resources", {"name": "alpha"}, code=201)["id"]
    settle()
    assert boss("PATCH", f"resources/{made}", {"colour": "red"}, code=400)["errors"][0]["field"] == "colour"
    assert boss("PATCH", f"resources/{made}", {"name": None}, code=400)["errors"][0]["field"] == "name"
    boss("PATCH", "resources/987654", {"name": "beta"}, code=404)
    api(owner, "operate")("PATCH", f"resources/{made}", {"name": "beta"}, code=403)
    boss("POST", "blueprints/pool/resources", {"name": "beta"}, code=201)
    assert "already registered" in boss("PATCH", f"resources/{made}", {"name": "beta"}, code=409)["detail"]
    boss("POST", "leases", {"type": "fake"}, code=201)
    settle()
    held = Resource.objects.get(used_slots=1)
    assert "held by leases" in boss("PATCH", f"resources/{held.pk}", {"name": "gamma"}, code=409)["detail"]


def test_here_and_over_http_are_the_same(client, chief, blueprint):
    blueprint("pool")
    there = client(chief, "operate")
    made = there.register("pool", {"name": "alpha"})
    settle()
    changed = there.change_registration(made.id, {"attributes": {"color": "blue"}})
    assert changed.suspect_since is not None
    settle()
    (found,) = there.resources(name="alpha")
    assert (found.attributes["color"], found.suspect_since) == ("blue", None)
    assert there.resources(name="beta") == []


def test_the_keys_that_a_host_shows_are_told_without_storing_anything(client, chief, owner, blueprint, api):
    sshd = start_sshd(own_address(9))
    try:
        Credential.objects.create(name="key", secrets={"private_key": sshd.user.private})
        blueprint("lab", kind="ssh_host", resource_type="host", config={"credential": "key"})
        there = client(chief, "operate")
        (shown,) = there.host_keys("lab", sshd.address, port=sshd.port)
        assert shown.key == PublicKey.parse(sshd.host.public).line
        assert shown.fingerprint == PublicKey.parse(sshd.host.public).fingerprint
        assert not Resource.objects.exists()
        where = {"address": sshd.address, "port": sshd.port}
        api(owner, "operate")("POST", "blueprints/lab/host-keys", where, code=403)
    finally:
        sshd.stop()
    with pytest.raises(DrydockError, match="presented no host key: Connection refused"):
        there.host_keys("lab", sshd.address, port=sshd.port)
    blueprint("pool")
    with pytest.raises(DrydockError, match="no host keys"):
        there.host_keys("pool", sshd.address)
