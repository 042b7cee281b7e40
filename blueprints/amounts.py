"""Amounts of capacity: four classes that every machine has, and others by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CLASSES = ("slots", "cpu_millicores", "ram_mib", "disk_mib")


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """Amounts of capacity that a lease takes from a resource, or that a resource has in total.

    1000 cpu_millicores are one vCPU.
    """

    slots: int = 1
    cpu_millicores: int = 0
    ram_mib: int = 0
    disk_mib: int = 0
    extra: Mapping[str, int] = field(default_factory=dict)

    def fits_in(self, total: Amounts) -> bool:
        """Return whether an empty resource with `total` could hold these amounts."""
        return not self.shortage(total)

    def shortage(self, total: Amounts) -> dict[str, tuple[int, int]]:
        """Return a mapping from each capacity class of which `total` has too little to (requested, available)."""
        asked = {name: getattr(self, name) for name in CLASSES} | dict(self.extra)
        there = {name: getattr(total, name) for name in CLASSES} | dict(total.extra)
        return {name: (n, there.get(name, 0)) for name, n in asked.items() if n > there.get(name, 0)}


def amount(name: str, number: int, *, bare: bool = False) -> str:
    """Format an amount of a resource class in the units that people use: `2 vCPUs`, `4 GiB of RAM`.

    If `bare` is true, leave out the noun: `2`, `4 GiB`.
    """
    if name == "cpu_millicores":
        return f"{number / 1000:g}" if bare else f"{number / 1000:g} vCPU{'' if number == 1000 else 's'}"
    if name in ("ram_mib", "disk_mib"):
        size = f"{number / 1024:g} GiB" if number >= 1024 else f"{number} MiB"
        return size if bare else f"{size} of {'RAM' if name == 'ram_mib' else 'disk'}"
    noun = {"leases": "lease", "slots": "slot"}.get(name, name)
    plural = "" if number == 1 or noun == name else "s"
    return str(number) if bare else f"{number} {noun}{plural}"


def shortfall(short: Mapping[str, tuple[int, int]]) -> str:
    """Return a clause about the first class in `short`, or an empty string if `short` is empty.

    `short` is the result of `Amounts.shortage`.
    """
    for name, (asked, there) in short.items():
        return f"{amount(name, asked)} requested; at most {amount(name, there, bare=True)} available"
    return ""
