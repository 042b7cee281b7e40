"""The bootable image: kernel and initramfs, with GRUB for UEFI and ISOLINUX for BIOS.

GRUB and the shim before it are those that Debian signed, so that it also boots with Secure Boot.
It boots as a CD and, copied to one, from a USB drive.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

from drydock.ramdisk import programs

_SECONDS = 1800.0
_EFI_KIB = 8192


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loaders:
    """The boot loaders, as Debian's packages contain them."""

    shim: bytes
    mok: bytes
    grub: bytes
    isolinux: bytes
    ldlinux: bytes
    hybrid: bytes


def make(folder: Path, target: Path, loaders: Loaders, *, label: str, options: str, epoch: int) -> None:
    """Make the image from `vmlinuz` and `initramfs` in a folder, which it needs for itself. Raises DrydockError."""
    content = folder / "iso"
    for name, text in {
        # GRUB for CDs looks for its configuration beside this file.
        ".disk/info": f"{label}\n",
        "boot/grub/grub.cfg": _configured("grub.cfg", options),
        "isolinux/isolinux.cfg": _configured("isolinux.cfg", options),
    }.items():
        (content / name).parent.mkdir(parents=True, exist_ok=True)
        (content / name).write_text(text)
    (content / "isolinux" / "isolinux.bin").write_bytes(loaders.isolinux)
    (content / "isolinux" / "ldlinux.c32").write_bytes(loaders.ldlinux)
    (folder / "hybrid").write_bytes(loaders.hybrid)
    for name in ("vmlinuz", "initramfs"):
        (content / name).hardlink_to(folder / name)
    _efi(folder, content / "boot" / "efi.img", loaders, epoch)
    for path in (content, *content.rglob("*")):
        os.utime(path, (epoch, epoch))
    programs.run(
        [
            "xorriso", "-as", "mkisofs", "-quiet", "-o", str(target), "-V", label, "-R", "-J", "-joliet-long",
            "-uid", "0", "-gid", "0", "-dir-mode", "0755", "-file-mode", "0644",
            "-isohybrid-mbr", str(folder / "hybrid"), "-partition_offset", "16",
            "-b", "isolinux/isolinux.bin", "-c", "isolinux/boot.cat", "-no-emul-boot", "-boot-load-size", "4",
            "-boot-info-table", "-eltorito-alt-boot", "-e", "boot/efi.img", "-no-emul-boot", "-isohybrid-gpt-basdat",
            "--set_all_file_dates", "set_to_mtime", str(content),
        ],
        epoch=epoch, seconds=_SECONDS,
    )  # fmt: skip
    shutil.rmtree(content)


def _configured(name: str, options: str) -> str:
    return programs.read_text(name).replace("@OPTIONS@", options)


def _efi(folder: Path, image: Path, loaders: Loaders, epoch: int) -> None:
    """Make the file system that UEFI firmware boots from."""
    tree = folder / "efi" / "EFI" / "BOOT"
    tree.mkdir(parents=True)
    for name, content in (
        ("BOOTX64.EFI", loaders.shim), ("MMX64.EFI", loaders.mok), ("GRUBX64.EFI", loaders.grub),
    ):  # fmt: skip
        (tree / name).write_bytes(content)
    geometry = ["-T", str(_EFI_KIB * 2), "-h", "64", "-s", "32", "-N", f"{epoch & 0xFFFFFFFF:08x}"]
    for words in (["mformat", "-C", *geometry, "::"], ["mcopy", "-s", str(folder / "efi" / "EFI"), "::"]):
        named = [words[0], "-i", str(image), *words[1:]]
        programs.run(named, epoch=epoch, seconds=60, env={"MTOOLSRC": "/dev/null"})
    shutil.rmtree(folder / "efi")
