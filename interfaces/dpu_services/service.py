"""The definition of a service: a chart, its Helm values, ports and labels, all checked before anything is written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from drydock.core.errors import InvalidRequest
from interfaces.dpu_services.helm import check_domain, checked_values

LONGEST_NAME = 40
"""Characters of the name of a service. The object of a service has it behind the name of the lease."""
MOST_PORTS, MOST_LABELS, MOST_INTERFACES = 32, 32, 8
INTERFACE = re.compile(r"[a-z][a-z0-9]{0,14}")
"""Names of network interfaces in pods. Linux limits them to 15 characters."""
PROTOCOLS = ("TCP", "UDP")
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_REPOSITORY = re.compile(r"(oci|https)://[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]{0,1000})?")
_CHART = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.+_-]{0,126}[A-Za-z0-9])?")
_PORT = re.compile(r"(?=[a-z0-9-]*[a-z])[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?")
_PREFIX = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_SHOWN = 100
_TAKEN = ("lo", "eth0")
"""Interfaces that every pod has: Kubernetes names that of the cluster's own network eth0."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A Helm chart in exactly one version.

    `repository` begins with `oci://` or `https://` and has no user, password or query.
    """

    repository: str
    name: str
    version: str

    def __post_init__(self) -> None:
        _fits(self.repository, _REPOSITORY, "chart.repository", "address of a repository")
        object.__setattr__(self, "repository", self.repository.rstrip("/"))
        _fits(self.name, _CHART, "chart.name", "name of a chart")
        _fits(self.version, _VERSION, "chart.version", "version of a chart")


@dataclass(frozen=True, kw_only=True)
class AllowedChart:
    """A chart that an operator lets owners install, in the listed versions only."""

    repository: str
    name: str
    versions: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "repository", self.repository.rstrip("/"))


@dataclass(frozen=True, kw_only=True)
class Port:
    """A port of a service. `protocol` is TCP or UDP."""

    name: str
    port: int
    protocol: str = "TCP"

    def __post_init__(self) -> None:
        _fits(self.name, _PORT, "ports", "name of a port")
        if type(self.port) is not int or not 0 < self.port < 65536:
            raise InvalidRequest(f"The port {self.name} must be from 1 to 65535.", field="ports")
        if self.protocol not in PROTOCOLS:
            raise InvalidRequest(f"The protocol of port {self.name} must be TCP or UDP.", field="ports")


@dataclass(frozen=True, kw_only=True, eq=False)
class Service:
    """A service on a leased DPU. Raises InvalidRequest, with the field, for anything that cannot be installed.

    `labels` are those of its pods. Where its pods run is not part of a service: Drydock sets it.
    """

    name: str
    chart: Chart
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The Helm values. They may contain secrets of the owner, and are in no event and no log."""
    ports: tuple[Port, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    interfaces: tuple[str, ...] = ()
    """Names of network interfaces of its pods, which chains connect. The pods start once all of them are connected."""

    def __post_init__(self) -> None:
        _fits(self.name, _NAME, "name", f"name of a service: lower-case letters, digits, hyphens, up to {LONGEST_NAME}")
        object.__setattr__(self, "values", checked_values(self.values))
        object.__setattr__(self, "ports", _checked_ports(self.ports))
        object.__setattr__(self, "labels", _checked_labels(self.labels))
        object.__setattr__(self, "interfaces", _checked_interfaces(self.interfaces))

    def __eq__(self, other: object) -> bool:
        """Compare as JSON, because `1`, `1.0` and `True` are equal in Python, but different Helm values."""
        return isinstance(other, Service) and self._text == other._text

    def __hash__(self) -> int:
        """Return a hash of the name, which equal services have in common."""
        return hash(self.name)

    @property
    def _text(self) -> str:
        return json.dumps(self.to_json(), sort_keys=True)

    def to_json(self) -> dict[str, Any]:
        """Return the service as a dict of JSON types, which `from_json` parses."""
        found = {**asdict(self), "ports": [asdict(one) for one in self.ports], "interfaces": list(self.interfaces)}
        # Services that were written before there were interfaces are the same as those without any.
        return found if self.interfaces else {name: value for name, value in found.items() if name != "interfaces"}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """Return the service that `to_json` wrote. Raises InvalidRequest, also for unknown fields such as selectors."""
        for name in given:
            if name not in cls.__dataclass_fields__:
                raise InvalidRequest("A service has no such field, or Drydock sets it.", field=str(name))
        try:
            ports = tuple(Port(**one) for one in given.get("ports", ()))
            return cls(**{**given, "chart": Chart(**given["chart"]), "ports": ports})
        except (KeyError, TypeError) as error:
            raise InvalidRequest(f"The service is invalid: {error}.") from error


def check_name(name: str, of: str = "service") -> None:
    """Raise InvalidRequest if no service, or what `of` says, can have this name."""
    _fits(name, _NAME, "name", f"name of a {of}")


def check_allowed(chart: Chart, allowed: Sequence[AllowedChart]) -> None:
    """Raise InvalidRequest, with the field, unless the allowlist has the chart in exactly this version."""
    there = [one for one in allowed if one.repository == chart.repository]
    if not there:
        hint = f"Allowed: {_listed(one.repository for one in allowed)}."
        raise InvalidRequest("Charts of this repository are not allowed.", field="chart.repository", hint=hint)
    named = [one for one in there if one.name == chart.name]
    if not named:
        hint = f"Allowed: {_listed(one.name for one in there)}."
        raise InvalidRequest("This chart is not allowed.", field="chart.name", hint=hint)
    versions = [version for one in named for version in one.versions]
    if chart.version not in versions:
        hint = f"Allowed: {_listed(versions)}."
        raise InvalidRequest("This version of the chart is not allowed.", field="chart.version", hint=hint)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names))[:20]) or "none"


def _fits(text: Any, pattern: re.Pattern[str], where: str, what: str) -> None:
    if not isinstance(text, str) or not pattern.fullmatch(text):
        raise InvalidRequest(f"{str(text)[:_SHOWN]!r} is not a valid {what}.", field=where)


def _checked_ports(ports: Sequence[Port]) -> tuple[Port, ...]:
    if len(ports) > MOST_PORTS:
        raise InvalidRequest(f"A service has at most {MOST_PORTS} ports.", field="ports")
    for chosen in ([one.name for one in ports], [(one.port, one.protocol) for one in ports]):
        if len(set(chosen)) != len(chosen):
            raise InvalidRequest("Names and numbers of ports must differ.", field="ports")
    return tuple(ports)


def _checked_interfaces(interfaces: Sequence[str]) -> tuple[str, ...]:
    if isinstance(interfaces, str) or len(interfaces) > MOST_INTERFACES:
        raise InvalidRequest(f"Interfaces must be a list of at most {MOST_INTERFACES} names.", field="interfaces")
    for one in interfaces:
        _fits(one, INTERFACE, "interfaces", "name of a network interface: a letter, letters and digits, up to 15")
        if one in _TAKEN:
            raise InvalidRequest(f"Pods have an interface {one} already.", field="interfaces")
    if len(set(interfaces)) != len(interfaces):
        raise InvalidRequest("Names of interfaces must differ.", field="interfaces")
    return tuple(interfaces)


def _checked_labels(labels: Any) -> dict[str, str]:
    if not isinstance(labels, Mapping) or len(labels) > MOST_LABELS:
        raise InvalidRequest(f"Labels must be an object with at most {MOST_LABELS} names.", field="labels")
    for name, value in labels.items():
        _fits(value, _LABEL, "labels", "value of a label") if value != "" else None
        prefix, slash, short = str(name).rpartition("/")
        _fits(short, _LABEL, "labels", "name of a label")
        if slash:
            _fits(prefix, _PREFIX, "labels", "prefix of a label")
        check_domain(str(name), f"labels.{name}")
    return dict(labels)
