"""BFB images: the boot stream of a BlueField. Pure functions over its bytes, part by part.

A BFB is a row of components. Each has a header of 24 bytes with its length and the CRC-32 of the component and its
padding to a multiple of 8 bytes (https://github.com/Mellanox/bfscripts, `mlx-mkbfb`). Whatever follows the last
component, such as bf.cfg, has no header.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import asdict, dataclass, replace

from blueprints.answers import Json

MAGIC = b"Bf\x02\x13"
_HEADER = struct.Struct("<4sBBBBIIQ")
LENGTH = _HEADER.size
_MAJOR, _WORDS = 1, LENGTH // 8


class NotBfb(ValueError):
    """The bytes are no BFB, or a damaged one. The text says why."""


@dataclass(frozen=True)
class Reading:
    """A BFB that has been read up to some byte. It can be stored as JSON between two parts."""

    head: str = ""
    """The bytes of an incomplete header, as hexadecimal digits."""
    left: int = 0
    """Bytes of the present component that have not been read."""
    crc: int = 0
    expected: int = 0
    components: int = 0
    ended: bool = False
    """Whether the last component has been read. What follows is not checked."""

    @classmethod
    def stored(cls, found: Json) -> Reading:
        """Return a reading that was stored."""
        return cls(**found)

    def to_json(self) -> Json:
        """Return the reading in the form that is stored."""
        return asdict(self)


def read_on(reading: Reading, part: bytes) -> Reading:
    """Read the next bytes of an image. Raises NotBfb."""
    at = 0
    while at < len(part) and not reading.ended:
        if reading.left:
            piece = part[at : at + reading.left]
            at += len(piece)
            reading = _within(reading, piece)
        else:
            missing = LENGTH - len(reading.head) // 2
            piece = part[at : at + missing]
            at += len(piece)
            reading = _header(reading, bytes.fromhex(reading.head) + piece)
    return reading


def check_whole(reading: Reading) -> None:
    """Check that an image that ends here is whole. Raises NotBfb."""
    if not reading.components:
        raise NotBfb("it is empty or too short")
    if reading.left or (reading.head and not reading.ended):
        raise NotBfb(f"it ends within component {reading.components}, so a part of it is missing")


def _within(reading: Reading, piece: bytes) -> Reading:
    crc, left = zlib.crc32(piece, reading.crc), reading.left - len(piece)
    if not left and crc != reading.expected:
        raise NotBfb(f"the checksum of component {reading.components} is wrong, so it is damaged")
    return replace(reading, crc=crc, left=left)


def _header(reading: Reading, head: bytes) -> Reading:
    begin = head[: len(MAGIC)]
    if begin != MAGIC[: len(begin)]:
        if not reading.components:
            raise NotBfb("it does not begin with the magic number of a BFB")
        return replace(reading, head="", ended=True)
    if len(head) < LENGTH:
        return replace(reading, head=head.hex())
    _, version, _, sizes, _, length, crc, _ = _HEADER.unpack(head)
    if version & 0xF != _MAJOR or sizes >> 4 != _WORDS:
        raise NotBfb(f"component {reading.components + 1} has an unknown version of the format")
    if not length:
        raise NotBfb(f"component {reading.components + 1} is empty")
    return Reading(left=(length + 7) & ~7, expected=crc, components=reading.components + 1)


def component(id: int, content: bytes) -> bytes:
    """Return a component with its header."""
    padded = content + bytes(-len(content) % 8)
    return _HEADER.pack(MAGIC, _MAJOR | 2 << 4, 0, _WORDS << 4, id, len(content), zlib.crc32(padded), 0) + padded
