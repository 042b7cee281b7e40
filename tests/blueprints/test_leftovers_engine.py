"""Nothing that a lease plants outlives it, through the engine: on hosts, and on what stands on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from blueprints.leftovers import Verdict
from blueprints.models import Blueprint, Credential
from blueprints.testing.leftovers import described
from drydock.core import clock
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.messaging.inline import settle
from leases.models import Lease, Resource, Share, SlotLock
from leases.operations import resources, validation
from leases.operations.callers import caller
from leases.reasons import Reason
from tests.blueprints import host_peers as peers
from tests.blueprints.host_peers import AS_ROOT, WORKER, Server
from tests.blueprints.layered_peers import new_folder
from tests.blueprints.leftover_peers import ALWAYS, OF_PAGES, OF_REPOSITORIES, PER_ACCOUNT
from tests.blueprints.test_working_copy import Upstream
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, soon, unhurried, until
from tests.peers import require

__all__ = ["_database", "_quick", "ask", "blueprint", "owner", "soon", "unhurried", "until"]

FIRST = 28_500 + os.getpid() % 400
PLANTED = {
    "storage": ALWAYS, "working_copy": ALWAYS | OF_REPOSITORIES, "webroot": OF_PAGES,
}  # fmt: skip
"""Rows that can be planted wherever the tests run as root."""

# Waiting for others who use the accounts of this machine does not count.
pytestmark = [pytest.mark.timeout(1000, func_only=True), pytest.mark.usefixtures("soon", "unhurried")]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with peers.server(f"127.9.1.{WORKER + 126}") as running:
        yield running


@pytest.fixture
def this_machine(blueprint: Callable[..., Blueprint]) -> Iterator[None]:
    """This machine as a host."""
    folder = Path(os.environ["DRYDOCK_STATE"]) / "leftover-hosts"
    config = {"folder": str(folder), "first_uid": peers.FIRST_UID + 40_000, "uids": 50, "disk_mib": 100_000}
    blueprint("here", kind="local_host", resource_type="host", config=config)
    yield
    _retire_all()
    assert not list(folder.glob("*/*"))


@pytest.fixture
def over_ssh(server: Server, blueprint: Callable[..., Blueprint]) -> Iterator[None]:
    """A registered host over SSH."""
    peers.needs_root()
    with peers.alone():
        _register(server, blueprint)
        yield
        _retire_all()


def _register(server: Server, blueprint: Callable[..., Blueprint]) -> None:
    Credential.objects.create(name="control", secrets={"private_key": server.control.private})
    blueprint("lab", kind="ssh_host", resource_type="host", config={"credential": "control", "min_free_mib": 1})
    operator = User.objects.create_superuser("root")
    resources.register(caller(operator), "lab", {**server.registration(), "disk_mib": 10_000})


@pytest.fixture
def request_of(blueprint: Callable[..., Blueprint]) -> Iterator[Callable[[str], dict[str, Any]]]:
    """What to ask for to get a lease of a type, with the blueprints that it needs."""
    open_to_all = new_folder()

    def make(type: str) -> dict[str, Any]:
        if type in ("storage", "webroot"):
            blueprint("folders", kind="storage", config={"disk_mib": 32})
        if type == "webroot":
            require("nginx")
            blueprint("sites", kind="webroot", config={"first_port": FIRST, "last_port": FIRST + 20, "disk_mib": 16})
        if type == "working_copy":
            blueprint("copies", kind="working_copy", config={"protocols": ["file"], "disk_mib": 16})
            return {"type": type, "requirements": {"repository": Upstream(open_to_all).url}}
        return {"type": type}

    with peers.removed(open_to_all):
        yield make


class Tenants:
    """Leases of one owner (`leases.operations.validation.Tenants`)."""

    def __init__(self, ask: Callable[..., Lease], until: Callable[..., Any], given: dict[str, Any]) -> None:
        self._ask, self._until, self._given = ask, until, given

    def take(self) -> int:
        lease: Lease = self._until(self._ask(**self._given), seconds=300, state="active")
        return lease.pk

    def take_beside(self) -> int | None:
        return self.take()

    def end(self, lease: int) -> None:
        if (row := Lease.objects.get(pk=lease)).state == "destroyed":
            return
        release.release(lease, actor="ada")
        self._until(row, seconds=300, state="destroyed")


@pytest.mark.parametrize("type", PLANTED)
@pytest.mark.parametrize("place", ["this_machine", "over_ssh"])
def test_nothing_that_a_lease_plants_outlives_it(
    request: pytest.FixtureRequest, ask: Callable[..., Lease], until: Callable[..., Any],
    request_of: Callable[[str], dict[str, Any]], place: str, type: str,
) -> None:  # fmt: skip
    request.getfixturevalue(place)
    report = validation.validate_leftovers(Tenants(ask, until, request_of(type)))
    assert report.ok, described(report)
    if AS_ROOT:
        assert not report.names(Verdict.SHARED)
    missing = PLANTED[type] - (PER_ACCOUNT if not AS_ROOT else set()) - {*report.names(Verdict.OK)}
    assert not missing, described(report)


def _retire_all() -> None:
    end = clock.monotonic() + 300
    while there := Resource.objects.exclude(state__in=("destroyed", "broken")):
        assert clock.monotonic() < end
        for resource in there:
            retirement.retire_idle(resource.pk, reason=Reason.IDLE, message="The test is over.")
        settle()
        clock.sleep(0.05)
    assert not Share.objects.exists()
    assert not SlotLock.objects.exists()
