"""Steps that put image and bf.cfg as one file into a leased web root, under a path that cannot be guessed.

The web root is leased for the build only. Whatever happens, its lease ends with the build, and the web root is then
cleaned; the last step of the build removes the file before that. If the image is installed by rshim, or fetched by SCP,
the file is put on a leased host instead (`host`).
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import ClassVar, cast
from urllib.parse import urlsplit

import urllib3

from blueprints.amounts import Amounts
from blueprints.answers import Answer, Failed, Json, Need, NeededLease, Ready, Scope, Wait
from blueprints.bluefield import bfb
from blueprints.dpu.bluefield import host
from blueprints.dpu.bluefield.config import Config
from blueprints.dpu.bluefield.preparing import PATH, bf_cfg_of, by_scp
from blueprints.hostshell import NeedsOperator, told
from blueprints.specs import LeaseView, Spec
from drydock.core import clock
from interfaces.errors import PathMissing, Unreachable
from interfaces.filesystem import Filesystem

WEBROOT, WEBROOT_TYPE = "image", "webroot"
LARGEST = 16 << 30
"""Bytes of an image."""
_ROOM = 48
"""MiB of the web root beside the image, for the file system that limits its size, logs, and bf.cfg."""
_PART = 4 << 20
_HEAD = 4096
_MOST_DIGESTS = 64
_PRIVATE = 0o600
_PAUSE, _SHARE = 5.0, 0.5


class _NoImage(Exception):
    """The image cannot be downloaded. `passing` if another attempt may help."""

    def __init__(self, message: str, *, passing: bool) -> None:
        self.passing = passing
        super().__init__(message)


@told
def look_at_image(spec: Spec, memo: Json) -> Answer:
    """Read the first bytes of the image, and its size. Nothing is leased for a wrong address or another file."""
    config: Config = spec.config
    try:
        with _opened(config.image, 0, spec.deadline * _SHARE, most=_HEAD) as (response, size):
            head = response.read(_HEAD, decode_content=False)
        bfb.read_on(bfb.Reading(), head)
    except _NoImage as error:
        scope = Scope.STEP if error.passing else Scope.BLUEPRINT
        return Failed(scope=scope, code="no_image", message=str(error))
    except urllib3.exceptions.HTTPError as error:
        message = f"The image {config.image} cannot be downloaded: {_reason(error)}."
        return Failed(scope=Scope.STEP, code="no_image", message=message)
    except bfb.NotBfb as error:
        return _no_bfb(config, error)
    return Ready(facts={"image_bytes": size}, attributes={"image": config.image})


@told
def have_webroot(spec: Spec, memo: Json) -> Answer:
    """Lease the web root for this build."""
    config: Config = spec.config
    if host.lease_name(spec):
        return Ready()
    if WEBROOT not in spec.parents:
        mib = int(spec.resource.facts["image_bytes"]) >> 20
        size = Amounts(disk_mib=mib + mib // 12 + _ROOM)
        wanted = NeededLease(
            name=WEBROOT, type=WEBROOT_TYPE, requirements=dict(config.webroot), amounts=size, exclusive=True,
            lifetime="phase",
        )  # fmt: skip
        return Need(leases=(wanted,))
    if spec.parents[WEBROOT].facts.get("site", {}).get("listing"):
        raise NeedsOperator(
            "The web root lists the contents of its folders, so that anybody could find the image with its secrets.",
            hint="Set listing: false in the blueprint of the web root.",
        )
    return Ready()


@told
def publish(spec: Spec, memo: Json) -> Answer:
    """Copy the image into the web root, some MiB with each call, and append bf.cfg.

    The memo has how far the image was read. A worker that died may have written more, which is read again, but not
    written again.
    """
    config: Config = spec.config
    size, until = int(spec.resource.facts["image_bytes"]), clock.monotonic() + spec.deadline * _SHARE
    target = _Target(spec)
    at, reading = int(memo.get("at", 0)), bfb.Reading.stored(memo.get("reading", {}))
    digest = _Digest.of(spec) if config.sha256 else None
    if digest is not None:
        at, reading = digest.at, digest.reading
    if not memo or not at <= target.size() <= size + len(target.tail):
        target.begin()
        at, reading = 0, bfb.Reading()
        digest = digest and digest.anew()
    try:
        if at < size:
            with _opened(config.image, at, spec.deadline * _SHARE) as (response, total):
                if total != size:
                    message = f"The image {config.image} has changed while it was downloaded."
                    return Failed(scope=Scope.OFFER, code="image_changed", message=message)
                while at < size and (part := response.read(_PART, decode_content=False)):
                    reading = bfb.read_on(reading, part)
                    target.write(at, part)
                    at += len(part)
                    if digest is not None:
                        digest.read_on(part, reading)
                    if clock.monotonic() >= until:
                        break
        if at == size:
            bfb.check_whole(reading)
            if digest is not None and digest.end() != config.sha256.lower():
                return _wrong_digest(config)
    except _NoImage as error:
        if not error.passing:
            return Failed(scope=Scope.BLUEPRINT, code="no_image", message=str(error))
        return Wait(after=_PAUSE, memo=_memo(at, reading), sentence=str(error))
    except urllib3.exceptions.HTTPError as error:
        sentence = f"The download of {config.image} was interrupted: {_reason(error)}."
        return Wait(after=_PAUSE, memo=_memo(at, reading), sentence=sentence)
    except bfb.NotBfb as error:
        return _no_bfb(config, error)
    if at < size:
        return Wait(
            after=0.0, memo=_memo(at, reading), percent=int(10 * at / size), sentence="The image is being published."
        )
    target.write(size, target.tail)
    if target.size() != size + len(target.tail):
        return Failed(scope=Scope.OFFER, code="not_published", message="The published file has another size.")
    return Ready(log=f"published image and bf.cfg, {size + len(target.tail)} bytes")


@told
def unpublish(spec: Spec, memo: Json) -> Answer:
    """Remove the file, and the key of a BMC that fetches by SCP. The rest is cleaned when the lease ends."""
    if is_served(spec) and PATH in spec.resource.secrets:
        if by_scp(spec):
            host.account_on(spec).closed()
        with contextlib.suppress(PathMissing):
            _files(spec).remove(spec.resource.secrets[PATH])
    return Ready()


def is_served(spec: Spec) -> bool:
    """Return whether the lease on the web root or the host that has the image still exists."""
    return (host.lease_name(spec) or WEBROOT) in spec.parents


def webroot_of(spec: Spec) -> LeaseView:
    """Return the lease on the web root. Raises Unreachable if it is gone."""
    if WEBROOT not in spec.parents:
        raise Unreachable("The lease on the web root is gone.")
    return spec.parents[WEBROOT]


def _files(spec: Spec) -> Filesystem:
    return host.files_on(spec) if host.lease_name(spec) else files_of(webroot_of(spec))


def files_of(lease: LeaseView) -> Filesystem:
    """Return the files of the web root."""
    return cast(Filesystem, lease.interface("filesystem"))


def address_of(spec: Spec) -> tuple[str, str]:
    """Return the protocol by which the file is served, and its address without a scheme."""
    uri = urlsplit(str(webroot_of(spec).facts["uri"]).rstrip("/"))
    return uri.scheme.upper(), f"{uri.netloc}{uri.path}/{spec.resource.secrets[PATH]}"


class _Target:
    """The published file. Only the account that serves it may read it."""

    def __init__(self, spec: Spec) -> None:
        self._files, self._path = _files(spec), spec.resource.secrets[PATH]
        self.tail = bf_cfg_of(spec)

    def begin(self) -> None:
        self._files.write_bytes(self._path, b"", permissions=_PRIVATE)

    def size(self) -> int:
        try:
            return self._files.stat(self._path).size
        except PathMissing:
            return 0

    def write(self, at: int, part: bytes) -> None:
        """Write the part of the file that begins at a byte, as far as it is not there yet."""
        there = self.size() - at
        if there < len(part):
            self._files.append(self._path, part[max(there, 0) :])


class _Digest:
    """The SHA-256 of the image up to some byte, and how far it was read with it.

    It cannot be stored in a memo. A worker that does not have it reads the image from the beginning, without writing
    what is there. So every worker comes to an end, whichever of them makes the calls.
    """

    _known: ClassVar[OrderedDict[str, _Digest]] = OrderedDict()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, key: str) -> None:
        self._key = key
        self.at, self.reading, self._hash = 0, bfb.Reading(), hashlib.sha256()

    @classmethod
    def of(cls, spec: Spec) -> _Digest:
        """Return the digest of the image of a DPU, as far as this process has read it."""
        key = f"{spec.resource.key} {spec.config.image}"
        with cls._lock:
            found = cls._known.get(key)
        return found or cls(key).anew()

    def anew(self) -> _Digest:
        """Return the digest of nothing, in place of this one."""
        made = _Digest(self._key)
        with self._lock:
            self._known[self._key] = made
            while len(self._known) > _MOST_DIGESTS:
                self._known.popitem(last=False)
        return made

    def read_on(self, part: bytes, reading: bfb.Reading) -> None:
        """Read the next bytes."""
        self._hash.update(part)
        self.at, self.reading = self.at + len(part), reading

    def end(self) -> str:
        """Return the digest of the whole image."""
        with self._lock:
            self._known.pop(self._key, None)
        return self._hash.hexdigest()


def _wrong_digest(config: Config) -> Failed:
    message = f"The file {config.image} does not have the SHA-256 {config.sha256.lower()}. Correct `image` or `sha256`."
    return Failed(scope=Scope.BLUEPRINT, code="image_digest", message=message)


def _memo(at: int, reading: bfb.Reading) -> Json:
    return {"at": at, "reading": reading.to_json()}


def _no_bfb(config: Config, error: bfb.NotBfb) -> Failed:
    message = f"The file {config.image} is not a BFB image that can be installed: {error}."
    return Failed(scope=Scope.BLUEPRINT, code="no_bfb", message=message)


@contextlib.contextmanager
def _opened(
    url: str, at: int, seconds: float, *, most: int | None = None
) -> Iterator[tuple[urllib3.BaseHTTPResponse, int]]:
    """Open the image at a byte. Yields the response and the size of the whole file. Raises _NoImage, HTTPError."""
    timeout = urllib3.Timeout(connect=min(5.0, seconds), read=seconds)
    wanted = f"bytes={at}-" if most is None else f"bytes={at}-{at + most - 1}"
    with urllib3.PoolManager(timeout=timeout, retries=urllib3.Retry(0, redirect=3)) as pool:
        response = pool.request("GET", url, headers={"Range": wanted}, preload_content=False)
        try:
            yield response, _size(url, at, response)
        finally:
            response.close()


def _size(url: str, at: int, response: urllib3.BaseHTTPResponse) -> int:
    if response.status not in (200, 206):
        message = f"The server of the image {url} answered {response.status}."
        raise _NoImage(message, passing=response.status >= 500 or response.status == 429)
    whole = response.status == 200
    if whole and at:
        message = f"The server of the image {url} cannot send parts of it, as it knows no ranges."
        raise _NoImage(message, passing=False)
    said = response.headers.get("Content-Length" if whole else "Content-Range", "").rpartition("/")[2]
    if not said.isdecimal() or len(said) > 15:
        raise _NoImage(f"The server of the image {url} does not say how large it is.", passing=False)
    if not 0 < int(said) <= LARGEST:
        raise _NoImage(f"The image {url} has {said} bytes; at most {LARGEST} are allowed.", passing=False)
    return int(said)


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", None) or error
    return f"{type(cause).__name__}: {str(cause).rpartition(': ')[2]}"[:200]
