"""A captured tree for `make demo-hardware`: a machine with GPUs that are ready and GPUs that are not.

It has the form of a captured virtual machine with a Tesla P100. The serial number, the UUID and the second GPU are made
up.
"""

from __future__ import annotations

import os
from pathlib import Path

GPU = "0000:06:00.0"
"""The GPU that is ready."""
UNREADY = "0000:07:00.0"
"""The GPU that needs another driver."""
NIC = "0000:00:03.0"
"""A network card that is ready."""
UUID, SERIAL = "GPU-3f1c9a52-7d0e-4b86-a1c4-52d90e6b7f13", "0423718026114"

_FUNCTIONS = {
    "0000:00:01.0": ("8086:3420", "060400", "pcieport"),
    "0000:00:02.0": ("1af4:1050", "030000", "virtio-pci"),
    NIC: ("1af4:1041", "020000", "virtio-pci"),
    GPU: ("10de:15f8", "030200", "nvidia"),
    UNREADY: ("10de:1eb8", "030200", "nouveau"),
}
"""Address, ids, class and kernel driver of each PCI function."""
_BEHIND = {GPU: "0000:00:01.0", UNREADY: "0000:00:01.0"}

_NVIDIA_SMI = f"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>535.54.03</driver_version>
  <cuda_version>12.2</cuda_version>
  <gpu id="0000{GPU}">
    <product_name>Tesla P100-PCIE-16GB</product_name>
    <serial>{SERIAL}</serial><uuid>{UUID}</uuid><minor_number>0</minor_number>
    <vbios_version>86.00.4D.00.01</vbios_version>
    <mig_mode><current_mig>N/A</current_mig><pending_mig>N/A</pending_mig></mig_mode>
    <mig_devices>None</mig_devices>
    <fb_memory_usage><total>16384 MiB</total><used>2 MiB</used></fb_memory_usage>
    <ecc_errors><volatile><dram_uncorrectable>0</dram_uncorrectable></volatile></ecc_errors>
    <processes></processes>
  </gpu>
</nvidia_smi_log>
"""


def write(root: Path, *, serial: str = SERIAL, uuid: str = UUID) -> None:
    """Write the tree to a folder. With another serial number and UUID, it is the tree of another machine."""
    functions = root / "sys/bus/pci/devices"
    functions.mkdir(parents=True)
    for address, (ids, pci_class, driver) in _FUNCTIONS.items():
        vendor, device = ids.split(":")
        folder = root / "sys/devices/pci0000:00" / _BEHIND.get(address, "") / address
        folder.mkdir(parents=True, exist_ok=True)
        values = {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": f"0x{pci_class}", "numa_node": "0"}
        for name, value in values.items():
            (folder / name).write_text(f"{value}\n")
        bound = root / "sys/bus/pci/drivers" / driver
        bound.mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(os.path.relpath(bound, folder))
        (functions / address).symlink_to(os.path.relpath(folder, functions))
    tools = root / "drydock-tools"
    tools.mkdir()
    (tools / "nvidia-smi.out").write_text(_NVIDIA_SMI.replace(SERIAL, serial).replace(UUID, uuid))
    (tools / "nvidia-smi.status").write_text("0\n")
