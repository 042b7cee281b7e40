"""`make qemu-tree`: capture the tree of an emulated machine whose NVMe disk has virtual functions.

No capture of a real machine has links between a physical function and its VFs. QEMU emulates a disk with SR-IOV, and
the kernel of Debian's clouds makes the rest: the VFs, their links, NUMA nodes and IOMMU groups. This script boots the
kernel with a shell and nothing else, creates the VFs, runs our script of `drydock_agent.fetch` in the guest, and stores
the tree that it printed. `test_qemu.py` compares the tree with what QEMU was told, which stands here.

It needs qemu-system-x86 7.1 or later (`sriov_max_vfs`), apt-get and dpkg-deb, but neither root nor KVM. It takes less
than a minute. The guest has no network.
"""

from __future__ import annotations

import io
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from drydock_agent import Tree, load_drivers, parse_fetched, script

TREE = Path(__file__).resolve().parent / "trees" / "qemu-sriov.tar.xz"
CPUS = ("0-1", "2-3")
"""The processors of each NUMA node."""
MEMORY_MIB = (256, 320)
DISTANCES = ((10, 21), (21, 10))
FAR_BUS = 0x80
"""The number of the root bus that belongs to NUMA node 1."""
PORT_SPEED, PORT_WIDTH = 16.0, 16
TOTAL_VFS, ENABLED_VFS = 4, 3
SERIAL, DISK_MIB = "drydock-pf", 4

_KERNEL, _SHELL = "linux-image-cloud-amd64", "busybox-static"
_PATIENCE = 300
_APPLETS = ("sh", "awk", "cat", "dmesg", "echo", "head", "mount", "poweroff", "readlink", "sed", "sleep", "stty",
            "timeout")  # fmt: skip
_INIT = f"""\
#!/bin/sh
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t devtmpfs dev /dev
stty -F /dev/ttyS1 raw
for name in /sys/bus/pci/devices/*/sriov_totalvfs; do
  function=${{name%/*}}
  # No driver is bound to the VFs: an emulated VF is off line until its PF gives it queues.
  echo 0 >"$function/sriov_drivers_autoprobe" && echo {ENABLED_VFS} >"$function/sriov_numvfs"
done
sh /fetch.sh >/dev/ttyS1
poweroff -f
"""


def command(folder: Path) -> list[str]:
    """Return the words that describe the machine to QEMU."""
    words = ["-machine", "q35", "-accel", os.environ.get("ACCEL", "tcg,thread=multi"), "-cpu", "max", "-smp", "4",
             "-m", str(sum(MEMORY_MIB)), "-nodefaults", "-display", "none", "-no-reboot"]  # fmt: skip
    for node, (cpus, size) in enumerate(zip(CPUS, MEMORY_MIB, strict=True)):
        words += ["-object", f"memory-backend-ram,id=m{node},size={size}M"]
        words += ["-numa", f"node,nodeid={node},cpus={cpus},memdev=m{node}"]
    for here, row in enumerate(DISTANCES):
        words += [word for there, far in enumerate(row) for word in ("-numa", f"dist,src={here},dst={there},val={far}")]
    port = f"pcie-root-port,id=root80,bus=far,chassis=1,slot=1,x-speed={PORT_SPEED:g},x-width={PORT_WIDTH}"
    disk = f"nvme,id=pf,serial={SERIAL},bus=root80,subsys=subsystem,max_ioqpairs=16,msix_qsize=16"
    words += [
        "-device", "intel-iommu",
        "-device", f"pxb-pcie,id=far,bus=pcie.0,bus_nr={FAR_BUS},numa_node=1",
        "-device", port,
        "-device", "nvme-subsys,id=subsystem",
        "-device", f"{disk},sriov_max_vfs={TOTAL_VFS},sriov_vq_flexible={2 * TOTAL_VFS},sriov_vi_flexible={TOTAL_VFS}",
        "-drive", f"file={folder / 'disk'},if=none,id=disk,format=raw", "-device", "nvme-ns,drive=disk,bus=pf",
        # Below a switch of NUMA node 0, a disk without VFs.
        "-device", "pcie-root-port,id=near,bus=pcie.0,chassis=2,slot=2", "-device", "x3130-upstream,id=up,bus=near",
        "-device", "xio3130-downstream,id=down,bus=up,chassis=3,slot=3",
        "-drive", f"file={folder / 'other'},if=none,id=other,format=raw",
        "-device", "nvme,id=plain,serial=drydock-plain,drive=other,bus=down",
    ]  # fmt: skip
    kernel = next((folder / _KERNEL / "boot").glob("vmlinuz-*"))
    words += ["-kernel", str(kernel), "-initrd", str(folder / "initrd")]
    words += ["-append", "console=ttyS0 intel_iommu=on panic=-1"]
    words += ["-serial", f"file:{folder / 'console'}", "-serial", f"file:{folder / 'printed'}"]
    return ["qemu-system-x86_64", *words]


def main() -> int:
    problem = _problem()
    if problem:
        print(problem, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="drydock-qemu-", dir="/var/tmp") as name:
        folder = Path(name)
        _unpack(_depends(), folder / _KERNEL)
        _unpack(_SHELL, folder / _SHELL)
        (folder / "initrd").write_bytes(_initrd(folder))
        for disk in ("disk", "other"):
            with (folder / disk).open("wb") as image:
                image.truncate(DISK_MIB << 20)
        subprocess.run(command(folder), stdin=subprocess.DEVNULL, timeout=_PATIENCE, check=True)
        printed = (folder / "printed").read_text(errors="replace")
        if not printed.endswith("END\n"):
            console = (folder / "console").read_text(errors="replace")
            print(f"The guest did not print its tree. The end of its console:\n{console[-3000:]}", file=sys.stderr)
            return 1
        TREE.parent.mkdir(exist_ok=True)
        TREE.write_bytes(packed(parse_fetched(printed)))
    print(f"{TREE.name}: {TREE.stat().st_size >> 10} KiB")
    return 0


def _problem() -> str:
    """Return what is missing on this machine, in words, or an empty string."""
    for program, package in (("qemu-system-x86_64", "qemu-system-x86"), ("apt-get", "apt"), ("dpkg-deb", "dpkg")):
        if not shutil.which(program):
            return f"{program} is missing: install the package {package}."
    shown = subprocess.run(["qemu-system-x86_64", "-device", "nvme,help"], capture_output=True, text=True).stdout
    return "" if "sriov_max_vfs" in shown else "This QEMU emulates no SR-IOV: install version 7.1 or later."


def _depends() -> str:
    """Return the package with the kernel itself, on which the package with a stable name depends."""
    shown = subprocess.run(["apt-cache", "depends", _KERNEL], capture_output=True, text=True, check=True).stdout
    found = re.search(r"Depends: (linux-image-\S+)", shown)
    if found is None:
        raise RuntimeError(f"apt knows no package {_KERNEL}. Update its lists: apt-get update")
    return found[1]


def _unpack(package: str, folder: Path) -> None:
    """Download a package and extract its files, without installing it."""
    folder.mkdir()
    subprocess.run(["apt-get", "download", "--quiet", package], cwd=folder, check=True, capture_output=True)
    (found,) = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", found, folder], check=True)


def _initrd(folder: Path) -> bytes:
    """Return the guest's files as an archive that the kernel unpacks (cpio, format newc)."""
    shell = (folder / _SHELL / "bin" / "busybox").read_bytes()
    entries: list[tuple[str, int, bytes]] = [(name, 0o40755, b"") for name in ("bin", "dev", "proc", "sys")]
    entries += [("bin/busybox", 0o100755, shell), *((f"bin/{name}", 0o120777, b"busybox") for name in _APPLETS)]
    entries += [("init", 0o100755, _INIT.encode()), ("fetch.sh", 0o100644, script(load_drivers()).encode())]
    content = bytearray()
    for number, (name, mode, body) in enumerate([*entries, ("TRAILER!!!", 0, b"")]):
        fields = (number, mode, 0, 0, 1, 0, len(body), 0, 0, 0, 0, len(name) + 1, 0)
        content += b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        content += b"\0" * (-len(content) % 4)
        content += body + b"\0" * (-len(body) % 4)
    return bytes(content)


def packed(tree: Tree) -> bytes:
    """Return a tree as an archive. The same tree gives the same bytes."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        _add(archive, tree, "")
    return lzma.compress(content.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def _add(archive: tarfile.TarFile, tree: Tree, folder: str) -> None:
    for name in tree.names(folder):
        path = f"{folder}/{name}".lstrip("/")
        member = tarfile.TarInfo(path)
        target, inside = tree.link(path), tree.names(path)
        text = None if target is not None or inside else tree.read(path)
        body = f"{text}\n".encode() if text is not None else b""
        member.type = tarfile.REGTYPE if text is not None else tarfile.DIRTYPE
        member.mode = 0o644 if text is not None else 0o755
        member.size = len(body)
        if target is not None:
            member.type, member.linkname = tarfile.SYMTYPE, os.path.relpath(target, folder or ".")
        archive.addfile(member, io.BytesIO(body))
        if target is None and inside:
            _add(archive, tree, path)


if __name__ == "__main__":
    sys.exit(main())
