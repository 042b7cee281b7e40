"""BMCs in a process of their own: as much of Redfish as checks and leases use, with a fixed latency of each call.

`python -m bench.bmcs COUNT PORT LATENCY [FOLDER]` prints the fingerprint of the certificate that all of them present,
and then answers each line of its standard input with a line of JSON: the number of calls, and when machines were
switched on and accepted logins. The machine N is at `address(N)`. If a folder is given, a machine that is on runs the
SSH server whose configuration is FOLDER/N/config, after `POWER` and `BOOT` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import hashlib
import json
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

USERNAME, PASSWORD = "bench", "a-password-of-the-bench"
POWER, BOOT = 1.0, 2.0
"""Seconds until a machine that was switched on has power, and from then until its SSH server runs."""
SSHD = "/usr/sbin/sshd"
V1 = "/redfish/v1"
_SENSORS, _DRIVES, _PORTS, _COMPONENTS = 8, 2, 2, 4


def address(number: int) -> str:
    """The address of a BMC and of its machine, on this machine."""
    return f"127.80.{number // 250}.{number % 250 + 1}"


class Doubles:
    """The process of some BMCs; leave the block to end it."""

    def __init__(self, count: int, port: int, latency: float, folder: Path | None = None) -> None:
        words = [str(count), str(port), str(latency), *([str(folder)] if folder else [])]
        command = [sys.executable, "-m", "bench.bmcs", *words]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        self.count, self.port, self.latency = count, port, latency
        self._process = subprocess.Popen(command, **pipes)
        self.fingerprint = self._line()

    def stop(self) -> None:
        """End the process, and the SSH servers that it runs."""
        self._process.communicate(timeout=30)

    def told(self) -> dict[str, Any]:
        """Return what the BMCs have counted so far."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._line())
        return found

    def access(self, number: int) -> dict[str, Any]:
        """How the driver reaches a BMC."""
        return {"address": address(number), "port": self.port, "fingerprint": self.fingerprint}

    def _line(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline().strip()):
            raise RuntimeError(f"The BMCs of the bench have ended with status {self._process.wait(30)}.")
        return line


@contextmanager
def doubles(count: int, port: int, latency: float, folder: Path | None = None) -> Iterator[Doubles]:
    """Run so many BMCs."""
    made = Doubles(count, port, latency, folder)
    try:
        yield made
    finally:
        made.stop()


def _link(path: str) -> dict[str, str]:
    return {"@odata.id": f"{V1}{path}"}


def _list(path: str, names: list[str]) -> dict[str, Any]:
    members = [_link(f"{path}/{name}") for name in names]
    return {**_link(path), "Name": "Collection", "Members": members, "Members@odata.count": len(members)}


def _numbered(count: int) -> list[str]:
    return [str(one) for one in range(1, count + 1)]


def _tree(number: int) -> dict[str, dict[str, Any]]:
    """The resources of a small server, without its power."""
    system, chassis, manager = "/Systems/1", "/Chassis/1", "/Managers/1"
    resets = ["On", "ForceOff", "ForceRestart", "PowerCycle"]
    reset = {"target": f"{V1}{system}/Actions/ComputerSystem.Reset", "ResetType@Redfish.AllowableValues": resets}
    found: dict[str, dict[str, Any]] = {
        "": {
            "RedfishVersion": "1.6.0", "UUID": f"5c5c5c5c-0000-4000-8000-{number:012x}", "Systems": _link("/Systems"),
            "Chassis": _link("/Chassis"), "Managers": _link("/Managers"), "UpdateService": _link("/UpdateService"),
            "SessionService": _link("/SessionService"), "Links": {"Sessions": _link("/SessionService/Sessions")},
        },
        "/Systems": _list("/Systems", ["1"]), "/Chassis": _list("/Chassis", ["1"]),
        "/Managers": _list("/Managers", ["1"]),
        system: {
            "Manufacturer": "Contoso", "Model": "Bench", "SerialNumber": f"BENCH{number:06d}", "BiosVersion": "1.0",
            "UUID": f"4b4b4b4b-0000-4000-8000-{number:012x}", "Status": {"Health": "OK", "State": "Enabled"},
            "ProcessorSummary": {"Count": 2}, "MemorySummary": {"TotalSystemMemoryGiB": 256},
            "Actions": {"#ComputerSystem.Reset": reset}, "Storage": _link(f"{system}/Storage"),
            "EthernetInterfaces": _link(f"{system}/EthernetInterfaces"),
            "Links": {"Chassis": [_link(chassis)], "ManagedBy": [_link(manager)]},
            "Boot": {"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None"},
        },
        chassis: {"Sensors": _link(f"{chassis}/Sensors"), "Links": {"ComputerSystems": [_link(system)]}},
        manager: {"FirmwareVersion": "2.0", "LogServices": _link(f"{manager}/LogServices")},
        f"{manager}/LogServices": _list(f"{manager}/LogServices", ["Sel"]),
        f"{manager}/LogServices/Sel": {"LogEntryType": "SEL", "Entries": _link(f"{manager}/LogServices/Sel/Entries")},
        f"{manager}/LogServices/Sel/Entries": _list(f"{manager}/LogServices/Sel/Entries", []),
        f"{system}/Storage": _list(f"{system}/Storage", ["1"]),
        f"{system}/Storage/1": {"Drives": [_link(f"{system}/Storage/1/Drives/{n}") for n in _numbered(_DRIVES)]},
        "/UpdateService": {"FirmwareInventory": _link("/UpdateService/FirmwareInventory")},
    }  # fmt: skip
    _many(found, f"{system}/EthernetInterfaces", _PORTS, lambda n: {"MACAddress": f"02:00:{number:08x}:{n:02x}"})
    _many(found, f"{chassis}/Sensors", _SENSORS, lambda n: {"Reading": 20.0 + n, "ReadingUnits": "Cel"})
    _many(found, "/UpdateService/FirmwareInventory", _COMPONENTS, lambda n: {"Version": f"1.{n}"})
    for name in _numbered(_DRIVES):
        about = {"SerialNumber": f"D{number}-{name}", "Model": "Disk", "CapacityBytes": 10**12, "Protocol": "NVMe"}
        found[f"{system}/Storage/1/Drives/{name}"] = about
    return {path: {**_link(path), "Id": path.rsplit("/", 1)[-1], "Name": path, **body} for path, body in found.items()}


def _many(found: dict[str, dict[str, Any]], path: str, count: int, body: Any) -> None:
    found[path] = _list(path, _numbered(count))
    found.update({f"{path}/{n}": body(n) for n in range(1, count + 1)})


class Bmc:
    """A BMC and its machine."""

    def __init__(self, number: int, folder: Path | None) -> None:
        self.folder = None if folder is None else folder / str(number)
        self.tree, self.power = _tree(number), "Off"
        self.on_at = self.ready_at = 0.0
        self._boot: asyncio.Task[None] | None = None
        self._sshd: asyncio.subprocess.Process | None = None
        self._address = address(number)

    def answer(self, method: str, path: str, body: Any) -> tuple[int, dict[str, str], Any]:
        """The status, the headers and the body of an answer."""
        below = path.removeprefix(V1).rstrip("/")
        if (method, below) == ("POST", "/SessionService/Sessions"):
            if (body.get("UserName"), body.get("Password")) != (USERNAME, PASSWORD):
                return 401, {}, {"error": {"message": "The login is wrong."}}
            session = f"{V1}/SessionService/Sessions/1"
            return 201, {"X-Auth-Token": "bench", "Location": session}, {"@odata.id": session, "Id": "1"}
        if method == "DELETE":
            return 204, {}, None
        if method == "POST" and below.endswith("ComputerSystem.Reset"):
            self._switch(body["ResetType"])
            return 204, {}, None
        if method == "PATCH":
            return 204, {}, None
        if (found := self.tree.get(below)) is None:
            return 404, {}, {"error": {"message": "There is no such resource."}}
        return 200, {}, {**found, "PowerState": self.power} if below == "/Systems/1" else found

    def _switch(self, wanted: str) -> None:
        if wanted == "On" and self.power == "Off":
            self.power, self.on_at = "PoweringOn", time.time()
            self._boot = asyncio.create_task(self._start())
        elif wanted == "ForceOff":
            self.power = "Off"
            self.stop()

    async def _start(self) -> None:
        await asyncio.sleep(POWER)
        self.power = "On"
        if self.folder is None:
            return
        await asyncio.sleep(BOOT)
        words = (SSHD, "-D", "-e", "-f", str(self.folder / "config"))
        self._sshd = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.DEVNULL)
        port = int((self.folder / "port").read_text())
        while not await _accepts(self._address, port):
            await asyncio.sleep(0.02)
        self.ready_at = time.time()

    def stop(self) -> None:
        """End what runs on the machine, with every login."""
        if self._boot is not None:
            self._boot.cancel()
        if self._sshd is not None and self._sshd.returncode is None:
            import psutil

            for one in psutil.Process(self._sshd.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    one.kill()
            self._sshd.kill()


async def _accepts(where: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(where, port)
    except OSError:
        return False
    writer.close()
    return True


class Service:
    """The server of all BMCs."""

    def __init__(self, count: int, port: int, latency: float, folder: Path | None) -> None:
        self.bmcs = {address(number): Bmc(number, folder) for number in range(count)}
        self._port, self._latency, self._calls = port, latency, 0

    async def run(self) -> None:
        """Serve until standard input ends."""
        context, fingerprint = certificate()
        for where in self.bmcs:
            await asyncio.start_server(self._connected, where, self._port, ssl=context, backlog=16)
        print(fingerprint, flush=True)
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while await lines.readline():
            print(json.dumps(self._told()), flush=True)
        for bmc in self.bmcs.values():
            bmc.stop()

    def _told(self) -> dict[str, Any]:
        switched = [(one.on_at, one.ready_at) for one in self.bmcs.values()]
        return {"calls": self._calls, "switched": switched}

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bmc = self.bmcs[writer.get_extra_info("sockname")[0]]
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, path, body = await _request(head, reader)
                self._calls += 1
                await asyncio.sleep(self._latency)
                status, headers, content = bmc.answer(method, path, body)
                writer.write(_response(status, headers, content))
                await writer.drain()
        writer.close()


async def _request(head: bytes, reader: asyncio.StreamReader) -> tuple[str, str, Any]:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    named = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
    content = await reader.readexactly(int(named.get("content-length", "0")))
    return method, path.partition("?")[0], json.loads(content) if content else {}


def _response(status: int, headers: dict[str, str], content: Any) -> bytes:
    body = b"" if content is None else json.dumps(content).encode()
    named = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
    lines = [f"HTTP/1.1 {status} Bench", *(f"{name}: {value}" for name, value in named.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def certificate() -> tuple[ssl.SSLContext, str]:
    """The context of a server with a certificate that it has made itself, and the SHA-256 of the certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bench")])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now).not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(made.public_bytes(serialization.Encoding.PEM) + private)
        file.flush()
        context.load_cert_chain(file.name)
    return context, hashlib.sha256(made.public_bytes(serialization.Encoding.DER)).hexdigest()


def main() -> None:
    count, port, latency, *folder = sys.argv[1:]
    service = Service(int(count), int(port), float(latency), Path(folder[0]) if folder else None)
    asyncio.run(service.run())


if __name__ == "__main__":
    main()
