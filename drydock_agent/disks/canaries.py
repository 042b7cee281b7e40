"""The proof of an erasure: blocks that are written before and must be gone after it, and samples that must be empty."""

from __future__ import annotations

import hashlib
import secrets

from drydock_agent.disks.blocks import CHUNK, Blocks, Report
from drydock_agent.disks.errors import DiskError
from drydock_agent.disks.partitions import table_of

BLOCK, SAMPLE, EDGE = 4096, 65_536, 1 << 20
"""Bytes of a canary, of a sample, and of what is always looked at on both ends of a disk."""
MOST_SAMPLES = 100_000


class Canaries:
    """Random blocks at the start, at the end and at random offsets of a disk. They are the same only here."""

    def __init__(self, size: int, count: int) -> None:
        if size < 2 * EDGE:
            raise DiskError("disk", f"The disk has only {size} bytes; at least {2 * EDGE} are needed.")
        self._key = secrets.token_bytes(32)
        end = size - BLOCK  # not aligned on disks with an odd number of sectors, so another one could overlap it
        self.offsets = (*sorted({0, *(one for one in _scattered(size, BLOCK, count) if one + BLOCK <= end)}), end)

    def plant(self, blocks: Blocks) -> None:
        """Write the canaries, and read them back. Raises DiskError if the disk does not keep them."""
        for offset in self.offsets:
            blocks.write(offset, self._content(offset))
        blocks.sync()
        if lost := [offset for offset in self.offsets if blocks.read(offset, BLOCK) != self._content(offset)]:
            raise DiskError(
                "disk",
                f"{blocks.name} does not keep what is written to it ({len(lost)} of {len(self.offsets)} blocks, the "
                f"first at byte {lost[0]}), so that no erasure can be proven. Replace it.",
            )

    def check(self, blocks: Blocks) -> None:
        """Raise DiskError if a canary is still on the disk."""
        if left := [offset for offset in self.offsets if blocks.read(offset, BLOCK) == self._content(offset)]:
            raise DiskError(
                "verification",
                f"{len(left)} of {len(self.offsets)} blocks that were written before are still there, the first at "
                f"byte {left[0]}.",
            )

    def _content(self, offset: int) -> bytes:
        return hashlib.shake_256(self._key + offset.to_bytes(8, "big")).digest(BLOCK)


def check_samples(blocks: Blocks, count: int, *, patterned: bool, report: Report) -> None:
    """Read both ends and random places of a disk. Raises DiskError if one of them is not empty.

    Empty means all zeros or all ones. A `patterned` disk may have another sector instead, the same everywhere.
    """
    places = [(0, EDGE), (blocks.size - EDGE, EDGE)]
    places += [(offset, SAMPLE) for offset in _scattered(blocks.size, SAMPLE, count)]
    patterns: set[bytes] = set()
    for number, (offset, length) in enumerate(places, 1):
        content = blocks.read(offset, length)
        pattern = content[:512]
        if content != pattern * (length // 512):
            raise DiskError("verification", f"The disk is not empty at byte {offset}.")
        patterns.add(pattern)
        report(100 * number / len(places))
    if not patterned and (bad := [one for one in patterns if one not in (bytes(512), b"\xff" * 512)]):
        raise DiskError("verification", f"The disk holds a pattern instead of zeros, such as {bad[0][:8].hex()}.")
    if patterned and len(patterns) > 1:
        raise DiskError("verification", "The disk holds different patterns in different places.")


def check_all(blocks: Blocks, report: Report) -> None:
    """Read the whole disk. Raises DiskError if a byte of it is not zero."""
    zeros = bytes(CHUNK)
    for offset, length in blocks.spans():
        if blocks.read(offset, length) != zeros[:length]:
            raise DiskError("verification", f"The disk is not empty between the bytes {offset} and {offset + length}.")
        report(100 * (offset + length) / blocks.size)


def check_table(blocks: Blocks) -> None:
    """Raise DiskError if a partition table is left, also a backup at the end of the disk."""
    if table := table_of(blocks):
        raise DiskError("verification", f"A partition table ({table}) is still on the disk.")


def _scattered(size: int, length: int, count: int) -> list[int]:
    """Return random offsets, one in each of `count` equal parts of the disk."""
    part = size // max(1, count)
    found = []
    for number in range(count):
        at = number * part + secrets.randbelow(max(1, part))
        found.append(max(0, min(at, size - length)) // BLOCK * BLOCK)
    return found
