"""A hand-written tree of a machine with an FPGA, and a program that stands for OPAE's fpgaconf. No FPGA was at hand.

The program writes the AFU id of an image's metadata to the tree, as the kernel reports it after a real one.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path

from tests.agent.hand import Hand

FPGA = "0000:3a:00.0"
INTERFACE = "9346116d892453c1bb5be4d1e0cd73dd"
BLANK, FILTER, OTHER = "a" * 8 + "0" * 23 + "1", "b" * 8 + "0" * 23 + "2", "c" * 8 + "0" * 23 + "3"

_BELOW = "fpga_region/region0/dfl-fme.0/dfl-fme-region.2/fpga_region/region1"

_PROGRAM = r"""#!/bin/sh
LC_ALL=C; export LC_ALL
cd "${0%/*}/fpga" || exit 9
[ ! -e hang ] || { rm -f hang; exec sleep 60; }
[ ! -e fails ] || { rm -f fails; echo "Error writing bitstream" >&2; exit 5; }
for file do :; done
echo "$@" >>calls
cp "$file" programmed
id=$(sed -n 's/.*"accelerator-type-uuid": *"\([0-9a-f]*\)".*/\1/p' "$file")
[ -e lies ] || echo "$id" >"$(cat afu)"
"""


class FakeFpga:
    """The tree, the program `folder/tools/fpgaconf`, and images in `folder`."""

    def __init__(
        self, folder: Path, *, interface: str = INTERFACE, ids: str = "8086:0b2b", driver: str = "dfl-pci"
    ) -> None:
        self.root, self.tools, self.state = folder / "captured", folder / "tools", folder / "tools/fpga"
        self.folder = folder
        hand = Hand()
        card = hand.function(FPGA, ids, "120000", driver)
        hand.links |= {
            "sys/class/fpga_region/region0": f"/{card}/fpga_region/region0",
            "sys/class/fpga_region/region1": f"/{card}/{_BELOW}",
        }
        region = f"{card}/fpga_region/region0"
        hand.files |= {
            f"{region}/dfl-port.0/afu_id": f"{BLANK}\n",
            f"{card}/{_BELOW}/compat_id": f"{interface}\n",
        }
        hand.write(self.root)
        self.afu = self.root / region / "dfl-port.0/afu_id"
        self.state.mkdir(parents=True, exist_ok=True)
        (self.state / "afu").write_text(str(self.afu))
        (self.tools / "fpgaconf").write_text(_PROGRAM)
        for each in (self.state, self.tools / "fpgaconf"):
            each.chmod(0o755)
        self._images = self._written()

    def image(self, name: str, afu: str, *, interface: str = INTERFACE, metadata: bytes | None = None) -> Path:
        """Write an accelerator function file, as OPAE's packager does."""
        text = json.dumps({
            "version": 1, "afu-image": {
                "interface-uuid": str(uuid.UUID(interface)),
                "accelerator-clusters": [{"name": name, "accelerator-type-uuid": afu}],
            },
        }).encode() if metadata is None else metadata  # fmt: skip
        path = self.folder / f"{name}.gbs"
        path.write_bytes(b"XeonFPGA\xb7GBSv001" + len(text).to_bytes(4, "little") + text + b"\n" + name.encode() * 99)
        return path

    def images(self) -> dict[str, dict[str, object]]:
        """The images of a blueprint's config: a blank one and two others."""
        return {name: dict(one) for name, one in self._images.items()}

    def _written(self) -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = {
            name: named(self.image(name, afu)) for name, afu in (("empty", BLANK), ("filter", FILTER), ("other", OTHER))
        }
        found["empty"]["blank"] = True
        return found

    def calls(self) -> list[str]:
        """The options of each call of the program."""
        path = self.state / "calls"
        return path.read_text().splitlines() if path.exists() else []


def named(path: Path) -> dict[str, object]:
    """An image of a blueprint's config."""
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"path": str(path), "sha256": sha256, "interface_id": INTERFACE}
