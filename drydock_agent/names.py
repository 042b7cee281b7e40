"""Names of vendors and devices, from the system's pci.ids file, which is read at first use."""

from __future__ import annotations

import functools
import re

FILES = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids", "/usr/share/pci.ids")

_MOST = 16 << 20


class PciNames:
    """The names in the text of a pci.ids file."""

    def __init__(self, text: str) -> None:
        self._text = "\n" + text

    def vendor(self, vendor: str) -> str:
        """Return the name of a vendor, or an empty string if it is unknown."""
        return self._section(vendor)[0]

    def device(self, vendor: str, device: str) -> str:
        """Return the name of a device, or an empty string if it is unknown."""
        return self._device(vendor, device)[0]

    def subsystem(self, vendor: str, device: str, subsystem: tuple[str, str]) -> str:
        """Return the name of a board by the ids of its device and subsystem, or an empty string if it is unknown."""
        return self._boards(vendor, device).get(" ".join(subsystem), "")

    @functools.lru_cache(maxsize=4096)  # noqa: B019  (one object lives as long as the process)
    def all(self, vendor: str, device: str, subsystem: tuple[str, str]) -> dict[str, str]:
        """Return the names of the vendor, the device and the board that are known, by the fields of a device."""
        names = self.vendor(vendor), self.device(vendor, device), self.subsystem(vendor, device, subsystem)
        fields = ("vendor_name", "device_name", "subsystem_name")
        return {field: name for field, name in zip(fields, names, strict=True) if name}

    @functools.lru_cache(maxsize=4096)  # noqa: B019
    def _device(self, vendor: str, device: str) -> tuple[str, int]:
        """Return the name of a device, and where its line ends in the section of its vendor, or -1."""
        section = self._section(vendor)[1]
        # Not a regular expression: a section has up to 300 kB, and a machine has a hundred functions of one vendor.
        begin = section.find(f"\n\t{device}  ") if len(device) == 4 else -1
        if begin < 0:
            return "", -1
        end = section.find("\n", begin + 1)
        return section[begin + 8 : end if end >= 0 else None].strip(), end

    @functools.lru_cache(maxsize=4096)  # noqa: B019
    def _boards(self, vendor: str, device: str) -> dict[str, str]:
        """Return the names of the boards with a device, by the ids of their subsystems."""
        section, end = self._section(vendor)[1], self._device(vendor, device)[1]
        found: dict[str, str] = {}
        # The lines with two tabs, and comments among them, up to the next device.
        while end >= 0 and section.startswith(("\t\t", "#"), end + 1):
            begin, end = end + 1, section.find("\n", end + 1)
            line = section[begin : end if end >= 0 else None]
            if line[0] == "\t":
                found.setdefault(line[2:11], line[13:].strip())
        return found

    @functools.lru_cache(maxsize=256)  # noqa: B019
    def _section(self, vendor: str) -> tuple[str, str]:
        """Return the name of a vendor, and the lines of its devices, each after a line feed."""
        begin = self._text.find(f"\n{vendor}  ") if len(vendor) == 4 else -1
        if begin < 0:
            return "", ""
        line = self._text.find("\n", begin + 1)
        end = re.compile(r"^[0-9a-fC]", re.MULTILINE).search(self._text, line + 1)
        return self._text[begin + 7 : line].strip(), self._text[line : end.start() if end else None]


@functools.lru_cache(maxsize=1)
def system_names() -> PciNames:
    """Return the names in this system's pci.ids file, or none if it has no such file."""
    for path in FILES:
        try:
            with open(path, encoding="utf-8", errors="replace") as opened:
                return PciNames(opened.read(_MOST))
        except OSError:
            continue
    return PciNames("")
