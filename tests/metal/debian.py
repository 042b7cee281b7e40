"""A Debian that can be deployed: an image of a disk that boots by UEFI with Secure Boot, and reads a NoCloud seed.

It is made from Debian's packages, once for each state of this file. Its loaders are those of the ramdisk, which Debian
has signed. Needs root, because the files of the system belong to its accounts.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.metal.ramdisk import kept_folder

PACKAGES = ("linux-image-cloud-amd64", "systemd-sysv", "dbus", "cloud-init", "openssh-server", "sudo", "ifupdown",
            "isc-dhcp-client", "iproute2", "e2fsprogs", "podman", "runc", "nftables",
            "busybox-static")  # fmt: skip
NAME = "debian.raw.zst"
ROOT_MIB, EFI_MIB = 1500, 96
_GRUB = """search --no-floppy --label --set=files drydock-root
linux /vmlinuz root=LABEL=drydock-root ro console=ttyS0,115200n8 net.ifnames=0
initrd /initrd.img
boot
"""


def built(ramdisk: Path) -> Path:
    """Return a folder with the image, built now or by an earlier run. `ramdisk` is the folder with a built ramdisk."""
    key = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    return kept_folder("debian-images", key, NAME, lambda folder: build(folder, ramdisk / "ramdisk.iso"))


def build(folder: Path, iso: Path) -> None:
    """Build the image in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        root = _system(work)
        shutil.copy(root / "bin/busybox", folder / "busybox")  # for images of containers
        efi = _efi(work, root, iso)
        files = work / "files.img"
        _command("mke2fs", "-q", "-t", "ext4", "-L", "drydock-root", "-d", str(root), str(files), f"{ROOT_MIB}M")
        disk = _disk(work, efi, files)
        _command("zstd", "-q", "-f", "-3", "-T2", str(disk), "-o", str(work / NAME))
        (work / NAME).rename(folder / NAME)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _system(work: Path) -> Path:
    root = work / "root"
    options = ['--aptopt=Acquire::Languages "none"', '--aptopt=APT::Install-Recommends "false"']
    _command(
        "mmdebstrap", "--quiet", "--variant=apt", f"--include={','.join(PACKAGES)}", *options, "bookworm", str(root)
    )
    (root / "etc/fstab").write_text("LABEL=drydock-root / ext4 defaults 0 1\n")
    # It has no locale to choose from, and no other source of settings than its seed.
    (root / "etc/cloud/cloud.cfg.d/90_drydock.cfg").write_text("datasource_list: [NoCloud]\nlocale: false\n")
    for large in ("usr/share/doc", "usr/share/man", "var/lib/apt/lists", "var/cache/apt"):
        shutil.rmtree(root / large, ignore_errors=True)
    return root


def _efi(work: Path, root: Path, iso: Path) -> Path:
    """Make the file system that the firmware boots from, with kernel and initramfs."""
    loaders, image = work / "efi.img", work / "efi-partition.img"
    _command("xorriso", "-osirrox", "on", "-indev", str(iso), "-extract", "/boot/efi.img", str(loaders))
    tree = work / "efi"
    (tree / ".disk").mkdir(parents=True)
    (tree / ".disk/info").write_text("drydock-debian\n")  # by which GRUB for CDs finds its configuration
    (tree / "boot/grub").mkdir(parents=True)
    (tree / "boot/grub/grub.cfg").write_text(_GRUB)
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy(next((root / "boot").glob(f"{name}-*")), tree / name)
    _command("mcopy", "-s", "-i", str(loaders), "::EFI", str(tree))
    _command("mformat", "-C", "-i", str(image), "-T", str(EFI_MIB * 2048), "-h", "64", "-s", "32", "::")
    for part in sorted(tree.iterdir()):
        _command("mcopy", "-s", "-i", str(image), str(part), "::")
    return image


def _disk(work: Path, efi: Path, files: Path) -> Path:
    disk = work / "disk.raw"
    with disk.open("wb") as made:
        made.truncate((EFI_MIB + ROOT_MIB + 2) << 20)
    table = f"label: gpt\nstart=1MiB, size={EFI_MIB}MiB, type=U\nsize={ROOT_MIB}MiB, type=L\n"
    _command("sfdisk", "--quiet", "--no-reread", "--no-tell-kernel", str(disk), given=table)
    for part, at in ((efi, 1), (files, 1 + EFI_MIB)):
        _command("dd", f"if={part}", f"of={disk}", "bs=1M", f"seek={at}", "conv=notrunc,sparse", "status=none")
    return disk


def _command(*words: str, given: str = "") -> None:
    done = subprocess.run(
        words, input=given, capture_output=True, text=True, timeout=1200, env={**os.environ, "MTOOLSRC": "/dev/null"}
    )
    if done.returncode:
        raise RuntimeError(f"{words[0]} failed: {done.stderr.strip()[-1500:]}")
