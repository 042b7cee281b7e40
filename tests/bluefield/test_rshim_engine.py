"""The life of a DPU on a card without a BMC, through the engine: its image is installed by rshim from a leased host."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from blueprints.dpu.bluefield.host import LEASE
from blueprints.dpu.bluefield.preparing import PATH
from blueprints.models import Blueprint, Credential
from drydock.core import clock
from interfaces.ssh.pool import POOL
from leases.engine.core import database, specs
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.models import Event, Lease, Resource, Run, SlotLock
from leases.operations import installation, resources
from leases.operations.callers import Caller, caller
from leases.reasons import Reason
from tests.bluefield.dpus import config, publish, web
from tests.bluefield.rshim import Rshim, rshim
from tests.bluefield.test_dpu_engine import Deaths, _turn, _until
from tests.blueprints import host_peers as peers
from tests.bmc.bluefield import SERIAL, bluefield
from tests.bmc.flashing import flashing
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, soon, unhurried, until
from tests.peers import require

__all__ = ["_database", "_quick", "ask", "blueprint", "owner", "soon", "unhurried", "until"]

pytestmark = [pytest.mark.timeout(900, func_only=True), pytest.mark.usefixtures("soon", "unhurried")]


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    peers.needs_root()
    require("sshd")
    require("sudo")
    with peers.alone():
        yield


@pytest.fixture
def server() -> Iterator[peers.Server]:
    with peers.server(f"127.9.5.{peers.WORKER + 101}") as running:
        yield running
        POOL.close_idle(0)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Rshim]:
    with bluefield() as bmc, flashing(bmc) as card, rshim(tmp_path / "rshim0", card) as found:
        yield found
        assert not found.receiving


@pytest.fixture
def root() -> Caller:
    return caller(User.objects.create_superuser("root"))


@pytest.fixture
def homes() -> Iterator[Path]:
    """A folder for the homes of leases on the host, through which their accounts may pass."""
    with tempfile.TemporaryDirectory(prefix="drydock-homes-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture
def card(
    blueprint: Callable[..., Blueprint], root: Caller, server: peers.Server, device: Rshim, homes: Path, tmp_path: Path,
    until: Callable[..., Any],
) -> Iterator[Resource]:  # fmt: skip
    """Register a host and a card without a BMC in it."""
    Credential.objects.create(name="control", secrets={"private_key": server.control.private})
    hosts = {"credential": "control", "min_free_mib": 1, "homes": str(homes)}
    blueprint("hosts", kind="ssh_host", resource_type="host", config=hosts)
    blueprint("cards", kind="bluefield_card", resource_type="dpu_card")
    with web(tmp_path / "images") as images:
        publish(images)
        of_dpus = {**config(device.card, images, rshim=str(device.folder)), "card": {"via": "rshim"}}
        blueprint("dpus", kind="bluefield", resource_type="dpu", config=of_dpus)
        made = resources.register(root, "hosts", {**server.registration(), "name": "h1", "slots": 4})
        until(Resource.objects.get(pk=made.id), state="active")
        given = {"serial": SERIAL, "host": "h1", "model": "BlueField3"}
        found = Resource.objects.get(pk=resources.register(root, "cards", given).id)
        yield until(found, state="active")
        assert not list(homes.iterdir()), "the image and its secrets are gone with the lease on the host"


def test_a_card_without_a_bmc_is_installed_used_and_stopped(card, device, ask, root):
    _live(card, device, ask, root)


@pytest.mark.slow
def test_a_worker_that_dies_after_each_call_changes_nothing_about_that(card, device, ask, root):
    deaths = Deaths()
    database.hook(deaths)
    try:
        _live(card, device, ask, root)
    finally:
        database.hook(None)
    assert deaths.count > 20


def _rebooted(root: Caller, lease: Lease) -> Lease:
    """Go on until the host must be restarted, which its kind cannot do. Say that it was done."""
    end = clock.monotonic() + 400
    while not (held := Run.objects.filter(waits_for="operator").first()):
        _turn()
        clock.sleep(0.05)
        lease.refresh_from_db()
        runs = list(Run.objects.values("resource__name", "phase", "step", "sentence", "waits_for"))
        assert clock.monotonic() < end, runs
        assert lease.state in ("pending", "acquired"), (lease.message, runs)
    assert "Power-cycle" in held.sentence
    installation.resolve(root, resource_id=held.resource_id, yes=True)
    return lease


def _live(card: Resource, device: Rshim, ask: Callable[..., Lease], root: Caller) -> None:
    lease = _until(_rebooted(root, ask("dpu", requirements={"model": "BlueField3"})), state="active")
    assert not Run.objects.filter(waits_for="operator").exists(), "the host is restarted once"
    dpu = lease.resource
    key = specs.resource_view(dpu).key
    assert (dpu.part_of_id, card.part_of.name, card.attributes["via"]) == (card.pk, "h1", "rshim")
    assert (device.card.imaged, device.streams) == ([key], 1)
    command: Any = specs.lease_view(lease).interface("command")
    assert command.check(["echo", "here"], timeout=60).text.strip() == "here"
    assert not Lease.objects.filter(for_resource=dpu.pk, need=LEASE, state="active").exists(), "only while it is built"
    said = json.dumps(
        [list(Event.objects.values()), list(Run.objects.values()), list(Resource.objects.values("facts", "message"))],
        default=str,
    )
    for secret in (dpu.secrets[PATH], dpu.secrets["host_private"].splitlines()[1], dpu.secrets["private_key"][40:80]):
        assert secret not in said
    assert SlotLock.objects.filter(key__endswith=str(device.folder)).count() == 1
    release.release(lease.pk, actor="ada")
    _until(lease, state="destroyed")
    retirement.retire_idle(dpu.pk, reason=Reason.IDLE, message="The test is over.")
    _until(dpu, state="destroyed")
    assert (device.card.running, device.settings["BOOT_MODE"], device.streams) == ([], 0, 1)
    assert not SlotLock.objects.filter(key__endswith=str(device.folder)).exists()
    _until(card, state="active")
