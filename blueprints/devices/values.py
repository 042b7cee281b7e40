"""Devices, their nodes below /dev, and the results of granting and revoking them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from blueprints.specs import Control
from drydock.core.errors import InvalidRequest
from interfaces.errors import CommandFailed, InterfaceError

_PATH = re.compile(r"/dev(/[A-Za-z0-9_][A-Za-z0-9_.:@+-]{0,63}){1,4}")
_NUMBER = re.compile(r"[0-9]{1,4}:[0-9]{1,7}")
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,99}")
_FIRST_UID = 1000


class DeviceRefused(InterfaceError):
    """The host does not allow a device to be granted. Nothing was opened."""

    code = "device_refused"


@dataclass(frozen=True, kw_only=True)
class Node:
    """A character device below /dev. `number` is `MAJOR:MINOR`; if empty, the number found on the host is used.

    A shared node controls several devices, such as /dev/nvidiactl. It may be missing, because some drivers create it
    on first use.
    """

    path: str
    number: str = ""
    shared: bool = False

    def __post_init__(self) -> None:
        if not _PATH.fullmatch(self.path):
            raise InvalidRequest(f"{self.path!r:.100} is not a path of a device below /dev.", field="nodes")
        if self.number and not _NUMBER.fullmatch(self.number):
            raise InvalidRequest(f"{self.number!r:.100} is not MAJOR:MINOR.", field="nodes")


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device, or a part of one such as a MIG slice.

    `id` is the PCI address, or `ADDRESS/PART`. `uuid` and `index` are those that the vendor's tools use. Two devices
    that are leased separately have no node in common, except shared ones.
    """

    id: str
    device_class: str = ""
    vendor: str = ""
    uuid: str = ""
    index: int | None = None
    nodes: tuple[Node, ...] = ()

    def __post_init__(self) -> None:
        for name in ("id", "device_class", "vendor", "uuid"):
            text = getattr(self, name)
            if (text or name == "id") and not _WORD.fullmatch(text):
                raise InvalidRequest(f"{text!r:.100} is not valid in a device.", field=name)


@dataclass(frozen=True, kw_only=True)
class Account:
    """The account of a lease on the host. No other account may have its uid or gid."""

    uid: int
    gid: int

    def __post_init__(self) -> None:
        if min(self.uid, self.gid) < _FIRST_UID:
            raise InvalidRequest(f"Uid {self.uid} and gid {self.gid} do not belong to a lease.", field="uid")

    @classmethod
    def of(cls, control: Control) -> Self:
        """Return the account that a control connection is for."""
        return cls(uid=control.uid, gid=control.gid)


@dataclass(frozen=True, kw_only=True)
class Granted:
    """The state of the host after a grant.

    `mechanism` is `cgroup-v1`, or `nodes` if only ownership and mode of the nodes keep other accounts away. `moved` is
    the number of threads of the account that ran outside its control group.
    """

    mechanism: str
    numbers: dict[str, str] = field(default_factory=dict)
    """`MAJOR:MINOR` by path, without shared nodes that are missing."""
    moved: int = 0
    warnings: tuple[str, ...] = ()
    """The limits of the isolation on this host, a sentence each."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A process that has a device open or mapped."""

    pid: int
    uid: int
    name: str
    number: str


def valid_key(key: str) -> str:
    """Return the key of a lease. Raises InvalidRequest if it cannot name a file."""
    if not _KEY.fullmatch(key):
        raise InvalidRequest(f"{key!r:.100} is not a valid key of a lease.", field="key")
    return key


@contextmanager
def refused_by(code: int) -> Iterator[None]:
    """Raise DeviceRefused, with the last line that a script printed as an error, if it ends with this exit code."""
    try:
        yield
    except CommandFailed as error:
        if error.result.exit_code != code:
            raise
        raise DeviceRefused(error.result.error_text.strip().rpartition("\n")[2]) from error
