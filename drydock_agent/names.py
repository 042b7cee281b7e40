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
        match = re.search(rf"^\t{re.escape(device)}  (.+)$", self._section(vendor)[1], re.MULTILINE) if device else None
        return match[1].strip() if match else ""

    def subsystem(self, vendor: str, device: str, subsystem: tuple[str, str]) -> str:
        """Return the name of a board by the ids of its device and subsystem, or an empty string if it is unknown."""
        section = self._section(vendor)[1]
        start = re.search(rf"^\t{re.escape(device)}  .*$", section, re.MULTILINE) if device else None
        if start is None:
            return ""
        # The lines with two tabs up to the next device.
        for line in section[start.end() + 1 :].split("\n"):
            if not line.startswith("\t\t"):
                break
            if line.startswith(f"\t\t{subsystem[0]} {subsystem[1]}  "):
                return line[13:].strip()
        return ""

    @functools.lru_cache(maxsize=256)  # noqa: B019  (one object lives as long as the process)
    def _section(self, vendor: str) -> tuple[str, str]:
        """Return the name of a vendor and the lines of its devices."""
        begin = self._text.find(f"\n{vendor}  ") if len(vendor) == 4 else -1
        if begin < 0:
            return "", ""
        line = self._text.find("\n", begin + 1)
        end = re.compile(r"^[0-9a-fC]", re.MULTILINE).search(self._text, line + 1)
        return self._text[begin + 7 : line].strip(), self._text[line + 1 : end.start() if end else None]


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
