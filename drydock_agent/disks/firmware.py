"""Remove what a tenant leaves outside of the disks: boot entries of the firmware, and keys in the TPM."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from drydock_agent.disks.errors import DiskError
from drydock_agent.disks.machine import Machine

CLEARED, ABSENT = "cleared", "absent"
_VARIABLES = "sys/firmware/efi/efivars"
_ENTRY = re.compile(r"\A(Boot|Driver|SysPrep)([0-9A-Fa-f]{4})-8be4df61-93ca-11d2-aa0d-00e098032b8c\Z")
"""Variables with programs that the firmware starts: UEFI 2.10, section 3.3. The kernel adds the GUID to their names."""
_OPTIONS: dict[str, tuple[str, ...]] = {"Boot": (), "Driver": ("--driver",), "SysPrep": ("--sysprep",)}
"""Options with which efibootmgr works on entries of this kind."""
_PARTITION, _URI = (4, 1), (3, 24)
"""Type and subtype of nodes of device paths: UEFI 2.10, sections 10.3.5.1 and 10.3.4.23."""
_LARGEST = 1 << 16
_TPM = "sys/class/tpm/tpm0"


class _Entry(NamedTuple):
    """An entry of the firmware that starts from a partition, or from an address."""

    kind: str
    number: str
    name: str

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind.removeprefix("Boot"), self.number, self.name)))


def remove_boot_entries(machine: Machine) -> tuple[list[str], str]:
    """Remove the entries that start from a partition or from an address (URI) that somebody has chosen.

    Return their names, and why that failed or nothing. Entries for PXE, media and the firmware's own programs stay.
    The entries are read from the variables themselves: in the text that efibootmgr prints, a name with a line break
    could hide an entry.
    """
    if not (machine.root / _VARIABLES).is_dir():
        return [], ""
    removed: list[str] = []
    try:
        for one in _entries(machine):
            options = (*_OPTIONS[one.kind], "--quiet", "--bootnum", one.number, "--delete-bootnum")
            done = machine.run("efibootmgr", *options)
            if not done.ok:
                raise DiskError("firmware", f"The boot entry {one} was not removed: {done.reason}")
            removed.append(str(one))
        if left := list(_entries(machine)):
            raise DiskError("firmware", f"The boot entry {left[0]} was removed, but is still there.")
    except DiskError as error:
        return removed, error.message
    return removed, ""


def _entries(machine: Machine) -> Iterator[_Entry]:
    """Yield the entries to remove. Raises DiskError if the variables cannot be read."""
    names = machine.names(_VARIABLES)
    if not names:
        raise DiskError("firmware", "The variables of the firmware cannot be read: efivarfs is not mounted.")
    for variable in names:
        if (match := _ENTRY.match(variable)) is None:
            continue
        try:
            with open(machine.root / _VARIABLES / variable, "rb") as opened:
                name, path = _parsed(opened.read(_LARGEST))
        except OSError as error:
            raise DiskError("firmware", f"The variable {variable[:12]} cannot be read: {error.strerror}.") from None
        if _is_chosen(path):
            yield _Entry(match[1], match[2], name)


def _parsed(content: bytes) -> tuple[str, bytes]:
    """Return name and device path of an entry (EFI_LOAD_OPTION), which follows four bytes of the kernel's."""
    end = 10
    while content[end : end + 2] not in (b"\0\0", b""):
        end += 2
    name = content[10:end].decode("utf-16-le", "replace")
    length = int.from_bytes(content[8:10], "little")
    path = content[end + 2 : end + 2 + length]
    shown = "".join(one if one.isprintable() else " " for one in name)[:80].strip()
    return shown, path if len(path) == length else b"\0"


def _is_chosen(path: bytes) -> bool:
    """Return whether a device path has a partition or the address of a server. One that cannot be read counts too."""
    at = 0
    while at < len(path):
        size = int.from_bytes(path[at + 2 : at + 4], "little")
        if size < 4 or at + size > len(path):
            return True
        node = (path[at], path[at + 1])
        if node == _PARTITION or (node == _URI and size > 4):
            return True
        at += size
    return False


def clear_tpm(machine: Machine) -> str:
    """Clear the TPM. Return `cleared`, `absent`, or `failed: ` and why."""
    if not (machine.root / _TPM).exists():
        return ABSENT
    if machine.text(f"{_TPM}/tpm_version_major") == "1":
        return "failed: a TPM 1.2 can only be cleared in the setup of the firmware"
    reason = ""
    # The owner of the machine has the lockout authorization, unless a tenant set a password for it. The platform
    # authorization usually ends with the firmware's part of the boot.
    for hierarchy in ("l", "p"):
        try:
            done = machine.run("tpm2_clear", "-c", hierarchy)
        except DiskError as error:
            return f"failed: {error.message}"
        if done.ok:
            return CLEARED
        reason = reason or done.reason
    return f"failed: {reason}"
