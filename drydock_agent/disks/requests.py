"""The requests of jobs, read strictly from JSON."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from drydock_agent import wire
from drydock_agent.disks.canaries import MOST_SAMPLES
from drydock_agent.disks.errors import DiskError
from drydock_agent.disks.methods import METHODS

MOST_BYTES = 32 << 20
"""Bytes of a request, most of which the seed may have."""
_MOST_SEED = 16 << 20
_VOLUME = 0x8000
"""Offset of the primary volume descriptor in an ISO 9660 image."""
FORMATS = ("raw", "qcow2", "raw.zst", "qcow2.zst")

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Allowed:
    """The methods that may be used."""

    allowed: tuple[str, ...] = METHODS


@dataclasses.dataclass(frozen=True, kw_only=True)
class EraseRequest:
    """Which disks to erase. Without names, all fixed disks, and what a tenant left in the firmware."""

    disks: tuple[str, ...] = ()
    methods: Allowed = Allowed()
    samples: int = 64

    @property
    def allowed(self) -> tuple[str, ...]:
        """The methods that may be used."""
        return self.methods.allowed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hints:
    """Which disk to write to, as the root device hints of Ironic. `size` is in GiB, the others in bytes."""

    name: str = ""
    serial: str = ""
    wwn: str = ""
    model: str = ""
    vendor: str = ""
    hctl: str = ""
    tran: str = ""
    size: int | str | None = None
    rotational: bool | None = None
    min_size_bytes: int | None = None
    max_size_bytes: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class WriteRequest:
    """Which image to write to which disk."""

    url: str
    sha256: str
    format: str
    disk: Hints = Hints()
    max_size_bytes: int | None = None
    """The most bytes that the image may have unpacked; None is as many as the disk has."""
    ca: str = ""
    """Certificates to trust instead of the system's, in PEM."""
    seed: bytes = dataclasses.field(default=b"", repr=False)


def parsed(content: bytes) -> Mapping[str, Any]:
    """Return the fields of a request. Raises DiskError."""
    if len(content) > MOST_BYTES:
        raise DiskError("bad_request", f"The request has more than {MOST_BYTES >> 20} MiB.")
    try:
        document = wire.parsed(content or b"{}")
    except wire.Malformed as error:
        raise DiskError("bad_request", f"{error}.") from None
    if not isinstance(document, Mapping):
        raise DiskError("bad_request", "The request is not a JSON object.")
    return document


def digest(document: Mapping[str, Any]) -> str:
    """Return a text that two requests share only if they ask for the same."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def erase_request(document: Mapping[str, Any]) -> EraseRequest:
    """Read a request to erase disks. Raises DiskError, which names the field."""
    request = _read(EraseRequest, document)
    if unknown := [one for one in request.allowed if one not in METHODS]:
        raise DiskError("bad_request", f"methods.allowed: {unknown[0][:40]!r} is none of {', '.join(METHODS)}.")
    if not request.allowed:
        raise DiskError("bad_request", f"methods.allowed: the list is empty. The methods are {', '.join(METHODS)}.")
    if not 1 <= request.samples <= MOST_SAMPLES:
        raise DiskError("bad_request", f"samples: {request.samples} is not between 1 and {MOST_SAMPLES}.")
    if len(request.disks) > 1000:
        raise DiskError("bad_request", "disks: more than 1000 names.")
    return request


def write_request(document: Mapping[str, Any]) -> WriteRequest:
    """Read a request to write an image. Raises DiskError, which names the field."""
    fields = dict(document)
    if missing := [name for name in ("url", "sha256", "format") if name not in fields]:
        raise DiskError("bad_request", f"{missing[0]}: this field is missing.")
    seed = _seed(fields.pop("seed", ""))
    request = dataclasses.replace(_read(WriteRequest, fields), seed=seed)
    if not re.fullmatch(r"https?://[^\s/?#\\]+[^\s\\]*", request.url) or not request.url.isascii():
        raise DiskError("bad_request", "url: an address that begins with https:// or http:// is expected.")
    if "@" in request.url.split("/")[2]:
        raise DiskError("bad_request", "url: a user name or password in the address is not supported.")
    if len(request.url) > 4096:
        raise DiskError("bad_request", "url: it has more than 4096 characters.")
    if not re.fullmatch(r"[0-9a-fA-F]{64}", request.sha256):
        raise DiskError("bad_request", "sha256: 64 hexadecimal digits are expected.")
    if request.format not in FORMATS:
        raise DiskError("bad_request", f"format: {request.format[:40]!r} is none of {', '.join(FORMATS)}.")
    for name, size in (
        ("max_size_bytes", request.max_size_bytes), ("disk.min_size_bytes", request.disk.min_size_bytes),
        ("disk.max_size_bytes", request.disk.max_size_bytes),
    ):  # fmt: skip
        if size is not None and size <= 0:
            raise DiskError("bad_request", f"{name}: {size} is not a positive number of bytes.")
    return request


def _read(cls: type[T], document: Mapping[str, Any]) -> T:
    try:
        wire.measure(document, 5000)
        return wire.value(cls, document)
    except wire.Malformed as error:
        # Paths of fields begin with the name of the class, which means nothing to the sender.
        raise DiskError("bad_request", f"{str(error).removeprefix(cls.__name__.lower() + '.')[:300]}.") from None


def _seed(given: object) -> bytes:
    if not isinstance(given, str):
        raise DiskError("bad_request", "seed: a text in base64 is expected.")
    try:
        content = base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raise DiskError("bad_request", "seed: the text is not valid base64.") from None
    if content:
        _check_seed(content)
    return content


def _check_seed(content: bytes) -> None:
    """Raise DiskError unless this is an ISO image with the label that cloud-init looks for."""
    if len(content) > _MOST_SEED:
        raise DiskError("bad_request", f"seed: the image has more than {_MOST_SEED >> 20} MiB.")
    descriptor = content[_VOLUME : _VOLUME + 2048]
    if descriptor[:7] != b"\x01CD001\x01":
        raise DiskError("bad_request", "seed: the content is not an ISO 9660 image.")
    label = descriptor[40:72].decode("ascii", "replace").strip()
    if label.lower() != "cidata":
        raise DiskError("bad_request", f"seed: the label of the image is {label!r}; cloud-init looks for cidata.")
