"""The kinds that stand on others, on a registered host over SSH, through the engine: until nothing is left there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from blueprints.models import Blueprint, Credential
from leases.engine.core import specs
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.messaging.inline import settle
from leases.models import Lease, Resource, Share, SlotLock
from leases.operations import resources
from leases.operations.callers import caller
from leases.reasons import Reason
from tests.blueprints import host_peers as peers
from tests.blueprints.host_peers import WORKER, Server
from tests.blueprints.test_webroot import fetch
from tests.blueprints.test_working_copy import Upstream
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, soon, unhurried, until
from tests.peers import require

__all__ = ["_database", "_quick", "ask", "blueprint", "owner", "soon", "unhurried", "until"]

FIRST = 29_000 + os.getpid() % 400


# Waiting for others who use the accounts of this machine does not count.
pytestmark = [pytest.mark.timeout(400, func_only=True), pytest.mark.usefixtures("soon", "unhurried")]


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    peers.needs_root()
    with peers.unchanged_accounts():
        yield


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with peers.server(f"127.9.1.{WORKER + 76}") as running:
        yield running


@pytest.fixture
def host(server: Server, blueprint: Callable[..., Blueprint]) -> Iterator[Resource]:
    """A host, registered by an operator; handed back at the end, whatever the test made there."""
    Credential.objects.create(name="control", secrets={"private_key": server.control.private})
    blueprint("lab", kind="ssh_host", resource_type="host", config={"credential": "control", "min_free_mib": 1})
    root = User.objects.create_superuser("root")
    made = resources.register(caller(root), "lab", {**server.registration(), "disk_mib": 10_000})
    yield Resource.objects.get(pk=made.id)
    _retire_all()


def test_a_page_on_a_site_in_a_storage_on_a_host_over_ssh(
    host: Resource, blueprint: Callable[..., Any], ask: Callable[..., Lease], until: Callable[..., Any]
) -> None:
    require("nginx")
    blueprint("folders", kind="storage", config={"disk_mib": 32})
    blueprint("sites", kind="webroot", config={"first_port": FIRST, "last_port": FIRST + 20, "disk_mib": 16})
    lease = until(ask("webroot"), seconds=120, state="active")
    account = Lease.objects.get(resource_id=host.pk, state="active").facts
    httpd: Any = specs.lease_view(lease).interface("httpd")
    uri = httpd.publish("index.html", f"by {lease.pk}")
    assert fetch(uri) == (200, f"by {lease.pk}".encode())
    assert _runs(account, "nginx")
    assert Path(lease.facts["root"]).is_relative_to(account["home"])
    release.release(lease.pk, actor="ada")
    until(lease, seconds=120, state="destroyed")
    assert not _runs(account, "nginx")
    second = until(ask("webroot"), seconds=120, state="active")
    assert second.resource_id == lease.resource_id, "the warm site is used again"
    assert fetch(f"{second.facts['uri']}index.html")[0] == 404
    release.release(second.pk, actor="ada")
    until(second, seconds=120, state="destroyed")
    _retire_all()
    _nothing_is_left(account)


def test_a_working_copy_and_a_storage_on_a_host_over_ssh(
    host: Resource, blueprint: Callable[..., Any], ask: Callable[..., Lease], until: Callable[..., Any], tmp_path: Path
) -> None:
    upstream = Upstream(_open_to_all(tmp_path))
    blueprint("folders", kind="storage", config={"disk_mib": 32})
    blueprint("copies", kind="working_copy", config={"protocols": ["file"], "disk_mib": 16})
    storage, copy = ask("storage"), ask("working_copy", requirements={"repository": upstream.url, "ref": "v1"})
    for lease in (storage, copy):
        until(lease, seconds=120, state="active")
    accounts = [one.facts for one in Lease.objects.filter(resource_id=host.pk, state="active")]
    assert len({one["uid"] for one in accounts}) == 2
    assert storage.facts["limit"] == "loop", "the control account is root there"
    files: Any = specs.lease_view(copy).interface("filesystem")
    command: Any = specs.lease_view(storage).interface("command")
    assert files.read_text("readme") == "readme"
    assert command.check("echo x >file; cat file; pwd").text == f"x\n{storage.facts['folder']}\n"
    command.check(peers.daemon(clean=True))
    for lease in (storage, copy):
        release.release(lease.pk, actor="ada")
        until(lease, seconds=120, state="destroyed")
    _retire_all()
    for account in accounts:
        _nothing_is_left(account)


def _runs(account: Any, name: str) -> bool:
    return name in [process.name() for process in peers.alive(account["uid"])]


def _nothing_is_left(account: Any) -> None:
    assert not peers.accounts(account["user"])
    assert not peers.alive(account["uid"])
    assert not Path(account["home"]).exists()
    assert not peers.files_of(account["uid"])


def _open_to_all(folder: Path) -> Path:
    """Accounts of leases may pass through the folder and those above it, as far as they are the tests'."""
    for step in (folder, *folder.parents[:3]):
        if step.owner() == "root" and step != Path("/tmp"):
            step.chmod(step.stat().st_mode | 0o011)
    return folder


def _retire_all() -> None:
    def retired() -> bool:
        for resource in Resource.objects.exclude(state__in=("destroyed", "broken")):
            retirement.retire_idle(resource.pk, reason=Reason.IDLE, message="The test is over.")
        settle()
        return not Resource.objects.exclude(state__in=("destroyed", "broken")).exists()

    peers.eventually(retired, 120)
    assert not Share.objects.exists()
    assert not SlotLock.objects.exists()
