"""Partition tables of a disk: which one there is, the backup of a GPT, and the partition of the seed."""

from __future__ import annotations

import dataclasses
import json
import struct

from drydock_agent.disks.blocks import Blocks
from drydock_agent.disks.errors import DiskError
from drydock_agent.disks.machine import Machine

_ALIGNMENT = 1 << 20
_GPT = b"EFI PART"
_SECTORS = (512, 4096)
_TYPES = {"gpt": "0FC63DAF-8483-4772-8E79-3D69D8477DE4", "dos": "83"}
"""The type of a partition with a Linux file system."""
_LAST_OF_DOS = (1 << 32) - 1
RESERVED = 2 << 20
"""Bytes that a GPT and the alignment of the seed's partition need at most."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """The partition table at the start of a disk or an image."""

    label: str = ""
    """`gpt`, `dos`, or empty if there is none."""
    sector: int = 512
    """The size of sectors that a GPT was made for."""


def layout(head: bytes) -> Layout:
    """Return the partition table that the first bytes of a disk have, of which 8192 are needed."""
    for sector in _SECTORS:
        if head[sector : sector + 8] == _GPT:
            return Layout(label="gpt", sector=sector)
    has_boot_sector = head[510:512] == b"\x55\xaa"
    # A file system without partitions, such as FAT, has the same signature. Its entries make no sense then.
    entries = [head[at : at + 16] for at in range(446, 510, 16)]
    used = [one for one in entries if one[4]]
    if has_boot_sector and used and all(one[0] in (0, 0x80) and struct.unpack("<I", one[12:])[0] for one in used):
        return Layout(label="dos")
    return Layout()


def table_of(blocks: Blocks) -> str:
    """Return which partition table, or backup of one, a disk has; empty if none."""
    found = layout(blocks.read(0, 8192)).label
    for sector in _SECTORS:
        if blocks.read(blocks.size - sector, sector)[:8] == _GPT:
            return found or "backup of a gpt"
    return found


def fix(machine: Machine, name: str, label: str) -> None:
    """Move the backup of a GPT to the end of the disk. Raises DiskError."""
    if label == "gpt":
        _sfdisk(machine, name, "--relocate", "gpt-bak-std")


def add(machine: Machine, name: str, blocks: Blocks, content: bytes) -> None:
    """Write the seed into a new partition, the last one on the disk, and read it back. Raises DiskError."""
    start = _append(machine, name, blocks, len(content))
    blocks.write(start, content)
    blocks.sync()
    for offset in range(0, len(content), 1 << 20):
        piece = content[offset : offset + (1 << 20)]
        if blocks.read(start + offset, len(piece)) != piece:
            raise DiskError("verification", f"{name} does not hold the seed that was written to it.")


def _append(machine: Machine, name: str, blocks: Blocks, length: int) -> int:
    """Add a partition at the end of the disk. Return the byte at which it starts."""
    table = _table(machine, name)
    label, sector = str(table["label"]), int(table.get("sectorsize", 512))
    end = int(table["lastlba"]) + 1 if label == "gpt" else min(blocks.size // sector, _LAST_OF_DOS)
    taken = max((int(one["start"]) + int(one["size"]) for one in table.get("partitions", ())), default=0)
    step = _ALIGNMENT // sector
    size = -(-length // _ALIGNMENT) * step
    start = (end - size) // step * step
    if start < taken:
        raise DiskError("too_large", f"{name} has no room for the seed behind the partitions of the image.")
    named = ', name="cidata"' if label == "gpt" else ""
    line = f"start={start}, size={size}, type={_TYPES[label]}{named}\n"
    _sfdisk(machine, name, "--append", given=line.encode())
    starts = [int(one["start"]) for one in _table(machine, name).get("partitions", ())]
    count = len(starts)
    if start not in starts:
        raise DiskError(
            "partitions", f"The partition table of the image has no place for the seed: it has {count} partitions."
        )
    return start * sector


def _table(machine: Machine, name: str) -> dict:  # type: ignore[type-arg]
    done = machine.run("sfdisk", "--json", str(machine.node(name)))
    try:
        table = json.loads(done.text)["partitiontable"]
        if table["label"] in _TYPES:
            return dict(table)
    except (ValueError, KeyError, TypeError):
        pass
    raise DiskError("partitions", f"sfdisk cannot read the partition table of {name}: {done.reason}.")


def _sfdisk(machine: Machine, name: str, *options: str, given: bytes = b"") -> None:
    # The kernel reads the table later, because a claim of ours would make it refuse now.
    argv = ("sfdisk", "--no-reread", "--no-tell-kernel", "--quiet", *options, str(machine.node(name)))
    done = machine.run(*argv, seconds=300, given=given)
    if not done.ok:
        raise DiskError("partitions", f"sfdisk failed on {name}: {done.reason}.")
