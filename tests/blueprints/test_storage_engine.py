"""The kinds that stand on others, through the engine: from an empty installation to pages, and back to nothing."""

from __future__ import annotations

import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drydock.core import clock
from leases.engine.core import specs
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.messaging.inline import settle
from leases.models import Lease, Resource, Share, SlotLock
from leases.reasons import Reason
from tests.blueprints import host_peers as peers
from tests.blueprints.test_working_copy import Upstream
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, soon, unhurried, until

__all__ = ["_database", "_quick", "ask", "blueprint", "owner", "soon", "unhurried", "until"]

FIRST = 29_500 + os.getpid() % 400


# Waiting for others who use the accounts of this machine does not count.
pytestmark = [pytest.mark.timeout(400, func_only=True), pytest.mark.usefixtures("soon", "unhurried")]


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with peers.alone():
        yield


@pytest.fixture
def hosts(blueprint: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This machine as hosts."""
    folder = Path(os.environ["DRYDOCK_STATE"]) / "layered-hosts"
    config = {"folder": str(folder), "first_uid": 820_000, "uids": 50, "cpu_millicores": 4000, "disk_mib": 100_000}
    blueprint("here", kind="local_host", resource_type="host", config=config)
    return folder


def test_a_page_on_a_site_in_a_storage_on_this_machine(
    hosts: Path, blueprint: Callable[..., Any], ask: Callable[..., Lease], until: Callable[..., Any]
) -> None:
    blueprint("folders", kind="storage", resource_type="storage", config={"disk_mib": 32})
    blueprint("sites", kind="webroot", config={"first_port": FIRST, "last_port": FIRST + 20, "disk_mib": 16})
    lease = until(ask("webroot"), seconds=120, state="active")
    httpd: Any = specs.lease_view(lease).interface("httpd")
    uri = httpd.publish("index.html", f"by {lease.pk}")
    assert _fetch(uri) == f"by {lease.pk}".encode()
    assert SlotLock.objects.filter(lease_id=lease.pk, name="port", value=str(lease.facts["port"])).exists()
    release.release(lease.pk, actor="ada")
    until(lease, seconds=120, state="destroyed")
    second = until(ask("webroot"), seconds=120, state="active")
    # Only where it can be cleaned from outside is the warm site used again.
    assert (second.resource_id == lease.resource_id) is (os.geteuid() == 0)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        _fetch(f"{second.facts['uri']}index.html")
    release.release(second.pk, actor="ada")
    until(second, seconds=120, state="destroyed")
    _nothing_is_left(hosts)


def test_a_site_with_tls_is_found_by_its_requirement_and_each_lease_has_a_certificate(
    hosts: Path, blueprint: Callable[..., Any], ask: Callable[..., Lease], until: Callable[..., Any]
) -> None:
    config = {"first_port": FIRST, "last_port": FIRST + 20, "disk_mib": 16}
    blueprint("folders", kind="storage", resource_type="storage", config={"disk_mib": 32})
    blueprint("plain", kind="webroot", config=config)
    blueprint("secured", kind="webroot", config={**config, "tls": True})
    certificates: list[str] = []
    for _ in range(2):
        lease = until(ask("webroot", requirements={"tls": True}), seconds=120, state="active")
        assert lease.resource.blueprint.name == "secured"
        httpd: Any = specs.lease_view(lease).interface("httpd")
        uri = httpd.publish("index.html", f"by {lease.pk}")
        assert uri.startswith("https://")
        assert _fetch(uri, lease.facts["certificate"]) == f"by {lease.pk}".encode()
        for former in certificates:
            with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
                _fetch(uri, former)
        certificates.append(lease.facts["certificate"])
        release.release(lease.pk, actor="ada")
        until(lease, seconds=120, state="destroyed")
    assert len(set(certificates)) == 2
    _nothing_is_left(hosts)


def test_a_storage_and_a_working_copy(
    hosts: Path, blueprint: Callable[..., Any], ask: Callable[..., Lease], until: Callable[..., Any]
) -> None:
    home = hosts.parent / "upstream"
    home.mkdir(mode=0o755)
    upstream = Upstream(home)
    blueprint("folders", kind="storage", config={"disk_mib": 32})
    blueprint("copies", kind="working_copy", config={"protocols": ["file"], "disk_mib": 16})
    storage, copy = ask("storage", disk_mib=8), ask("working_copy", requirements={"repository": upstream.url})
    until(storage, seconds=120, state="active")
    until(copy, seconds=120, state="active")
    assert storage.facts["limit"] == ("loop" if os.geteuid() == 0 else "checked")
    files: Any = specs.lease_view(copy).interface("filesystem")
    assert files.read_text("readme") == "second"
    for lease in (storage, copy):
        release.release(lease.pk, actor="ada")
        until(lease, seconds=120, state="destroyed")
    again = until(ask("working_copy", requirements={"repository": upstream.url, "ref": "v1"}), 120, state="active")
    assert (again.resource_id == copy.resource_id) is (os.geteuid() == 0)
    assert again.facts["commit"] == upstream.first
    release.release(again.pk, actor="ada")
    until(again, seconds=120, state="destroyed")
    _nothing_is_left(hosts)


def _nothing_is_left(hosts: Path) -> None:
    end = clock.monotonic() + 120
    while (there := Resource.objects.exclude(state__in=("destroyed", "broken"))) and clock.monotonic() < end:
        for resource in there:
            retirement.retire_idle(resource.pk, reason=Reason.IDLE, message="The test is over.")
        settle()
        clock.sleep(0.05)
    assert not Resource.objects.exclude(state__in=("destroyed", "broken")).exists()
    assert not Share.objects.exists()
    assert not SlotLock.objects.exists()
    assert not list(hosts.glob("*/*"))
    assert str(hosts) not in Path("/proc/self/mountinfo").read_text()


def _fetch(uri: str, trusted: str = "") -> bytes:
    context = ssl.create_default_context(cadata=trusted) if trusted else None
    with urllib.request.urlopen(uri, timeout=10, context=context) as answer:
        body: bytes = answer.read()
        return body
