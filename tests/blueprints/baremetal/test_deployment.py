"""A machine from nothing to a lease and back: enrolled in the ramdisk, deployed, used, and erased with proof."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from blueprints.models import Blueprint, Credential
from interfaces.ssh.pool import POOL
from leases.engine.lifecycle import release
from leases.models import Debt, Event, Resource
from leases.operations import interfaces, resources
from leases.operations.callers import Caller, caller
from tests.agent import disk_images
from tests.blueprints.host_peers import WORKER
from tests.bmc.double import RedfishDouble, redfish_double
from tests.bmc.guests import RAMDISK, Guests, guests
from tests.bmc.machine import Machine
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, soon, until

__all__ = ["_database", "_quick", "ask", "blueprint", "owner", "soon", "until"]

pytestmark = [pytest.mark.timeout(240, func_only=True), pytest.mark.usefixtures("soon")]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A raw image that a web server offers."""
    folder = tmp_path_factory.mktemp("images")
    content = disk_images.raw(folder, mib=4)
    (folder / "small.raw").write_bytes(content)
    handler = partial(_Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/small.raw"
    digest = hashlib.sha256(content).hexdigest()
    yield {
        "url": url, "sha256": digest, "format": "raw", "ready_by": "ssh", "root_device": {"min_size_bytes": 1 << 20},
    }  # fmt: skip
    server.shutdown()
    server.server_close()
    thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guests]:
    tmp_path.chmod(0o755)
    with guests(tmp_path / "guest", f"127.9.8.{WORKER + 1}") as made:
        yield made
        POOL.close_idle(0)
    assert not made.problems


@pytest.fixture
def double(guest: Guests) -> Iterator[RedfishDouble]:
    with redfish_double(Machine(on_power=guest.switched, power_delay=0.05)) as running:
        guest.machine = running.machine
        yield running
        inserted = [slot for slot, it in running.machine.media.items() if it.get("Inserted")]
    assert not inserted, "a medium was left inserted"


@pytest.fixture
def operator() -> Caller:
    return caller(User.objects.create_superuser("root"))


@pytest.fixture
def rack(
    guest: Guests, double: RedfishDouble, image: dict[str, Any], blueprint: Callable[..., Blueprint],
    operator: Caller, live_server: Any, settings: Any,
) -> Callable[..., Resource]:  # fmt: skip
    """Register the machine, with `more`, in a blueprint whose ramdisk gets some other fields."""
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"boot_url": live_server.url, "step_token_seconds": 60.0})
    Credential.objects.create(name="control", secrets={"private_key": guest.control.private})
    Credential.objects.create(name="bmc", secrets=double.credential())

    def register(
        config: dict[str, Any] | None = None, *, more: dict[str, Any] | None = None, **ramdisk: Any
    ) -> Resource:
        given = {
            "credential": "control", "bmc_credential": "bmc", "min_free_mib": 1, "compare": "report",
            "accounts": "shared", "ramdisk": {"url": RAMDISK, "port": guest.port, "samples": 4, **ramdisk},
            "images": {"small": image}, **(config or {}),
        }  # fmt: skip
        blueprint("rack", kind="bare_metal", resource_type="host", config=given)
        bmc = {"driver": "redfish", **double.access()}
        said = {**guest.registration(), "name": "alpha", "bmc": bmc, **(more or {})}
        made = resources.register(operator, "rack", said)
        return Resource.objects.get(pk=made.id)

    return register


def test_a_machine_is_erased_deployed_used_and_erased_again(rack, guest, double, ask, owner, until, operator):
    alpha = until(rack(), state="active")
    assert (alpha.power, double.machine.power_state, guest.boots) == ("off", "Off", ["ramdisk"])
    assert alpha.attributes["images"] == ["small"]
    lease = until(ask("host", requirements={"image": "small"}, exclusive=True), state="active")
    assert (guest.runs, guest.boots) == ("disk", ["ramdisk", "ramdisk", "disk"])
    assert interfaces.run_command(caller(owner), lease.pk, ["echo", "hello"]).stdout == "hello\n"
    assert lease.facts["image"] == "small"
    disk = guest.disks.root / "dev/vda"
    with disk.open("r+b") as opened:
        opened.seek(9 << 20)
        opened.write(b"a secret of the tenant")
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    until(alpha, in_maintenance=False)
    assert not Debt.objects.exists()
    assert not guest.holds(b"a secret of the tenant")
    assert (alpha.power, double.machine.power_state, guest.runs) == ("off", "Off", "")
    assert guest.boots == ["ramdisk", "ramdisk", "disk", "ramdisk"]
    resources.retire(operator, alpha.pk)
    until(alpha, state="destroyed")
    texts = str(list(Event.objects.values_list("message", "details")))
    assert "PRIVATE KEY" not in texts + str(alpha.facts)
