"""The client package against a real web process: the same protocol, the same values, the same errors."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from django.db import connection

from drydock.core.errors import Conflict, InvalidRequest, NotAllowed, NotFound
from drydock_client.http import HttpClient
from drydock_client.values import DpuChart, DpuPort
from leases.local import LocalClient
from leases.messaging.inline import settle
from leases.models import Lease, Resource
from leases.operations.callers import caller
from leases.rest import tokens
from tests.servers import Server


@pytest.fixture
def server(tmp_path, transactional_db):
    with Server.on(str(connection.settings_dict["NAME"]), tmp_path / "web.log") as running:
        yield running


@pytest.fixture
def client(server):
    """`client(user, scope)`: an HttpClient with a new token of the user."""
    made = []

    def make(user, scope="lease", **given):
        _, secret = tokens.create(caller(user), name="test", scope=scope)
        made.append(HttpClient(server.url, secret, **given))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_devices_near_one_another_are_requested_and_shown_over_http(client, owner, blueprint):
    wholes = blueprint("hosts", kind="fake", max_builds=0)
    parts = blueprint("parts", kind="fake_activated", max_builds=0)
    known = {"state": "active", "origin": "discovered"}
    host = Resource.objects.create(blueprint=wholes, type="fake", name="lab", total_slots=4, **known)
    for n, place in enumerate((["node 0", "switch 1"], ["node 1", "switch 2"], ["node 1", "switch 2"])):
        Resource.objects.create(
            blueprint=parts, type="fake_activated", name=f"gpu-{n}", part_of=host, locality=place, **known
        )  # fmt: skip
    ada = client(owner)
    made = ada.request_group([{"type": "fake"}, {"type": "fake_activated", "count": 2}], near="require")
    settle()
    found = ada.group(made[0].group)
    assert [one.resource_name for one in found] == ["lab", "gpu-1", "gpu-2"]
    assert {one.distance for one in found} == {"all at switch 2"}
    assert found == LocalClient(caller(owner)).group(made[0].group)
    with pytest.raises(InvalidRequest, match="near"):
        ada.request_group([{"type": "fake"}] * 2, same="parent", near="require")


def test_services_on_a_dpu_are_applied_over_http(client, owner, blueprint):
    chart = DpuChart(repository="oci://charts.example.org", name="firewall", version="1.2.0")
    allowed = {"repository": chart.repository, "name": chart.name, "versions": [chart.version]}
    blueprint("dpus", kind="fake_activated", config={"charts": [allowed]})
    ada, here = client(owner), LocalClient(caller(owner))
    made = ada.request({"type": "fake_activated"}).id
    settle()
    ports = [DpuPort(name="metrics", port=9100), DpuPort(name="dns", port=53, protocol="UDP")]
    found = ada.apply_dpu_service(made, "edge", chart=chart, values={"rules": ["a"]}, ports=ports)
    assert found == ada.dpu_service(made, "edge") == here.dpu_service(made, "edge")
    assert (found.state, found.chart, list(found.ports)) == ("ready", chart, ports)
    assert ada.dpu_services(made) == here.dpu_services(made)
    for wrong in ({"values": {"a": None}}, {"labels": {"dpu.nvidia.com/a": "b"}}):
        with pytest.raises(InvalidRequest) as refused:
            ada.apply_dpu_service(made, "edge", chart=chart, **wrong)
        assert refused.value.field in ("values.a", "labels.dpu.nvidia.com/a")
    ada.remove_dpu_service(made, "edge")
    with pytest.raises(NotFound):
        ada.dpu_service(made, "edge")


def test_here_and_over_http_are_the_same(client, owner, chief, blueprint):
    blueprint("pool", config={"boot_polls": 0})
    ada, here = client(owner), LocalClient(caller(owner))
    assert (ada.name, ada.operator) == ("ada", False)

    made = ada.request({"type": "fake", "ttl": "2h", "labels": {"team": "a"}})
    assert made == here.lease(made.id)
    settle()
    assert ada.lease(made.id) == here.lease(made.id)
    assert ada.lease(made.id).state == "active"
    resource = ada.lease(made.id).resource
    assert ada.leases() == here.leases()
    assert ada.leases(states=["destroyed"]) == []
    assert ada.explain({"type": "fake"}) == here.explain({"type": "fake"})
    assert ada.resources() == here.resources()
    assert ada.blueprints() == here.blueprints()
    assert ada.kinds() == here.kinds()
    assert ada.events(lease=made.id) == here.events(lease=made.id)
    assert ada.extend(made.id, ttl="5h") == here.lease(made.id)
    with pytest.raises(Conflict, match="already lasts"):
        ada.extend(made.id, ttl="1m")

    with pytest.raises(NotAllowed, match="scope"):
        ada.change_resource(resource, "drain")
    boss, boss_here = client(chief, "operate"), LocalClient(caller(chief))
    assert boss.operator
    assert boss.change_resource(resource, "drain", reason="why not") == boss_here.resource(resource)
    assert boss.attention() == boss_here.attention()
    assert ada.release(made.id) == here.lease(made.id)
    settle()
    assert ada.leases(states=["destroyed", "broken"]) == here.leases(states=["destroyed", "broken"])


def test_errors_are_the_engines_own(client, owner, blueprint):
    blueprint()
    ada = client(owner)
    with pytest.raises(NotFound):
        ada.lease(123)
    with pytest.raises(InvalidRequest) as raised:
        ada.request({"type": "fake", "slots": 0, "nonsense": 1})
    assert {problem.field for problem in raised.value.problems} == {"slots", "nonsense"}
    with pytest.raises(NotAllowed, match="token is not valid"):
        HttpClient(ada.http.url, "ddk_nonsense")
    with pytest.raises(NotAllowed, match="plain HTTP"):
        HttpClient("http://drydock.example.org", "ddk_x")


def test_a_wait_ends_with_the_change_it_waits_for(client, owner, blueprint):
    blueprint()
    ada = client(owner)
    made = ada.request({"type": "fake"})
    assert ada.http.get(f"leases/{made.id}", {"wait": 0.2}, wait=1)["state"] == "pending"
    answers = []
    asking = threading.Thread(target=lambda: answers.append(ada.http.get(f"leases/{made.id}", {"wait": 20}, wait=20)))
    asking.start()
    settle()
    asking.join(30)
    assert answers[0]["state"] == "active"


def test_files_trees_and_commands(client, owner, blueprint, until, tmp_path, settings):
    # What is swept on this machine before a uid is used takes its time where many tests run.
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_token_seconds": 60.0})
    folder = Path(os.environ["DRYDOCK_STATE"]) / "rest-hosts"
    config = {"folder": str(folder), "first_uid": 860_000 + os.getpid() % 1000 * 50, "uids": 50, "cpu_millicores": 4000}
    blueprint("here", kind="local_host", resource_type="host", config=config)
    ada = client(owner)
    made = ada.request({"type": "host"})
    lease = until(Lease.objects.get(pk=made.id), seconds=60, state="active")

    ada.write_file(lease.id, "a b ü.txt", b"x" * 3_000_000)
    assert ada.read_file(lease.id, "a b ü.txt") == b"x" * 3_000_000
    assert "a b ü.txt" in [f.name for f in ada.list_files(lease.id)]
    with pytest.raises(NotFound):
        ada.read_file(lease.id, "none")

    site = tmp_path / "site"
    (site / "deep").mkdir(parents=True)
    (site / "deep" / "page").write_bytes(os.urandom(1_000_000))
    (site / "deep" / "page").chmod(0o755)
    (site / "inside").symlink_to("deep/page")
    (site / "outside").symlink_to("/etc/passwd")
    told: list[str] = []
    files, size = ada.upload(lease.id, site, "up", told.append)
    assert (files, size) == (1, 1_000_000)
    assert ada.download(lease.id, "up", tmp_path / "back")[1] == 1_000_000
    assert (tmp_path / "back" / "deep" / "page").read_bytes() == (site / "deep" / "page").read_bytes()
    assert (tmp_path / "back" / "deep" / "page").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "back" / "inside").readlink().as_posix() == "deep/page"
    assert not (tmp_path / "back" / "outside").is_symlink()
    assert told

    ended = ada.run(lease.id, ["sh", "-c", "echo out; exit 7"])
    assert (ended.exit_code, ended.stdout) == (7, "out\n")
    ada.remove_path(lease.id, "up", recursive=True)
    assert "up" not in [f.name for f in ada.list_files(lease.id)]
    ada.release(lease.id)
    until(lease, state="destroyed")
