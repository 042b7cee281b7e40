"""Drivers that are programs of their own: they say hello on a local address, and the agent asks them for hardware.

A driver that hangs, lies or has ended neither delays a report nor hides other devices. Its devices of the last
answer are kept for `KEPT` seconds, with a warning.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import ipaddress
import json
import os
import re
import secrets
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from drydock_agent import Device, Driver, Drivers, Findings, wire
from drydock_agent.cyborg import DISCOVERING, READY, DriverHello, from_document, is_discovering
from drydock_agent.program.addresses import Address
from drydock_agent.program.errors import AgentError
from drydock_agent.tree import Tree
from drydock_agent.wire import Malformed

KEPT = 900.0
"""How long in seconds the devices of a driver that does not answer are still reported."""
PATIENCE = 5.0
"""How long in seconds a scan waits for drivers that answered the last time. It does not wait for the others."""
SECONDS = 20.0
"""The longest time in seconds that a driver has for its whole answer."""
_MOST = 20
_MOST_BYTES, _MOST_ENTRIES = 1 << 20, 8_000
"""Limits of the answers of all drivers together, because the server refuses a larger report as a whole."""
_AGAIN = 0.5
_WORD = re.compile(r"[^a-z0-9._-]+")
_LISTENING = "0A"


@dataclasses.dataclass(kw_only=True)
class _Known:
    """A driver that said hello, and what it said last."""

    name: str
    address: Address
    classes: tuple[str, ...]
    devices: tuple[Device, ...] = ()
    size: tuple[int, int] = (0, 0)
    """The number of bytes and entries of the devices in a report."""
    answered_at: float | None = None
    problem: str = ""
    asking: threading.Thread | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _AsDriver:
    """The last report of a separate driver, as a driver of the agent itself."""

    name: str
    classes: tuple[str, ...]
    devices: tuple[Device, ...]
    problem: str
    paths: tuple[str, ...] = ()
    tools: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def read(self, tree: Tree) -> Findings:
        """Return the devices. A problem becomes a warning about this driver."""
        if self.problem:
            tree.warn(f"driver {self.name}", self.problem)
        return Findings(devices=self.devices)


class SeparateDrivers:
    """The separate drivers of this host, and the secret that they share with the agent."""

    def __init__(
        self, secret: str, *, kept: float = KEPT, patience: float = PATIENCE, seconds: float = SECONDS
    ) -> None:
        self.secret = secret
        self._kept, self._patience, self._seconds = kept, patience, seconds
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()

    def hello(self, document: object) -> tuple[int, dict[str, Any]]:
        """Register a driver, which may do so again at any time. Raises Malformed."""
        said = DriverHello.from_json(document)
        try:
            address = Address.parse(said.endpoint)
        except AgentError as error:
            raise Malformed(f"hello.endpoint: {error}") from None
        if not address.is_local:
            raise Malformed(
                f"hello.endpoint: {said.endpoint!r:.80} is not on this machine. Use 127.0.0.1 or a Unix socket"
            )
        name = _WORD.sub("-", (said.name or f"{said.types[0]}-{address}").lower()).strip("._-")[:60] or "driver"
        with self._lock:
            if name not in self._known and len(self._known) >= _MOST:
                raise Malformed(f"hello: {_MOST} drivers are registered already; that is the most")
            before = self._known.get(name)
            known = before or _Known(name=name, address=address, classes=said.types)
            known.address, known.classes, known.problem = address, said.types, ""
            self._known[name] = known
        return 200, {"version": 1, "status": READY}

    def ask(self) -> None:
        """Have every driver discover its hardware. Return when all have answered, or after `patience` seconds."""
        with self._lock:
            waited = [one for one in self._known.values() if not one.problem]
            idle = [one for one in self._known.values() if one.asking is None or not one.asking.is_alive()]
            for one in idle:
                one.asking = threading.Thread(target=self._ask, args=(one,), daemon=True)
                one.asking.start()
        until = time.monotonic() + self._patience
        for one in waited:
            assert one.asking is not None
            one.asking.join(max(0.0, until - time.monotonic()))
            if one.asking.is_alive():
                one.problem = f"It did not answer within {self._patience:g} seconds."

    def with_own(self, own: Drivers) -> Drivers:
        """Return the drivers of the agent with the separate ones after them."""
        taken = {one.name for one in own.drivers}
        used = [0, 0]
        with self._lock:
            made = [self._as_driver(one, taken, used) for _, one in sorted(self._known.items())]
        drivers: Sequence[Driver] = [*own.drivers, *made]
        return dataclasses.replace(own, drivers=tuple(drivers))

    def _as_driver(self, known: _Known, taken: set[str], used: list[int]) -> _AsDriver:
        name = known.name if known.name not in taken else f"{known.name}-program"
        devices, problem = known.devices, known.problem
        if used[0] + known.size[0] > _MOST_BYTES or used[1] + known.size[1] > _MOST_ENTRIES:
            devices, problem = (), f"It reports too much: {known.size[0]} bytes and {known.size[1]} entries."
        used[0], used[1] = (used[0] + known.size[0], used[1] + known.size[1]) if devices else (used[0], used[1])
        age = None if known.answered_at is None else time.monotonic() - known.answered_at
        if problem and age is not None and devices:
            kept = age <= self._kept
            problem += f" Its last answer came {age:.0f} seconds ago" + (
                ", and is still reported." if kept else ". Its devices are not reported any more."
            )
            devices = devices if kept else ()
        return _AsDriver(name=name, classes=known.classes, devices=devices, problem=problem)

    def _ask(self, known: _Known) -> None:
        try:
            found = self._answer(known.address)
            size = _size(found)
        except (OSError, http.client.HTTPException, Malformed, AgentError) as error:
            reason = "it did not answer in time" if isinstance(error, TimeoutError) else str(error) or repr(error)
            known.problem = f"The driver at {known.address} failed: {' '.join(reason.split())[:300]}."
            return
        known.devices, known.size, known.answered_at, known.problem = found, size, time.monotonic(), ""

    def _answer(self, address: Address) -> tuple[Device, ...]:
        """Return the devices that a driver finds now. Raises OSError, HTTPException and Malformed."""
        until = time.monotonic() + self._seconds
        _send(address, "POST", "/discovery", self.secret, until, expected=(200, 202))
        while True:
            document = _send(address, "GET", "/hardware", self.secret, until, expected=(200,))
            if not is_discovering(document) or time.monotonic() + _AGAIN >= until:
                break
            time.sleep(_AGAIN)
        return from_document(document)


def _size(devices: tuple[Device, ...]) -> tuple[int, int]:
    """Return how many bytes and entries devices are in a report. Raises Malformed for what the server refuses."""
    encoded = wire.encoded(devices)
    try:
        text = json.dumps(encoded, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise Malformed("it has text that is not valid Unicode") from None
    if b"\\u0000" in text:
        raise Malformed("it has a NUL character")
    return len(text), _entries(encoded)


def _entries(value: object) -> int:
    if isinstance(value, Mapping):
        return len(value) + sum(map(_entries, value.values()))
    if isinstance(value, list):
        return len(value) + sum(map(_entries, value))
    return 0


def secret_in(file: Path) -> str:
    """Return the secret in a file that only its owner can read. A file that is missing is made. Raises AgentError."""
    try:
        with contextlib.suppress(FileExistsError):
            made = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(made, "w") as opened:
                opened.write(secrets.token_urlsafe(32) + "\n")
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle) as opened:
            if stat.S_IMODE(os.fstat(handle).st_mode) & 0o077 or os.fstat(handle).st_uid != os.geteuid():
                raise AgentError(f"{file} has the secret of the drivers. Only its owner may read it: chmod 600.")
            found = opened.read(1_000).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AgentError(f"{file} cannot be used: {error}.") from None
    if len(found) < 16 or not found.isascii() or not found.isprintable():
        raise AgentError(f"{file} must have a secret of at least 16 characters in its first line.")
    return found


class _Local(http.client.HTTPConnection):
    """An HTTP connection to an address of this machine, once it is certain whose program listens there."""

    def __init__(self, address: Address, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._address = address
        self._connected: socket.socket | None = None

    def connect(self) -> None:
        """Connect. Raises OSError, also if another account than this one or root listens there."""
        self.sock = socket.socket(self._address.family, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self._connected = self.sock
        self.sock.connect(self._address.bound)
        owners = _owners(self._address, self.sock)
        if not owners or not owners <= {0, os.geteuid()}:
            raise OSError("the program that listens there belongs to another account, so the secret is not sent to it")

    def cut(self) -> None:
        """End what is being read. The connection gives up its socket once the response has begun, so it is kept."""
        if self._connected is not None:
            with contextlib.suppress(OSError):
                self._connected.shutdown(socket.SHUT_RDWR)


def _owners(address: Address, connected: socket.socket) -> set[int]:
    """Return the accounts whose programs listen on an address of this machine. Empty if it cannot be found out."""
    if address.path:
        credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return {struct.unpack("3i", credentials)[1]}
    found = set()
    wanted = {f"{one}:{address.port:04X}" for one in _spellings(connected.getpeername()[0])}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for words in map(str.split, Path(f"/proc/net/{name}").read_text().splitlines()[1:]):
                if len(words) > 7 and words[3] == _LISTENING and words[1] in wanted:
                    found.add(int(words[7]))
    return found


def _spellings(host: str) -> Iterator[str]:
    """Yield the local addresses of listeners that a connection to a host can reach, as the kernel writes them."""
    several = (host, "::") if ":" in host else (host, "0.0.0.0", "::", f"::ffff:{host}")  # noqa: S104
    for one in several:
        packed = ipaddress.ip_address(one).packed
        words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
        yield "".join(f"{word:08X}" for word in words)


def _send(address: Address, method: str, path: str, secret: str, until: float, *, expected: tuple[int, ...]) -> object:
    """Send a request and return the JSON document of the response, all of it before `until`."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    opened = _Local(address, left)
    # Each step has a timeout of its own, so only this ends a driver that sends one byte at a time.
    end = threading.Timer(left, opened.cut)
    end.daemon = True
    end.start()
    try:
        body = json.dumps(DISCOVERING if method == "POST" else {}).encode() if method == "POST" else None
        headers = {"Authorization": f"Bearer {secret}", "Accept": "application/json"}
        if body:
            headers["Content-Type"] = "application/json"
        opened.request(method, path, body, headers)
        with opened.getresponse() as response:
            content = response.read(_MOST_BYTES + 1)
    finally:
        end.cancel()
        opened.close()
    if response.status not in expected:
        raise Malformed(f"{method} {path}: status {response.status}; {expected[-1]} is expected")
    if len(content) > _MOST_BYTES:
        raise Malformed(f"{method} {path}: the answer has more than {_MOST_BYTES} bytes")
    return wire.parsed(content) if content.strip() else None
