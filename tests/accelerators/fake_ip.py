"""A program that stands for `ip` with a card that has VFs. It keeps the settings of the VFs in a file beside it.

It is a double, because no card with VFs is at hand. Its output has the fields that iproute2 prints for VFs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

CARD = "card0"
"""The interface of the card."""
FRESH: dict[str, Any] = {
    "link_type": "ether", "address": "00:00:00:00:00:00", "broadcast": "ff:ff:ff:ff:ff:ff",
    "vlan_list": [{"vlan": 0}], "rate": {"max_tx": 0, "min_tx": 0}, "spoofchk": True, "link_state": "auto",
    "trust": False, "query_rss_en": False,
}  # fmt: skip
_PROGRAM = """#!{python}
import json, pathlib, sys
here = pathlib.Path(__file__).with_name("vfs.json")
vfs = json.loads(here.read_text())
words = sys.argv[1:]
if words == ["-j", "link", "show", "dev", "{card}"]:
    print(json.dumps([{{"ifname": "{card}", "vfinfo_list": vfs}}]))
    sys.exit()
assert words[:4] == ["link", "set", "dev", "{card}"] and words[4] == "vf", words
vf = vfs[int(words[5])]
pairs = dict(zip(words[6::2], words[7::2]))
if "refuses" in vf and vf["refuses"] in pairs:
    sys.exit("RTNETLINK answers: Operation not supported")
for name, value in pairs.items():
    if name == vf.get("ignores"):
        continue
    if name == "mac":
        vf["address"] = value
    elif name == "vlan":
        vf["vlan_list"] = [{{"vlan": int(value)}}]
    elif name in ("spoofchk", "trust"):
        vf[name] = value == "on"
    elif name in ("max_tx_rate", "min_tx_rate"):
        vf["rate"] = {{"max_tx": int(pairs.get("max_tx_rate", 0)), "min_tx": int(pairs.get("min_tx_rate", 0))}}
    else:
        sys.exit(name + " is not known")
here.write_text(json.dumps(vfs))
"""


class FakeIp:
    """The program `folder/ip`, and the settings of its VFs."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "vfs.json"
        self.write([{"vf": n, **FRESH} for n in range(count)])
        (folder / "ip").write_text(_PROGRAM.format(python=sys.executable, card=CARD))
        (folder / "ip").chmod(0o755)

    def read(self, number: int) -> dict[str, Any]:
        """The settings of a VF."""
        found: dict[str, Any] = json.loads(self._file.read_text())[number]
        return found

    def write(self, vfs: list[dict[str, Any]]) -> None:
        """Replace the settings of all VFs."""
        self._file.write_text(json.dumps(vfs))

    def change(self, number: int, **settings: Any) -> None:
        """Change a VF, or how the program behaves: a setting that it `ignores` or `refuses`."""
        vfs = json.loads(self._file.read_text())
        vfs[number] |= settings
        self.write(vfs)
