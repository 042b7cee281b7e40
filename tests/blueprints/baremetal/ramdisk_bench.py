"""A bench for hosts with a ramdisk: a scripted BMC, the systems of `tests.bmc.guests`, and a server for their media.

The server serves what the kind offers (`ServesMedia`) as Drydock's view does, from the view of the resource that asked
for the address, so that no database is needed.
"""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar

from blueprints.amounts import Amounts
from blueprints.answers import Json
from blueprints.baremetal.kind import BareMetal
from blueprints.specs import Draft, LeaseView, ResourceView
from blueprints.testing.conformance import KindConformance, Outside
from interfaces.contract import Interface
from interfaces.ssh.pool import POOL
from tests.agent import disk_images
from tests.blueprints.baremetal.scripted import PASSWORD, Machine, changed
from tests.bmc.guests import RAMDISK, Guests

BMC = "bmc-ramdisk.test"
CANARY = b"a file that the tenant has left"
SERVED: dict[str, ResourceView] = {}
"""The resource that asked for a medium, by token."""


class View(ResourceView):
    """A resource whose media the server of the bench serves."""

    def medium_url(self, name: str, token: str) -> str:
        SERVED[token] = self
        return super().medium_url(name, token)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `/boot/TOKEN/NAME`, and the image."""

    def do_GET(self) -> None:
        parts = self.path.split("/")
        if self.path == "/image.raw":
            content = self.server.image  # type: ignore[attr-defined]
        else:
            found = [one for one in BareMetal().media(SERVED[parts[2]]) if (one.token, one.name) == tuple(parts[2:])]
            content = found[0].content()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words: Any) -> None:
        pass


@contextmanager
def media_server(folder: Path) -> Iterator[Any]:
    """The server, with a small image that has a partition table."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.image = disk_images.raw(folder, mib=3)  # type: ignore[attr-defined]
    server.url = f"http://127.0.0.1:{server.server_address[1]}"  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        SERVED.clear()


class RamdiskHooks(KindConformance):
    """How to look at a machine that is deployed for each lease. Its leases use the control account, which is root's."""

    kind = BareMetal()
    pace: ClassVar[float] = 0.1
    server: Any
    guest: Guests
    bmc: Machine
    given: Json
    ramdisk: Json

    def config(self) -> Json:
        image = {
            "url": f"{self.server.url}/image.raw", "sha256": hashlib.sha256(self.server.image).hexdigest(),
            "format": "raw", "ready_by": "ssh", "root_device": {"min_size_bytes": 1 << 20},
        }  # fmt: skip
        ramdisk = {"url": RAMDISK, "port": self.guest.port, "samples": 2, "boot_timeout": 20, **self.ramdisk}
        return {
            "credential": "control", "bmc_credential": "bmc", "min_free_mib": 1, "compare": "report",
            "inspect_interval": 0, "connect_timeout": 2, "accounts": "shared", "trusted": True, "ramdisk": ramdisk,
            "images": {"small": image}, **self.given,
        }  # fmt: skip

    def credentials(self) -> dict[str, dict[str, str]]:
        login = {"username": "admin", "password": PASSWORD}
        return {"control": {"private_key": self.guest.control.private}, "bmc": login}

    def requirements(self) -> Json:
        return {"image": "small"}

    def amounts(self) -> Amounts:
        return Amounts(slots=1)

    def registration(self) -> Json:
        more = {"cpu_millicores": 4000, "serial": "SN1", "bmc": {"driver": "scripted", "address": BMC}}
        return {**self.guest.registration(), **more}

    def resource(self, draft: Draft | None = None, *, generation: int = 1) -> ResourceView:
        given = self.kind.Registration.model_validate(self.registration())
        made = super().resource(draft, generation=generation)
        known = {one.name: getattr(made, one.name) for one in fields(made)}
        stored = given.model_dump(mode="json", exclude_unset=True)
        return View(**{**known, "registration": stored, "media_url": f"{self.server.url}/boot"})

    def act_arguments(self, act: str) -> Json:
        # The checks that boot systems have tests of their own.
        return {"boot-device": {"device": "network"}, "validate": {"only": ["privileges"]}}.get(act, {})

    def seen_of_act(self, resource: ResourceView, act: str) -> Json:
        return {"runs": self.guest.runs, "power": self.bmc.state.value, "media": self.inserted()}

    def inserted(self) -> list[str]:
        """The drives that hold an image."""
        assert self.bmc.drives is not None
        return [slot for slot, image in self.bmc.drives.items() if image]

    def power_of(self, resource: ResourceView) -> str:
        return self.bmc.state.value

    def outside(self) -> Sequence[Outside]:
        return [Outside(name=f"medium in {slot}") for slot in self.inserted()]

    def kill(self, resource: ResourceView) -> None:
        self.bmc.silent = True

    def destroyed(self, resource: ResourceView) -> None:
        self.bmc.silent = False
        super().destroyed(resource)

    def degrade(self, resource: ResourceView) -> bool:
        changed(self.bmc, health="degraded")
        return True

    @contextmanager
    def cut_off(self, resource: ResourceView) -> Iterator[None]:
        POOL.close_idle(0)
        self.bmc.silent = True
        try:
            yield
        finally:
            self.bmc.silent = False

    def access_of(self, lease: LeaseView) -> Sequence[str]:
        return ["the deployed system"] if self.guest.runs == "disk" else []

    def litter(self, lease: LeaseView) -> None:
        with (self.guest.disks.root / "dev/vda").open("r+b") as opened:
            opened.seek(7 << 20)
            opened.write(CANARY)

    def left_by(self, lease: LeaseView) -> Sequence[str]:
        return ["the file"] if self.guest.holds(CANARY) else []

    def use(self, interface: Interface) -> None:
        from tests.blueprints.test_ssh_host import use

        use(interface)

    def leased(self, resource: ResourceView, lease: LeaseView) -> ResourceView:
        """Return the resource with what the phases of the lease have stored with it, as the engine passes it on."""
        return replace(resource, facts=lease.resource.facts, secrets=lease.resource.secrets)
