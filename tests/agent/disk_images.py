"""Small disk images, made by the real tools."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

from tests.peers import require

MIB = 1 << 20


def run(*argv: str | Path, given: bytes = b"") -> bytes:
    done = subprocess.run(argv, input=given, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, (argv, done.stderr)
    return done.stdout


def raw(folder: Path, label: str = "gpt", mib: int = 6, partitions: int = 1) -> bytes:
    """Return an image with a partition table, whose first partition has random bytes."""
    path = folder / f"{label}-{partitions}.raw"
    path.write_bytes(bytes(mib * MIB))
    lines = [f"label: {label}"] + [f"start={2048 * one}, size=2048" for one in range(1, partitions + 1)]
    run(require("sfdisk"), "--quiet", "--no-reread", "--no-tell-kernel", path, given="\n".join(lines).encode())
    with open(path, "r+b") as opened:
        opened.seek(MIB)
        opened.write(os.urandom(MIB))
    return path.read_bytes()


def qcow2(folder: Path, content: bytes, *options: str) -> bytes:
    """Return an image as qcow2."""
    source, path = folder / "source.raw", folder / "image.qcow2"
    source.write_bytes(content)
    run(require("qemu-img"), "convert", "-f", "raw", "-O", "qcow2", *options, source, path)
    return path.read_bytes()


def zst(content: bytes) -> bytes:
    return run(require("zstd"), "-qc", given=content)


def seed(label: str = "cidata", kib: int = 100) -> bytes:
    """Return an ISO image without files: a primary volume descriptor, and the end of the descriptors."""
    volume = bytearray(2048)
    volume[:8] = b"\x01CD001\x01\x00"
    volume[8:40], volume[40:72] = b" " * 32, label.encode().ljust(32)
    volume[80:88] = struct.pack("<I", kib // 2) + struct.pack(">I", kib // 2)
    volume[120:132] = (
        struct.pack("<H", 1) + struct.pack(">H", 1) + struct.pack("<H", 1) + struct.pack(">HH", 1, 2048) + b"\0\x08"
    )
    end = b"\xffCD001\x01".ljust(2048, b"\0")
    return (bytes(32768) + bytes(volume) + end).ljust(kib * 1024, b"s")
