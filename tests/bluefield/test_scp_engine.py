"""The life of a DPU through the engine whose BMC fetches images by SCP only, from an account of a lease on a host."""

from __future__ import annotations

import json
import pwd
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from blueprints.dpu.bluefield import scp
from blueprints.dpu.bluefield.host import SERVER
from blueprints.dpu.bluefield.preparing import PATH
from blueprints.fake.cloud import Cloud
from blueprints.models import Blueprint, Credential
from interfaces.ssh.pool import POOL
from leases.engine.core import database, specs
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.models import Event, Lease, Resource, Run
from leases.operations import resources
from leases.operations.callers import caller
from leases.reasons import Reason
from tests.bluefield.dpus import config, publish, web
from tests.bluefield.test_dpu_engine import Deaths, _until
from tests.blueprints import host_peers as peers
from tests.bmc.bluefield import SERIAL, Bluefield, bluefield, small
from tests.bmc.flashing import UPDATE, Card, flashing
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, soon, unhurried, until
from tests.peers import require

__all__ = ["_database", "_quick", "ask", "blueprint", "owner", "soon", "unhurried", "until"]

PASSWORD = "A-right.Password7"
pytestmark = [pytest.mark.timeout(900, func_only=True), pytest.mark.usefixtures("soon", "unhurried")]


@pytest.fixture(autouse=True)
def _able() -> None:
    peers.needs_root()
    require("sshd")
    require("sudo")
    peers.require("scp")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[peers.Server]:
    with peers.server(f"127.9.5.{peers.WORKER + 221}") as running:
        monkeypatch.setattr(scp, "PORT", running.port)
        yield running
        POOL.close_idle(0)


@pytest.fixture
def bmc() -> Iterator[Bluefield]:
    with bluefield(small()) as running:
        running.set(PASSWORD)
        yield running
        assert not running.locked
        assert not running.sessions


@pytest.fixture
def card(bmc: Bluefield, server: peers.Server) -> Iterator[Card]:
    with flashing(bmc) as found:
        found.scp.ports[server.address] = server.port
        yield found
        assert not found.interrupted


@pytest.fixture
def homes() -> Iterator[Path]:
    """A folder for the homes of leases on the host, through which their accounts may pass."""
    with tempfile.TemporaryDirectory(prefix="drydock-homes-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture
def row(
    blueprint: Callable[..., Blueprint], server: peers.Server, bmc: Bluefield, card: Card, homes: Path, tmp_path: Path,
    until: Callable[..., Any],
) -> Iterator[Resource]:  # fmt: skip
    """Register a host with images, and a card with its BMC in another host."""
    root = caller(User.objects.create_superuser("root"))
    Credential.objects.create(name="control", secrets={"private_key": server.control.private})
    hosts = {"credential": "control", "min_free_mib": 1, "homes": str(homes)}
    blueprint("servers", kind="ssh_host", resource_type="host", config=hosts)
    blueprint("hosts", kind="fake", resource_type="host", config={"provider": "hosts"}, max_resources=0, order=2)
    blueprint("cards", kind="bluefield_card", resource_type="dpu_card")
    with web(tmp_path / "images") as images:
        publish(images)
        wanted = {"scp": {"hostname": socket.gethostname()}, "rshim": ""}
        blueprint("dpus", kind="bluefield", resource_type="dpu", config=config(card, images, **wanted))
        resources.register(root, "servers", {**server.registration(), "name": "images", "slots": 4})
        resources.register(root, "hosts", {"name": "h1", "identity": "h1"})
        given = {"serial": SERIAL, "bmc": bmc.access(), "host": "h1", "credential": {"password": PASSWORD}}
        made = resources.register(root, "cards", given)
        for one in Resource.objects.all():
            until(one, state="active")
        yield Resource.objects.get(pk=made.id)
        assert not list(homes.iterdir()), "the image and its secrets are gone with the lease on the host"
        assert not [one.pw_name for one in pwd.getpwall() if Path(one.pw_dir).parent == homes]


def test_a_dpu_whose_bmc_fetches_by_scp_only_is_installed_used_and_destroyed(row, bmc, card, ask):
    _live(row, bmc, card, ask)


@pytest.mark.slow
def test_a_worker_that_dies_after_each_call_changes_nothing_about_that(row, bmc, card, ask):
    deaths = Deaths()
    database.hook(deaths)
    try:
        _live(row, bmc, card, ask)
    finally:
        database.hook(None)
    assert deaths.count > 20


def _live(row: Resource, bmc: Bluefield, card: Card, ask: Callable[..., Lease]) -> None:
    lease = _until(ask("dpu", requirements={"model": "BlueField3"}), state="active")
    dpu = lease.resource
    assert dpu.facts["route"] == "scp"
    assert (card.imaged, bmc.calls.count(f"POST {UPDATE}")) == ([specs.resource_view(dpu).key], 1)
    assert sum(one.cycles for one in Cloud("hosts").instances()) == 1
    (task,) = card.tasks.values()
    assert task.body["TransferProtocol"] == "SCP"
    assert len(card.scp.known) == 1
    served = Lease.objects.get(for_resource=dpu.pk, need=SERVER)
    assert (served.resource.name, served.state) == ("images", "destroyed"), "only while it is built"
    command: Any = specs.lease_view(lease).interface("command")
    assert command.check(["echo", "here"], timeout=60).text.strip() == "here"
    said = json.dumps(
        [list(Event.objects.values()), list(Run.objects.values()), list(Resource.objects.values("facts", "message"))],
        default=str,
    )
    for secret in (dpu.secrets[PATH], dpu.secrets["host_private"].splitlines()[1], dpu.secrets["private_key"][40:80]):
        assert secret not in said
    release.release(lease.pk, actor="ada")
    _until(lease, state="destroyed")
    retirement.retire_idle(dpu.pk, reason=Reason.IDLE, message="The test is over.")
    _until(dpu, state="destroyed")
    assert (card.power, card.rshim, card.running) == ("Off", False, [])
    _until(row, state="active")
