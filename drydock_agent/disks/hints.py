"""Which disk an image is written to: the root device hints, with the operators of Ironic."""

from __future__ import annotations

import re

from drydock_agent.disks.errors import DiskError
from drydock_agent.disks.inventory import Disk
from drydock_agent.disks.requests import Hints

GIB = 1 << 30
SMALLEST = 4 * GIB
"""Without any hint, disks smaller than this are not considered, as by Ironic."""
_TEXTS = ("name", "serial", "wwn", "model", "vendor", "hctl", "tran")
_NUMBERS = {
    "<=": lambda found, wanted: found <= wanted, ">=": lambda found, wanted: found >= wanted,
    "==": lambda found, wanted: found == wanted, "!=": lambda found, wanted: found != wanted,
    "<": lambda found, wanted: found < wanted, ">": lambda found, wanted: found > wanted,
    "=": lambda found, wanted: found >= wanted,
}  # fmt: skip
"""The operators of numbers. As in Ironic, a single = means at least."""


def select(found: list[Disk], hints: Hints) -> Disk:
    """Return the smallest disk that meets all hints. Raises DiskError, which says why each disk does not."""
    reasons = {one.name: _mismatch(one, hints) for one in found}
    fitting = [one for one in found if not reasons[one.name]]
    usable = [one for one in fitting if not one.problem]
    if usable:
        return min(usable, key=lambda one: one.size_bytes)
    for one in fitting:
        one.check()
    listed = " ".join(f"{name}: {reason}." for name, reason in reasons.items()) or "The machine has no disk."
    raise DiskError("no_disk", f"No disk meets the hints. {listed[:2000]}")


def _mismatch(disk: Disk, hints: Hints) -> str:
    """Return why a disk does not meet the hints, or an empty string."""
    if disk.removable and not hints.name:
        return "it is removable, and only used if the hint name is given"
    for field in _TEXTS:
        wanted = getattr(hints, field)
        shown = disk.path if field == "name" else disk.transport if field == "tran" else getattr(disk, field)
        if wanted and not _is_text(field, shown, wanted):
            return f"its {field} is {shown!r}, and not {wanted[:100]!r}"
    if hints.size is not None and not _is_size(disk.size_bytes, hints.size):
        return f"its size is {disk.size_bytes / GIB:.1f} GiB, and not {str(hints.size)[:40]!r}"
    if hints.rotational is not None and disk.rotational != hints.rotational:
        return "it is rotational" if disk.rotational else "it is not rotational"
    least = hints.min_size_bytes or (SMALLEST if hints == Hints() else 0)
    if disk.size_bytes < least:
        return f"it has {disk.size_bytes} bytes, and at least {least} are needed"
    if hints.max_size_bytes and disk.size_bytes > hints.max_size_bytes:
        return f"it has {disk.size_bytes} bytes, and at most {hints.max_size_bytes} are allowed"
    return ""


def _is_text(field: str, found: str, wanted: str) -> bool:
    """Compare texts without regard to case. Operators: s==, s!=, <in>, <all-in>, and <or> between alternatives."""
    found, wanted = found.strip().lower(), wanted.strip().lower()
    if not found:
        return False
    if wanted.startswith(("<in>", "<all-in>")):
        return all(one.strip() in found for one in re.split(r"<(?:all-)?in>", wanted) if one.strip())
    if wanted.startswith("<or>"):
        return any(_is_same(field, found, one.strip()) for one in wanted.split("<or>") if one.strip())
    if wanted.startswith("s!="):
        return not _is_same(field, found, wanted[3:].strip())
    return _is_same(field, found, wanted.removeprefix("s==").strip())


def _is_same(field: str, found: str, wanted: str) -> bool:
    if field == "name":
        return found.removeprefix("/dev/") == wanted.removeprefix("/dev/")
    if field == "wwn":
        return _bare(found) == _bare(wanted)
    return found == wanted


def _bare(wwn: str) -> str:
    """Return a WWN without the prefix that says what it is, since tools differ in it."""
    return re.sub(r"\A(?:0x|naa\.|eui\.|uuid\.)", "", wwn)


def _is_size(found: int, wanted: int | str) -> bool:
    """Compare a size with a number of GiB, or with an expression such as `>= 100`."""
    text = str(wanted).strip()
    if re.fullmatch(r"\d{1,9}", text):
        return found // GIB == int(text)
    match = re.fullmatch(r"(<=|>=|==|!=|<|>|=)\s*(\d{1,9})", text)
    if not match:
        raise DiskError(
            "bad_request", f"disk.size: {text[:40]!r} is neither a number of GiB nor one after <, <=, ==, !=, >= or >."
        )
    return bool(_NUMBERS[match[1]](found / GIB, int(match[2])))
