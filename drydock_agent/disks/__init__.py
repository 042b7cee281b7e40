"""The disks of a machine: what they are, their erasure with proof, and the deployment of images.

Drydock calls the commands over SSH while a machine runs Drydock's ramdisk. Erasing and writing take minutes to days, so
they are jobs that outlive the connection and are found again by their id. The package needs the standard library, and
the tools nvme-cli, hdparm, util-linux, qemu-img, zstd, efibootmgr and tpm2-tools, as far as a machine has what they are
for.
"""

from __future__ import annotations

from drydock_agent.disks.commands import add_commands
from drydock_agent.disks.errors import DiskError

__all__ = ["DiskError", "add_commands"]
