"""The life of a DPU through the engine: a card with its BMC, a web root on this machine, and a host that restarts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from blueprints.dpu.bluefield.preparing import PATH
from blueprints.fake.cloud import Cloud
from blueprints.models import Blueprint
from drydock.core import clock
from leases.engine.core import database, specs
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource, Run, SlotLock
from leases.operations import resources
from leases.operations.callers import Caller, caller
from leases.reasons import Reason
from tests.bluefield.dpus import Web, config, publish, web
from tests.bluefield.dpus import resources as tree
from tests.blueprints import host_peers as peers
from tests.bmc.bluefield import SERIAL, Bluefield, bluefield
from tests.bmc.flashing import Card, flashing
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, soon, unhurried, until
from tests.peers import require

__all__ = ["_database", "_quick", "ask", "blueprint", "owner", "soon", "unhurried", "until"]

FIRST = 29_900 + os.getpid() % 400
PAST = "2020-01-01T00:00Z"
pytestmark = [pytest.mark.timeout(900, func_only=True), pytest.mark.usefixtures("soon", "unhurried")]


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    peers.needs_root()
    require("sshd")
    require("sudo")
    with peers.alone():
        yield


@pytest.fixture
def bmc() -> Iterator[Bluefield]:
    with bluefield(tree()) as running:
        yield running
        assert not running.locked
        assert not running.sessions


@pytest.fixture
def card(bmc: Bluefield) -> Iterator[Card]:
    with flashing(bmc) as found:
        yield found
        assert not found.interrupted


@pytest.fixture
def images(tmp_path: Path) -> Iterator[Web]:
    with web(tmp_path / "images") as running:
        publish(running)
        yield running


@pytest.fixture
def root() -> Caller:
    return caller(User.objects.create_superuser("root"))


class Site:
    """The blueprints that a DPU takes."""

    def __init__(self, make: Callable[..., Blueprint], root: Caller, card: Card, images: Web, tls: bool) -> None:
        self.root, self.card, self.protocol = root, card, "HTTPS" if tls else "HTTP"
        self.folder = Path(os.environ["DRYDOCK_STATE"]) / "dpu-hosts"
        here = {"folder": str(self.folder), "first_uid": 825_000, "uids": 50, "cpu_millicores": 4000}
        make("here", kind="local_host", resource_type="host", config={**here, "disk_mib": 100_000}, order=1)
        make("folders", kind="storage", resource_type="storage", config={"disk_mib": 32})
        make("sites", kind="webroot", config={"first_port": FIRST, "last_port": FIRST + 20, "tls": tls})
        make("hosts", kind="fake", resource_type="host", config={"provider": "hosts"}, max_resources=0, order=2)
        make("cards", kind="bluefield_card", resource_type="dpu_card")
        make("dpus", kind="bluefield", resource_type="dpu", config=config(card, images, webroot={"tls": tls}))
        resources.register(root, "hosts", {"name": "h1", "identity": "h1"})
        self.host = Resource.objects.get(blueprint__name="hosts")

    def enrol(self, until: Callable[..., Any], bmc: Bluefield) -> Resource:
        until(self.host, state="active")
        bmc.set("A-right.Password7")
        given = {"serial": SERIAL, "bmc": bmc.access(), "host": "h1", "credential": {"password": "A-right.Password7"}}
        found = Resource.objects.get(pk=resources.register(self.root, "cards", given).id)
        until(found, state="active")
        return found

    @property
    def restarts(self) -> int:
        return sum(one.cycles for one in Cloud("hosts").instances())

    def remove(self) -> None:
        """Destroy everything but the registered host and card."""
        end = clock.monotonic() + 300
        gone = ("destroyed", "broken")
        there = Resource.objects.exclude(state__in=gone).exclude(origin="registered")
        while (left := list(there.all())) and clock.monotonic() < end:
            for one in left:
                retirement.retire_idle(one.pk, reason=Reason.IDLE, message="The test is over.")
            _turn()
            clock.sleep(0.05)
        assert not there.all().exists(), list(there.values("name", "type", "state", "message"))


@pytest.fixture
def site(
    request: pytest.FixtureRequest, blueprint: Callable[..., Blueprint], root: Caller, card: Card, images: Web
) -> Site:
    return Site(blueprint, root, card, images, tls=request.param)


class Died(BaseException):
    """The worker has died."""


class Deaths:
    """A failpoint at which the worker dies after every call of a step of a DPU, before the answer is stored, once.

    A step with `find` is called twice by the next worker, which stores both answers.
    """

    def __init__(self) -> None:
        self._died = set[tuple[int, int, str]]()

    @property
    def count(self) -> int:
        return len(self._died)

    def __call__(self, name: str) -> None:
        if name != "run.called":
            return
        current = Run.objects.filter(resource__type="dpu").exclude(token=None).first()
        if current is not None:
            call = (current.pk, current.position, json.dumps(current.memo, sort_keys=True))
            if call not in self._died:
                self._died.add(call)
                raise Died


def _turn() -> None:
    try:
        settle()
    except Died:
        Run.objects.exclude(token=None).update(token_until=PAST)


def _until(row: Any, seconds: float = 400, **columns: Any) -> Any:
    """Go on until a row has these columns, whatever dies on the way."""
    end = clock.monotonic() + seconds
    while clock.monotonic() < end:
        _turn()
        row.refresh_from_db()
        if all(getattr(row, name) == value for name, value in columns.items()):
            return row
        clock.sleep(0.05)
    runs = list(Run.objects.values("resource__name", "phase", "step", "sentence", "waits_for"))
    return pytest.fail(f"{row} says {row.message}; wanted {columns}; runs: {runs}")


@pytest.mark.parametrize("site", [False, True], ids=["http", "https"], indirect=True)
def test_a_dpu_is_installed_used_released_and_destroyed_and_leaves_nothing(site, bmc, card, ask, until):
    _live(site, bmc, card, ask, until)


@pytest.mark.slow
@pytest.mark.parametrize("site", [True], ids=["https"], indirect=True)
def test_a_worker_that_dies_after_each_call_changes_nothing_about_that(site, bmc, card, ask, until):
    deaths = Deaths()
    row = site.enrol(until, bmc)
    database.hook(deaths)
    try:
        _live(site, bmc, card, ask, until, row)
    finally:
        database.hook(None)
    assert deaths.count > 20


def _live(site, bmc, card, ask, until, row=None) -> None:
    row = row or site.enrol(until, bmc)
    lease = _until(ask("dpu", requirements={"model": "BlueField3"}), state="active")
    dpu = lease.resource
    assert (dpu.part_of_id, row.part_of_id) == (row.pk, site.host.pk)
    key = specs.resource_view(dpu).key
    assert card.imaged == [key]
    assert [one.body["TransferProtocol"] for one in card.tasks.values()] == [site.protocol]
    assert (card.trust.kept, card.trust.changes) == ({}, 2 if site.protocol == "HTTPS" else 0)
    assert site.restarts == 1
    command: Any = specs.lease_view(lease).interface("command")
    files: Any = specs.lease_view(lease).interface("filesystem")
    assert command.check(["echo", "here"], timeout=60).text.strip() == "here"
    files.write_text("note", "kept", timeout=60)
    assert files.read_text("note", timeout=60) == "kept"
    assert not Lease.objects.filter(for_resource=dpu.pk, need="image", state="active").exists(), "the web root"
    said = json.dumps(
        [list(Event.objects.values()), list(Run.objects.values()), list(Resource.objects.values("facts", "message"))],
        default=str,
    )
    for secret in (dpu.secrets[PATH], dpu.secrets["host_private"].splitlines()[1], dpu.secrets["private_key"][40:80]):
        assert secret not in said
    assert SlotLock.objects.filter(key__endswith=SERIAL).count() == 1
    release.release(lease.pk, actor="ada")
    _until(lease, state="destroyed")
    site.remove()
    assert card.imaged == [key]
    assert (site.restarts, card.power, card.rshim, card.running) == (1, "Off", False, [])
    assert not list(site.folder.glob("*/*"))
    _until(row, state="active")
