"""Hand-written trees. They follow the kernel's documentation of each file, and no machine has ever shown them."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path, PurePosixPath

from drydock_agent import FolderTree, Hardware, MemoryTree, load_drivers, parse_fetched, scan, script
from drydock_agent.names import PciNames

FUNCTIONS = "sys/bus/pci/devices"


class Hand:
    """Builds a tree of PCI functions in memory."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.folders: list[str] = []

    def function(self, address: str, id: str, pci_class: str, driver: str = "", above: str = "", **files: str) -> str:
        """Add a function. `above` is the path of bridges over it. Returns its folder below sys/devices."""
        vendor, device = id.split(":")
        root = f"pci{address[: address.index(':')]}:{address.split(':')[1] if not above else '00'}"
        folder = "/".join(filter(None, (f"sys/devices/{root}", above, address)))
        self.links[f"{FUNCTIONS}/{address}"] = f"/{folder}"
        given = {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": f"0x{pci_class}", "numa_node": "0", **files}
        self.files |= {f"{folder}/{name.replace('__', '/')}": text + "\n" for name, text in given.items()}
        if driver:
            self.links[f"{folder}/driver"] = f"/sys/bus/pci/drivers/{driver}"
        return folder

    def tool(self, name: str, text: str, status: str = "0") -> None:
        self.files |= {f"drydock-tools/{name}.out": text, f"drydock-tools/{name}.status": status}

    def tree(self) -> MemoryTree:
        return MemoryTree(self.files, links=self.links, folders=tuple(self.folders))

    def write(self, root: Path) -> None:
        """Write the tree to a folder. Links are relative, as in sysfs."""
        places = {path: str(PurePosixPath("/") / path) for path in self.links}
        for path, target in self.links.items():
            there = root / path
            there.parent.mkdir(parents=True, exist_ok=True)
            if target.startswith("/"):
                target = os.path.relpath(target, os.path.dirname(places[path]))
                (root / self.links[path][1:]).mkdir(parents=True, exist_ok=True)
            there.symlink_to(target)
        for path, text in self.files.items():
            there = root / path
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_text(text)

    def scan(self) -> Hardware:
        """Scan the tree in memory, as a folder and as the script prints it. All three give the same."""
        drivers, names = load_drivers(), PciNames("")
        found = scan(self.tree(), drivers=drivers, names=names)
        with tempfile.TemporaryDirectory() as folder:
            self.write(Path(folder))
            assert scan(FolderTree(folder), drivers=drivers, names=names) == found
            run = subprocess.run(
                ["sh", "-s", folder], input=script(drivers), capture_output=True, text=True, check=True
            )
        assert scan(parse_fetched(run.stdout), drivers=drivers, names=names) == found
        assert Hardware.from_json(json.loads(json.dumps(found.to_json()))) == found
        return found


GPU_XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>535.54.03</driver_version>
  <attached_gpus>1</attached_gpus>
  <gpu id="{address}">
    <product_name>NVIDIA A100-SXM4-80GB</product_name>
    <mig_mode><current_mig>{mig}</current_mig><pending_mig>{pending_mig}</pending_mig></mig_mode>
    <mig_devices>{slices}</mig_devices>
    <serial>{serial}</serial><uuid>{uuid}</uuid><minor_number>1</minor_number>
    <fb_memory_usage><total>81920 MiB</total><used>50 MiB</used></fb_memory_usage>
    <ecc_errors><volatile><dram_uncorrectable>{ecc}</dram_uncorrectable></volatile></ecc_errors>
    <remapped_rows><remapped_row_pending>{remap}</remapped_row_pending>
      <remapped_row_failure>{failure}</remapped_row_failure></remapped_rows>
    <gpu_reset_status><reset_required>{reset}</reset_required></gpu_reset_status>
    <processes>{processes}</processes>
    <accounted_processes></accounted_processes>
  </gpu>
</nvidia_smi_log>
"""

SLICE_XML = """<mig_device><index>{n}</index><gpu_instance_id>{gi}</gpu_instance_id>
<compute_instance_id>0</compute_instance_id>
<device_attributes><shared><multiprocessor_count>14</multiprocessor_count></shared></device_attributes>
<fb_memory_usage><total>19968 MiB</total></fb_memory_usage></mig_device>"""

GPU_UUID = "GPU-513536b6-7d19-9063-b049-1e69664bb298"


def gpu_xml(**changes: str) -> str:
    values = {"address": "00000000:01:00.0", "mig": "Disabled", "pending_mig": "Disabled", "slices": "None", "ecc": "0",
              "serial": "1650522003820", "uuid": GPU_UUID, "remap": "No", "failure": "No", "reset": "No",
              "processes": ""}  # fmt: skip
    return GPU_XML.format(**values | changes)


def gpu(driver: str = "nvidia", output: str | None = None, status: str = "0") -> Hardware:
    """Scan a machine with one A100 for which nvidia-smi printed this."""
    hand = Hand()
    hand.function("0000:01:00.0", "10de:20b2", "030200", driver)
    if output is not None:
        hand.tool("nvidia-smi", output, status)
    return hand.scan()
