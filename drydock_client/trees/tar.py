"""Streamed tar archives, read and written in parts and in bounded memory, also from untrusted sources.

`tarfile` is not used for reading, because it reads an extended header of any claimed length into memory.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from drydock_client.errors import InvalidRequest

BLOCK = 512
PART = 1 << 16
LONGEST_HEADER = 64 << 10
"""Maximum size of an extended header in bytes. A path has at most 4096."""
END = bytes(2 * BLOCK)

Read = Callable[[int], bytes]
"""Reads at most the given number of bytes; returns empty bytes at the end."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of an archive. `kind` is `file`, `directory`, `link` or `other`; `target` is a link's target."""

    path: str
    kind: str
    size: int = 0
    permissions: int = 0o644
    target: str = ""


_KINDS = {tarfile.REGTYPE: "file", tarfile.AREGTYPE: "file", tarfile.DIRTYPE: "directory", tarfile.SYMTYPE: "link"}
_TYPES = {
    "file": tarfile.REGTYPE, "directory": tarfile.DIRTYPE, "link": tarfile.SYMTYPE, "other": tarfile.FIFOTYPE
}  # fmt: skip


def header(entry: Entry) -> bytes:
    """Return the header blocks of an entry."""
    info = tarfile.TarInfo(entry.path)
    info.type, info.size, info.mode, info.linkname = _TYPES[entry.kind], entry.size, entry.permissions, entry.target
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def padding(size: int) -> bytes:
    """Return the zero bytes that fill the last block of content of this size."""
    return bytes(-size % BLOCK)


class Reader:
    """Reads the entries of an archive in order. Skips an entry's content that is not read before the next entry."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._left = 0
        self._pad = 0

    def entries(self) -> Iterator[Entry]:
        """Yield each entry. Raises InvalidRequest if the stream is not an archive or ends too early."""
        extended: dict[str, str] = {}
        while True:
            for _ in self.content():
                pass
            block = self._exactly(BLOCK)
            if not any(block):
                return
            info = self._parsed(block)
            if info.type in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
                extended |= self._extension(info)
            elif info.type == tarfile.XGLTYPE:
                self._short(info)
            else:
                yield self._entry(info, extended)
                extended = {}

    def content(self) -> Iterator[bytes]:
        """Yield the content of the current entry in parts."""
        while self._left:
            part = self._some(min(PART, self._left))
            self._left -= len(part)
            yield part
        if self._pad:
            pad, self._pad = self._pad, 0
            self._exactly(pad)

    def _parsed(self, block: bytes) -> tarfile.TarInfo:
        try:
            return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.TarError as error:
            raise InvalidRequest(f"This is not a tar archive: {error}.") from None

    def _entry(self, info: tarfile.TarInfo, extended: dict[str, str]) -> Entry:
        size = info.size if "size" not in extended else _number(extended["size"])
        if size < 0:
            raise InvalidRequest("An entry of the archive has a negative size.")
        kind = _KINDS.get(info.type, "other")
        self._left = size if kind in ("file", "other") else 0
        self._pad = -self._left % BLOCK
        return Entry(
            path=extended.get("path", info.name), kind=kind, size=self._left, permissions=info.mode & 0o777,
            target=extended.get("linkpath", info.linkname),
        )  # fmt: skip

    def _extension(self, info: tarfile.TarInfo) -> dict[str, str]:
        text = self._short(info).decode("utf-8", "surrogateescape")
        if info.type == tarfile.XHDTYPE:
            return dict(_records(text))
        return {"path" if info.type == tarfile.GNUTYPE_LONGNAME else "linkpath": text.rstrip("\0")}

    def _short(self, info: tarfile.TarInfo) -> bytes:
        if not 0 <= info.size <= LONGEST_HEADER:
            raise InvalidRequest("An extended header of the archive is too long.")
        return self._exactly(info.size + (-info.size % BLOCK))[: info.size]

    def _some(self, size: int) -> bytes:
        part = self._read(size)
        if not part:
            raise InvalidRequest("The archive ends too early.")
        return part

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            found += self._some(size - len(found))
        return bytes(found)


def _records(text: str) -> Iterator[tuple[str, str]]:
    """Yield the records `LENGTH KEY=VALUE` of a pax header."""
    content = text.encode("utf-8", "surrogateescape")
    while content.rstrip(b"\0"):
        length = _number(content.split(b" ", 1)[0].decode("ascii", "replace"))
        record, content = content[:length], content[length:]
        key, equal, value = record.partition(b" ")[2].partition(b"=")
        if length < 5 or not equal or not value.endswith(b"\n"):
            raise InvalidRequest("An extended header of the archive cannot be read.")
        yield key.decode("utf-8", "replace"), value[:-1].decode("utf-8", "surrogateescape")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidRequest("An extended header of the archive cannot be read.")
    return int(text)
