"""The messages between agents and the server: frozen values with a versioned JSON form that both sides parse strictly.

Each message is validated when it is created, so neither side can send a message that the other rejects. An invalid
message raises `wire.Malformed`, which names the field.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import gzip
import json
import re
import ssl
from collections.abc import Mapping
from typing import Any, Self

from drydock_agent import wire
from drydock_agent.facts import ID_LENGTH, Hardware, Value
from drydock_agent.facts import VERSION as HARDWARE
from drydock_agent.wire import Malformed

VERSION = 1
"""The version of all messages. Readers reject other versions."""

BODY_BYTES, ENTRIES, DEPTH = 4 << 20, 20_000, wire.MOST_DEPTH
"""Limits of one body: unpacked size, members of objects plus items of lists, nesting."""

LONGEST_WAIT = 50
"""Maximum number of seconds that a request for orders may wait."""

_TEXT, _CERTIFICATE, _MANY = 2_000, 16_384, 200

_HOST = re.compile(r"\A[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")
_WORD = re.compile(r"\A[a-z0-9][a-z0-9._-]{0,99}\Z")
_ID = re.compile(r"\A[A-Za-z0-9._-]{1,100}\Z")
_ENDPOINT = re.compile(r"\A([A-Za-z0-9._-]{1,253}|\[[0-9a-fA-F:.]{2,45}\]):([1-9][0-9]{0,4})\Z")
_SHA256 = re.compile(r"\A[0-9a-f]{64}\Z")
_PEM = re.compile(r"\A-----BEGIN CERTIFICATE-----\r?\n[A-Za-z0-9+/=\r\n]+-----END CERTIFICATE-----\s*\Z")


class AgentStatus(enum.StrEnum):
    """The status that an agent reports with its hello."""

    READY = "READY"


class DriverStatus(enum.StrEnum):
    """The status of a driver."""

    READY = "READY"
    FAILED = "FAILED"


class OrderStatus(enum.StrEnum):
    """The status of an order."""

    IN_PROGRESS = "IN-PROGRESS"
    DONE = "DONE"
    FAILED = "FAILED"


class Action(enum.StrEnum):
    """The actions that the server can order."""

    DISCOVERY = "discovery"
    UPGRADE = "upgrade"
    SETUP = "setup"


class Message:
    """The base of all messages."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, without fields that have their default values."""
        document: dict[str, Any] = wire.encoded(self)
        return document

    def to_body(self, *, compress: bool = False) -> bytes:
        """Return the JSON form as bytes, compressed with gzip if `compress` is true. Raises Malformed if too large."""
        document = self.to_json()
        body = json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
        wire.unpacked(body, "", BODY_BYTES)
        return gzip.compress(body, 6, mtime=0) if compress else body

    @classmethod
    def from_json(cls, document: object) -> Self:
        """Parse the JSON form of a message. Raises Malformed."""
        return wire.decoded(cls, document, version=VERSION, entries=ENTRIES)

    @classmethod
    def from_body(cls, body: bytes, encoding: str = "") -> Self:
        """Parse the body of a request or response with this Content-Encoding. Raises Malformed."""
        return cls.from_json(wire.parsed(wire.unpacked(body, encoding, BODY_BYTES)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class DriverInfo:
    """A driver of an agent."""

    name: str
    type: tuple[str, ...] = ()
    """The device classes that the driver reports."""
    status: DriverStatus
    message: str = ""
    """The reason why the driver failed; empty if it did not."""

    def __post_init__(self) -> None:
        _match("drivers.name", self.name, _WORD)
        _few("drivers.type", self.type)
        for one in self.type:
            _match("drivers.type", one, _WORD)
        _text("drivers.message", self.message)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hello(Message):
    """The first message of an agent, repeated to renew its token: `POST /api/v1/agents/hello`."""

    status: AgentStatus
    name: str
    """The host name."""
    agent_version: str
    boot_id: str
    time: str
    """The time by the agent's clock, in the form of `timestamp`."""
    identities: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The identities of the host by namespace, such as `dmi_uuid`."""
    endpoint: str = ""
    """The address HOST:PORT on which the agent listens; empty if it does not listen."""
    certificate: str = ""
    """The certificate of that endpoint in PEM."""
    drivers: tuple[DriverInfo, ...] = ()
    resumed: str = ""
    """The id of the order that was in progress when the agent was restarted; empty if there was none."""
    version: int = VERSION

    def __post_init__(self) -> None:
        _match("hello.name", self.name, _HOST)
        _match("hello.agent_version", self.agent_version, _ID)
        _optional("hello.boot_id", self.boot_id, _ID)
        moment(self.time, "hello.time")
        _few("hello.identities", self.identities)
        for namespace, text in self.identities.items():
            _match("hello.identities", namespace, _WORD)
            _text(f"hello.identities.{namespace}", text, most=200, least=1)
        _endpoint(self.endpoint, self.certificate)
        _few("hello.drivers", self.drivers)
        if len({one.name for one in self.drivers}) != len(self.drivers):
            raise Malformed("hello.drivers: two drivers have the same name")
        _optional("hello.resumed", self.resumed, _ID)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Welcome(Message):
    """The response to a hello."""

    agent: str
    """The id of the agent."""
    token: str
    """The new token. The previous one remains valid for five minutes."""
    expires_at: str
    interval: float
    """Seconds between two reports."""
    server_time: str
    server_version: str
    blueprint: str
    place: str
    secret: str = ""
    """The secret with which the server authenticates at the agent's endpoint. Empty if the agent has none."""
    version: int = VERSION

    def __post_init__(self) -> None:
        _match("welcome.agent", self.agent, _ID)
        _text("welcome.token", self.token, most=500, least=16)
        moment(self.expires_at, "welcome.expires_at")
        moment(self.server_time, "welcome.server_time")
        if not 1 <= self.interval <= 86_400:
            raise Malformed(f"welcome.interval: {self.interval:g}; it must be 1 to 86400 seconds")
        _text("welcome.server_version", self.server_version, most=100, least=1)
        _text("welcome.blueprint", self.blueprint, most=200)
        _text("welcome.place", self.place, most=200)
        _text("welcome.secret", self.secret, most=500)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HardwareReport(Message):
    """All hardware of a host: `PUT /api/v1/agents/me/hardware`."""

    sequence: int
    """A number that is larger than in every earlier report of the agent."""
    boot_id: str
    time: str
    hardware: Hardware
    version: int = VERSION

    def __post_init__(self) -> None:
        if self.sequence < 1:
            raise Malformed("hardwarereport.sequence: it must be at least 1")
        _optional("hardwarereport.boot_id", self.boot_id, _ID)
        moment(self.time, "hardwarereport.time")
        if self.hardware.version != HARDWARE:
            found = self.hardware.version
            raise Malformed(f"hardwarereport.hardware.version: {found}; this program reads version {HARDWARE}")
        for n, one in enumerate(self.hardware.devices):
            _text(f"hardwarereport.hardware.devices[{n}].id", one.id, most=ID_LENGTH, least=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Receipt(Message):
    """The response to a report."""

    stored: bool
    """False if the report was not stored, because nothing has changed."""
    problems: tuple[str, ...] = ()
    version: int = VERSION

    def __post_init__(self) -> None:
        _few("receipt.problems", self.problems)
        for one in self.problems:
            _text("receipt.problems", one)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """An action that the server orders an agent to carry out.

    Arguments: `discovery` takes none. `upgrade` takes `path` (below the server's address), `sha256` and `version`.
    `setup` takes `device`, and `driver` (a kernel driver to bind) or `vfs` (a number).
    """

    id: str
    action: Action
    arguments: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    expires_at: str

    def __post_init__(self) -> None:
        _match("orders.id", self.id, _ID)
        moment(self.expires_at, "orders.expires_at")
        known, required = _ARGUMENTS[self.action]
        for name in required - set(self.arguments):
            raise Malformed(f"orders.arguments.{name}: {self.action} needs it")
        for name, one in self.arguments.items():
            if name not in known:
                raise Malformed(f"orders.arguments.{name:.40}: {self.action} does not take it")
            if not isinstance(one, known[name]) or isinstance(one, bool):
                raise Malformed(f"orders.arguments.{name}: {known[name].__name__} is expected")
        if "sha256" in self.arguments:
            _match("orders.arguments.sha256", str(self.arguments["sha256"]), _SHA256)
        if self.action is Action.SETUP and ("driver" in self.arguments) == ("vfs" in self.arguments):
            raise Malformed("orders.arguments: setup takes either driver or vfs")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Orders(Message):
    """The response to `GET /api/v1/agents/me/orders?wait=SECONDS`. Without orders if the wait timed out."""

    orders: tuple[Order, ...]
    version: int = VERSION

    def __post_init__(self) -> None:
        _few("orders.orders", self.orders)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OrderResult(Message):
    """The progress or result of an order: `POST /api/v1/agents/me/orders/{id}`."""

    status: OrderStatus
    message: str = ""
    percent: int | None = None
    version: int = VERSION

    def __post_init__(self) -> None:
        _text("orderresult.message", self.message)
        if self.percent is not None and not 0 <= self.percent <= 100:
            raise Malformed("orderresult.percent: it must be 0 to 100")


_ARGUMENTS: dict[Action, tuple[dict[str, type], set[str]]] = {
    Action.DISCOVERY: ({}, set()),
    Action.UPGRADE: ({"path": str, "sha256": str, "version": str}, {"path", "sha256", "version"}),
    Action.SETUP: ({"device": str, "driver": str, "vfs": int}, {"device"}),
}


def timestamp(at: datetime.datetime) -> str:
    """Format a time as in messages, such as `2026-11-23T08:15:00.250Z`."""
    return at.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(text: str, field: str = "time") -> datetime.datetime:
    """Parse a time in a message. Raises Malformed unless it is RFC 3339 in UTC."""
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise Malformed(f"{field}: {text!r:.40} is not a time such as 2026-11-23T08:15:00Z") from None
    if at.utcoffset() != datetime.timedelta(0) or "T" not in text:
        raise Malformed(f"{field}: {text!r:.40} is not in UTC, such as 2026-11-23T08:15:00Z")
    return at


def _match(field: str, text: str, pattern: re.Pattern[str]) -> None:
    if not pattern.match(text):
        raise Malformed(f"{field}: {text!r:.60} is not allowed; expected {pattern.pattern[2:-2]}")


def _optional(field: str, text: str, pattern: re.Pattern[str]) -> None:
    if text:
        _match(field, text, pattern)


def _text(field: str, text: str, *, most: int = _TEXT, least: int = 0) -> None:
    if not least <= len(text) <= most or not text.isprintable():
        raise Malformed(f"{field}: one line of {least} to {most} printable characters is expected")


def _few(field: str, found: tuple[Any, ...] | Mapping[str, Any]) -> None:
    if len(found) > _MANY:
        raise Malformed(f"{field}: more than {_MANY} entries")


def _endpoint(endpoint: str, certificate: str) -> None:
    if not endpoint and not certificate:
        return
    match = _ENDPOINT.match(endpoint)
    if not match or int(match[2]) > 65_535:
        raise Malformed(f"hello.endpoint: {endpoint!r:.60} is not HOST:PORT")
    try:
        if len(certificate) > _CERTIFICATE or not _PEM.match(certificate):
            raise ValueError
        ssl.PEM_cert_to_DER_cert(certificate.strip())
    except ValueError:
        raise Malformed("hello.certificate: an endpoint needs one certificate in PEM") from None
