"""A card with its BMC, a web server with the image, and a web root, for tests of the kind bluefield."""

from __future__ import annotations

import contextlib
import http.server
import re
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blueprints.amounts import Amounts
from blueprints.answers import Json
from blueprints.contract import Fields
from blueprints.dpu.bluefield_card.config import Config as CardConfig
from blueprints.records.logins import LoginsInMemory
from blueprints.specs import Asked, BlueprintView, LeaseView, ResourceView, Whole
from interfaces.endpoints import LocalEndpoint
from interfaces.httpd import new_certificate
from interfaces.registry import REGISTRY
from interfaces.transports import transport_to
from tests.bmc.bluefield import SERIAL, Bluefield, newer, small
from tests.bmc.flashing import Card, image
from tests.clouds.machines import USER

PASSWORD = "A-right.Password7"


class _Files(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, with ranges."""

    def do_GET(self) -> None:
        server: Any = self.server
        server.asked.append(self.path)
        if (status := server.status) or not (found := server.folder / self.path.lstrip("/")).is_file():
            self.send_error(status or 404)
            return
        content = found.read_bytes()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first, last = (int(wanted[1]), int(wanted[2] or len(content) - 1)) if wanted else (0, len(content) - 1)
        part = content[first : last + 1]
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(part[: server.cut] if server.cut else part)

    def log_message(self, *said: Any) -> None:
        """Say nothing."""


class Web(http.server.ThreadingHTTPServer):
    """A web server over a folder, with TLS if it has a certificate."""

    daemon_threads = True

    def __init__(self, folder: Path, certificate: str = "", key: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Files)
        self.folder, self.asked, self.status, self.cut = folder, list[str](), 0, 0
        self.certificate = certificate
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            with tempfile.NamedTemporaryFile("w", prefix="drydock-tls-") as pem:
                pem.write(certificate + key)
                pem.flush()
                context.load_cert_chain(pem.name)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def uri(self) -> str:
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about clients that do not trust the certificate."""


@contextlib.contextmanager
def web(folder: Path, *, tls: bool = False) -> Iterator[Web]:
    folder.mkdir(exist_ok=True)
    with Web(folder, *(new_certificate(["127.0.0.1"]) if tls else ())) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()


def resources() -> dict[str, Any]:
    """Return the resources of a BMC that fetches by HTTP, whose card is a DPU."""
    found = newer(small())
    found["/redfish/v1/Systems/Bluefield/Oem/Nvidia"] = {"Mode": "DpuMode"}
    return found


def config(card: Card, images: Web, **more: Any) -> Json:
    """Return the config of a blueprint whose DPUs are on this card."""
    machines = card.machines
    return {
        "image": f"{images.uri}bf.bfb", "addresses": {SERIAL: card.address}, "ssh_port": machines.port, "user": USER,
        "homes": str(machines.homes), "min_free_mib": 0, "ready_by": "ssh", "models": ["BlueField3"],
        "reboot": "power_cycle", **more,
    }  # fmt: skip


def card_lease(bmc: Bluefield, **attributes: Any) -> LeaseView:
    """Return a lease on the card, in a host."""
    bmc.set(PASSWORD)
    blueprint = BlueprintView(id=2, name="cards", kind="bluefield_card", generation=1, config=CardConfig())
    found = {"serial": SERIAL, "model": "BlueField3", "memory_gib": 32, "ports": 2, "via": "bmc", "mode": "dpu"}
    row = ResourceView(
        id=5, key="card5", name="card", type="dpu_card", origin="registered", blueprint=blueprint,
        attributes={**found, **attributes}, capacity=Amounts(slots=1), identity=SERIAL,
        registration={"serial": SERIAL, "bmc": bmc.access()}, facts={"card": {"protocols": ["SCP", "HTTP"]}},
        credential={"username": "root", "password": PASSWORD}, logins=LoginsInMemory(),
        part_of=(Whole(id=4, name="h1", type="host", kind="fake"),),
    )  # fmt: skip
    return lease_on(row)


def lease_on(row: ResourceView, facts: Json | None = None, opener: Callable[..., Any] | None = None) -> LeaseView:
    return LeaseView(
        id=6, key=f"{row.key}-lease", owner="", asked=Asked(type=row.type, requirements=Fields(), amounts=Amounts()),
        resource=row, facts=facts or {}, opener=opener,
    )  # fmt: skip


@dataclass
class Webroot:
    """A web root whose server is a thread of this process."""

    server: Web
    listing: bool = False
    leases: list[LeaseView] = field(default_factory=list)

    def lease(self) -> LeaseView:
        folder = self.server.folder
        stat = folder.stat()
        transport = transport_to(LocalEndpoint(uid=stat.st_uid, gid=stat.st_gid, home=str(folder)))

        def opener(lease: LeaseView, name: str) -> Any:
            return REGISTRY.open(name, transport, still_mine=lambda: None, options={})

        blueprint = BlueprintView(id=3, name="webroots", kind="webroot", generation=1, config=Fields())
        row = ResourceView(
            id=7, key="webroot7", name="webroot", type="webroot", origin="built", blueprint=blueprint, attributes={},
            capacity=Amounts(),
        )  # fmt: skip
        facts: Json = {"uri": self.server.uri, "site": {"listing": self.listing}}
        if self.server.certificate:
            facts["certificate"] = self.server.certificate
        return lease_on(row, facts, opener)

    @property
    def files(self) -> list[Path]:
        return sorted(self.server.folder.iterdir())


def publish(images: Web, content: bytes | None = None) -> None:
    """Let the web server have an image."""
    (images.folder / "bf.bfb").write_bytes(image() if content is None else content)
