"""A scene of `make demo-metal`: a server without an operating system is deployed for a lease, and erased after it.

Its disk is a regular file; the ramdisk and the deployed system are SSH servers of this machine (`tests.bmc.guests`), so
the scene needs root.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

CANARY = b"a file that the first tenant has left"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words: Any) -> None:
        pass


@contextlib.contextmanager
def web(port: int) -> Iterator[None]:
    """Drydock's web application on a port of this machine, from which the BMC fetches media."""
    from werkzeug.serving import WSGIRequestHandler, make_server

    from drydock.wsgi import application

    class Silent(WSGIRequestHandler):
        def log(self, type: str, message: str, *words: Any) -> None:
            pass

    with _serving(make_server("127.0.0.1", port, application, threaded=True, request_handler=Silent)):
        yield


@contextlib.contextmanager
def image(folder: Path) -> Iterator[dict[str, Any]]:
    """A small image with a partition table, on a web server of its own."""
    from tests.agent import disk_images

    folder.mkdir()
    content = disk_images.raw(folder, mib=4)
    (folder / "small.raw").write_bytes(content)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    about = {"format": "raw", "ready_by": "ssh", "root_device": {"min_size_bytes": 1 << 20}}
    with _serving(server):
        yield {
            "url": f"http://127.0.0.1:{server.server_address[1]}/small.raw",
            "sha256": hashlib.sha256(content).hexdigest(), **about,
        }  # fmt: skip


@contextlib.contextmanager
def _serving(server: Any) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class DeploymentScene:
    """The scene, in the demo that has the stage, the client and the workers."""

    def __init__(self, demo: Any, port: int) -> None:
        self.demo, self.stage, self.client, self.port = demo, demo.stage, demo.client, port

    def run(self) -> None:
        """From a server with nothing on it to one on whose disk nothing is found."""
        from tests.bmc.double import redfish_double
        from tests.bmc.guests import guests
        from tests.bmc.machine import Machine

        self.stage.scene("A third server, with nothing on its disk: Drydock boots its ramdisk, and deploys it")
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dd-metal-", dir="/tmp")))
            folder.chmod(0o755)
            control = self.demo.alpha[1].control
            self.guest = stack.enter_context(guests(folder / "gamma", "127.9.6.3", control=control))
            about = {"name": "gamma", "serial": "SN-GAMMA", "macs": ("52:54:00:00:00:03",), "power_delay": 0.05}
            self.double = stack.enter_context(redfish_double(Machine(on_power=self.guest.switched, **about)))
            self.guest.machine = self.double.machine
            stack.enter_context(web(self.port))
            self._enrol(stack.enter_context(image(folder / "images")))
            self._lease()
            self._erased()
            self.client.change_resource(self.demo.ids["gamma"], "retire")
            self.demo.wait("gamma is handed back", lambda: bool(self.demo.row("gamma").gone_at))

    def _enrol(self, small: dict[str, Any]) -> None:
        from blueprints.models import Blueprint
        from drydock_client.values import BlueprintChange
        from tests.bmc.guests import RAMDISK

        config = {
            "credential": "rack-root", "bmc_credential": "rack-bmc", "min_free_mib": 0, "compare": "report",
            "accounts": "shared", "ramdisk": {"url": RAMDISK, "port": self.guest.port, "samples": 16},
            "images": {"small": small},
        }  # fmt: skip
        made = self.client.add_blueprint("deployed", "bare_metal", config, BlueprintChange())
        Blueprint.objects.filter(pk=made.id).update(audience="everyone")
        where = {**self.guest.registration(), "name": "gamma", "serial": "SN-GAMMA"}
        bmc = {"driver": "redfish", **self.double.access()}
        self.demo.ids["gamma"] = int(self.client.register("deployed", {**where, "bmc": bmc}).id)
        self.demo.wait("gamma is inspected and erased in the ramdisk", lambda: self.demo.row("gamma").state == "active")
        self.stage.promise("it is off, without media", self._is_bare(), str(self.double.machine.media))

    def _lease(self) -> None:
        from leases.allocator import Allocator

        lease = Allocator("host", owner=self.client.name, exclusive=True, requirements={"image": "small"}).allocate()
        lease.wait_until_active(timeout=self.demo.patience)
        self.stage.promise("the image was written, and booted from the disk", self.guest.runs == "disk")
        said = lease.interface("command").check(["sh", "-c", "echo $(id -un) on the deployed system"]).text.strip()
        self.stage.line(f"a command over SSH, with the host key that was in the seed: {said}")
        with (self.guest.disks.root / "dev/vda").open("r+b") as disk:
            disk.seek(9 << 20)
            disk.write(CANARY)
        self.stage.promise("the tenant leaves a file on the disk", self.guest.holds(CANARY))
        lease.release()
        self.demo.wait("the lease is over", lambda: self.demo.lease(lease).state == "destroyed")

    def _erased(self) -> None:
        from leases.models import ErasureRecord

        self.demo.wait("gamma is clean", lambda: not self.demo.row("gamma").in_maintenance)
        self.stage.promise("what the tenant left is not on the disk", not self.guest.holds(CANARY))
        self.stage.promise("gamma is off, without media", self._is_bare(), str(self.double.machine.media))
        for one in ErasureRecord.objects.filter(resource_id=self.demo.ids["gamma"], lease_id__isnull=False):
            self.stage.line(f"erasure record: {one.disk} {one.serial}, {one.method}, verified: {one.verified}")
            self.stage.promise("the record says that nothing was left", one.verified, one.problem)

    def _is_bare(self) -> bool:
        machine = self.double.machine
        inserted = [slot for slot, it in machine.media.items() if it.get("Inserted")]
        return machine.power_state == "Off" and not inserted and not self.guest.runs
