"""Errors that the NVIDIA driver writes to the kernel log: Xids.

The log needs root on most hosts. It is read by a tool, like the output of `nvidia-smi`, so that all ways of reading a
host give the same facts. Only the time, the address and the code of a line leave the host, because the rest of the line
has the names of its users' processes.
"""

from __future__ import annotations

import re

from drydock_agent import pci
from drydock_agent.facts import LoggedError
from drydock_agent.tree import Tree

TOOL = "kernel-log"

RESET = "drydock: reset of"
"""How a line begins that Drydock writes to the kernel log after it has reset a device. Its address follows."""

_SCRIPT = rf"""
[ -e /proc/driver/nvidia ] || exit 0
tried() {{ command -v "$1" >/dev/null 2>&1 && found=$("$@" 2>/dev/null); }}
tried dmesg || {{ [ "$(id -u)" != 0 ] && tried sudo -n dmesg; }} ||
  tried journalctl -k -b -q --no-pager -o short-monotonic || exit 77
printf '%s\n' "$found" |
  sed -n -e 's/\(NVRM: Xid ([^)]*): [0-9]*\).*/\1/p' -e 's/\({RESET} [0-9a-f:.]*\).*/\1/p' | tail -n 5000
"""

COMMAND = ("sh", "-c", _SCRIPT)
"""Prints the lines about Xids and resets. Does nothing on a host without the NVIDIA driver."""

# A process may have the text of an error as its name. A line has the name behind the code, so the beginning must match.
_BEGIN = r"\A\[\s*(\d{1,12}\.\d{1,9})\](?:\s*\[\s*[TC]\d+\])? "

_XID = re.compile(
    _BEGIN + r"(?:\S+ kernel: )?NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?"
    r"(?: GPU-I:(\d{1,3}))?[^()]*\): (\d{1,4})\Z"
)

_RESET = re.compile(_BEGIN + r"(?:\S+ )?" + RESET + r" ([0-9a-f:.]+)\Z")


def xids(tree: Tree) -> dict[str, tuple[LoggedError, ...]]:
    """Return the Xids of each GPU since its last reset by Drydock, by PCI address and in the order of their codes.

    Source: NVIDIA's Xid documentation (docs.nvidia.com/deploy/xid-errors). The line of a MIG device names the GPU
    instance, whose applications alone are affected if the error is contained.
    """
    return tree.once(TOOL, _xids)


def _xids(tree: Tree) -> dict[str, tuple[LoggedError, ...]]:
    output = tree.tool(TOOL)
    if output is None:
        return {}
    if not output.ok:
        message = "The kernel log could not be read, so Xid errors are not known. Reading it needs root."
        tree.warn(TOOL, message)
        return {}
    found: dict[str, dict[tuple[int, str], LoggedError]] = {}
    for line in output.text.splitlines():
        if match := _XID.match(line):
            address, part = pci.address(f"{match[2]}.0"), f"mig-{int(match[3])}" if match[3] else ""
            known = found.setdefault(address or "", {})
            key = int(match[4]), part
            count = known[key].count + 1 if key in known else 1
            known[key] = LoggedError(code=f"xid {key[0]}", at=float(match[1]), count=count, part=part)
        elif match := _RESET.match(line):
            found.pop(pci.address(match[2]) or "", None)
    return {address: tuple(known[key] for key in sorted(known)) for address, known in found.items() if address}
