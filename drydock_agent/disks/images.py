"""Disk images in the format qcow2: what they may refer to, and how they are written and compared, by qemu-img."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import time
from pathlib import Path

from drydock_agent.disks.blocks import Report
from drydock_agent.disks.errors import DiskError
from drydock_agent.disks.machine import Machine, end

_MAGIC = b"QFI\xfb"
_DIRTY, _CORRUPT, _EXTERNAL = 1, 2, 4
"""Incompatible features of a qcow2 image: bits 0 to 2 of the header (docs/interop/qcow2.txt of QEMU)."""
_LONGEST = 12 * 3600.0
_MEMORY = f"--as={4 << 30}"
"""The limit on the memory of qemu-img, since an image decides how much it takes."""
_PERCENT = re.compile(rb"\((\d+(?:\.\d+)?)/100%\)")


def check_header(path: Path) -> None:
    """Raise DiskError unless a file is a qcow2 image that refers to no other file.

    This is checked before QEMU sees the file, because opening an image opens what it refers to.
    """
    with open(path, "rb") as opened:
        header = opened.read(104)
    if header[:4] != _MAGIC or len(header) < 72:
        raise DiskError("image", "The file is not an image in the format qcow2.")
    version, backing = struct.unpack(">IQ", header[4:16])
    if version not in (2, 3):
        raise DiskError("image", f"The image has version {version} of the format qcow2; 2 and 3 are supported.")
    if backing:
        raise DiskError("image", "The image has a backing file, whose content would be missing. Convert it first.")
    if struct.unpack(">I", header[32:36])[0]:
        raise DiskError("image", "The image is encrypted. Convert it first.")
    features = struct.unpack(">Q", header[72:80])[0] if version == 3 and len(header) >= 80 else 0
    if features & _EXTERNAL:
        raise DiskError("image", "The content of the image is in another file (data-file). Convert it first.")
    if features & (_DIRTY | _CORRUPT):
        raise DiskError("image", "The image is marked as damaged or as not closed. Repair it: qemu-img check -r all")


def virtual_size(machine: Machine, path: Path) -> int:
    """Return the size of the disk in a qcow2 image, which was checked before. Raises DiskError."""
    argv = ("qemu-img", "info", "--output=json", "-f", "qcow2", str(path))
    done = machine.run("prlimit", _MEMORY, "--cpu=60", *argv, seconds=120)
    try:
        about = json.loads(done.text)
        size = int(about["virtual-size"])
        details = about.get("format-specific", {}).get("data", {})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DiskError("image", f"qemu-img cannot read the image: {done.reason}.") from None
    refers = {**about, **details}
    if refers.get("backing-filename") or refers.get("data-file") or refers.get("encrypted"):
        raise DiskError("image", "The image refers to another file, or is encrypted. Convert it first.")
    if size <= 0:
        raise DiskError("image", "The disk in the image has no size.")
    return size


def convert(machine: Machine, path: Path, node: Path, report: Report) -> None:
    """Write the disk in a qcow2 image to a disk. Raises DiskError."""
    code, said = _run(machine, ("convert", "-n", "-f", "qcow2", "-O", "raw", str(path), str(node)), report)
    if code:
        raise DiskError("disk", f"qemu-img could not write the image: {said}.")


def compare(machine: Machine, path: Path, node: Path, size: int, report: Report) -> None:
    """Read a disk back, and compare it with the image. Raises DiskError if they differ."""
    driver = "host_device" if machine.is_real else "file"
    target = f"driver=raw,size={size},file.driver={driver},file.filename={_quoted(node)}"
    image = f"driver=qcow2,file.driver=file,file.filename={_quoted(path)}"
    code, said = _run(machine, ("compare", "--image-opts", image, target), report)
    if code == 1:
        raise DiskError("verification", f"The disk does not hold what was written to it: {said}.")
    if code:
        raise DiskError("disk", f"qemu-img could not compare the disk with the image: {said}.")


def room(machine: Machine, folder: Path) -> int:
    """Return how many bytes a file in a folder can have. On a real machine the folder is in memory."""
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if not machine.is_real:
        return free
    match = re.search(r"^MemAvailable:\s+(\d+) kB", machine.text("proc/meminfo"), re.MULTILINE)
    memory = max(0, int(match[1]) * 1024 - (256 << 20)) if match else free
    # The file system of an initramfs reports no size.
    return min(free, memory) if found.f_blocks else memory


def _run(machine: Machine, argv: tuple[str, ...], report: Report) -> tuple[int, str]:
    """Run qemu-img, and pass on the percent that it shows. Return its exit code and its last words."""
    process = machine.started("prlimit", _MEMORY, "qemu-img", argv[0], "-p", *argv[1:], stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stderr is not None
    os.set_blocking(process.stderr.fileno(), False)
    until, rest, said = time.monotonic() + _LONGEST, b"", b""
    try:
        while piece := os.read(process.stdout.fileno(), 4096):
            rest = (rest + piece)[-4096:]
            if found := _PERCENT.findall(rest):
                report(float(found[-1]))
            said = (said + (process.stderr.read() or b""))[-4096:]
            if time.monotonic() > until:
                raise DiskError("tool_timeout", "qemu-img did not end in 12 hours.")
        code = process.wait(60)
        said += process.stderr.read() or b""
    except subprocess.TimeoutExpired:
        raise DiskError("tool_timeout", "qemu-img did not end.") from None
    finally:
        end(process)
    words = said or _PERCENT.sub(b"", rest)
    return code, " ".join(words.decode("utf-8", "replace").split())[-300:].rstrip(".")


def _quoted(path: Path) -> str:
    """Return a path in the options of QEMU, in which a comma is written twice."""
    return str(path).replace(",", ",,")
