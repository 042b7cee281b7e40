"""Addresses of leased resources: frozen values that a kind puts into its facts. They contain no secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

from drydock.core.errors import InvalidRequest
from interfaces.keys import PublicKey

_HOST = re.compile(r"[A-Za-z0-9:]([A-Za-z0-9._:%-]{0,252}[A-Za-z0-9:])?")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\$?")
Environment = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class _Value:
    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """Return a dict of JSON types that `endpoint_from_json` understands."""
        return {"kind": self.kind, **asdict(self)}

    @classmethod
    def _from_fields(cls, values: Mapping[str, Any]) -> Self:
        known = {field.name for field in fields(cls)}
        unknown = set(values) - known
        if unknown:
            raise InvalidRequest(f"Unknown fields in an endpoint: {', '.join(sorted(unknown))}.")
        return cls(**values)


def _pairs(value: Any) -> Environment:
    return tuple((str(name), str(text)) for name, text in value)


@dataclass(frozen=True, kw_only=True)
class LocalEndpoint(_Value):
    """An account on this machine, given as `uid` and `gid`.

    If we are root, processes and file operations run with that uid; otherwise it must be our own. `home` is absolute;
    `environment` is added to the clean environment of every process.

    `processes` limits the processes of the uid in total, `open_files` the open files of each process; 0 means no
    limit. `cgroup` is the folder of the control group for its processes, or empty.
    """

    kind: ClassVar[str] = "local"
    uid: int
    gid: int
    home: str
    environment: Environment = ()
    processes: int = 0
    open_files: int = 0
    cgroup: str = ""

    def __post_init__(self) -> None:
        if self.uid < 0 or self.gid < 0:
            raise InvalidRequest("A uid or gid must not be negative.", field="uid")
        if not self.home.startswith("/"):
            raise InvalidRequest("The home folder must be an absolute path.", field="home")
        object.__setattr__(self, "environment", _pairs(self.environment))


@dataclass(frozen=True, kw_only=True)
class SshEndpoint(_Value):
    """An account on a host with an SSH server. The private key is stored elsewhere.

    Only the keys in `host_keys` are accepted ("ssh-ed25519 AAAA..."). `connect_timeout` is in seconds. An empty `home`
    means the home of the account. `bastion` is the jump host; the transport gets its key as `bastion_key`.
    """

    kind: ClassVar[str] = "ssh"
    host: str
    user: str
    host_keys: tuple[str, ...]
    port: int = 22
    connect_timeout: float = 10.0
    home: str = ""
    environment: Environment = ()
    bastion: SshEndpoint | None = None

    def __post_init__(self) -> None:
        if not _HOST.fullmatch(self.host):
            raise InvalidRequest("The host must be a host name or an IP address.", field="host")
        if not _USER.fullmatch(self.user):
            raise InvalidRequest("The user must be a valid account name.", field="user")
        if not 0 < self.port < 65536:
            raise InvalidRequest("The port must be from 1 to 65535.", field="port")
        if not self.host_keys:
            raise InvalidRequest("Drydock does not connect to a host without a pinned host key.", field="host_keys")
        keys = tuple(PublicKey.parse(line).line for line in self.host_keys)
        object.__setattr__(self, "host_keys", keys)
        object.__setattr__(self, "environment", _pairs(self.environment))
        if isinstance(self.bastion, Mapping):
            object.__setattr__(self, "bastion", endpoint_from_json(self.bastion))

    def to_json(self) -> dict[str, Any]:
        """Return a dict of JSON types, which `endpoint_from_json` parses."""
        bastion = self.bastion.to_json() if self.bastion else None
        return {**super().to_json(), "bastion": bastion}

    @property
    def known_as(self) -> str:
        """The name under which SSH looks up the host's key."""
        return self.host if self.port == 22 else f"[{self.host}]:{self.port}"


Endpoint = LocalEndpoint | SshEndpoint


def endpoint_from_json(value: Mapping[str, Any]) -> Endpoint:
    """Return the endpoint that `to_json` wrote. Raises InvalidRequest."""
    values = dict(value)
    kind = values.pop("kind", None)
    for endpoint in (LocalEndpoint, SshEndpoint):
        if endpoint.kind == kind:
            return endpoint._from_fields(values)
    raise InvalidRequest(f"Endpoint kind {kind!r} does not exist.", field="kind")
