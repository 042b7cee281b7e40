"""Build the ramdisk."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import drydock_agent.package
from drydock.core.errors import Conflict, DrydockError, InvalidRequest
from drydock.ramdisk import iso, packages, programs
from drydock.ramdisk.tree import Tree

FILES = ("vmlinuz", "initramfs", "ramdisk.iso")
"""The files that are built, besides `manifest.json`."""
LABEL = "DRYDOCK"
"""The label of the medium that the ramdisk reads its keys from."""
BOOT_LABEL = "DRYDOCK-RAMDISK"
EPOCH = 1767225600
"""The time of all files, in seconds since 1970, if SOURCE_DATE_EPOCH sets no other: the beginning of 2026."""
OPTIONS = "console=tty0 console=ttyS0,115200n8 panic=60"
_MANIFEST = "manifest.json"
_LEVEL = 9
"""Of zstd. Level 15 takes ten times as long, and saves 2 percent."""
_LEAST_FREE = 3 << 30
_SYSTEM = (
    ("init", "init", 0o755),
    ("sshd_config", "etc/ssh/sshd_config", 0o644),
    ("powerbutton", "etc/acpi/events/powerbutton", 0o644),
    ("drydock-agent", "usr/bin/drydock-agent", 0o755),
    *(("power", f"usr/sbin/{name}", 0o755) for name in ("poweroff", "reboot", "halt", "shutdown")),
)  # fmt: skip
"""Our files: name in this package, path in the ramdisk, mode."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What to build, and where.

    Without `suite` and `sources` it is the Debian that apt uses on this machine. `like` is the manifest of an earlier
    build, of which exactly the packages are used.
    """

    to: Path
    suite: str = ""
    sources: Sequence[str] = ()
    add: Sequence[str] = ()
    like: Path | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """A ramdisk. `sha256` and `sizes` (in bytes) are by name of the file."""

    folder: Path
    sha256: dict[str, str]
    sizes: dict[str, int]
    packages: int
    kernel: str


def build(request: Request, say: Callable[[str], None]) -> Result:
    """Build the ramdisk, and return it. `say` receives what is being done.

    Files of an earlier build are replaced once all new ones are there. Raises InvalidRequest, Conflict, DrydockError.
    """
    packages.check(request.suite, request.sources, request.add)
    pins = packages.read_pins(request.like) if request.like else []
    programs.require()
    epoch = _epoch()
    suite, sources = request.suite, list(request.sources)
    if not sources:
        suite, sources = packages.configured(suite)
    elif not suite:
        raise InvalidRequest("A source needs the name of its Debian release: --suite bookworm", field="suite")
    folder = _folder(request.to)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=folder) as name:
        work = Path(name)
        say(f"Downloading packages of Debian {suite}")
        archive = work / "packages.tar"
        found = packages.download(archive, suite, sources, request.add, pins, epoch=epoch)
        with tarfile.open(archive) as opened:
            tree = Tree(opened)
            kernel = tree.found("boot/vmlinuz-*")
            say(f"Packing {len(found)} packages")
            (work / "vmlinuz").write_bytes(tree.read(kernel))
            agent = _furnish(tree)
            _pack(tree, work / "initramfs", epoch)
            loaders = _loaders(tree)
        archive.unlink()
        say("Making the bootable image")
        iso.make(work, work / "ramdisk.iso", loaders, label=BOOT_LABEL, options=OPTIONS, epoch=epoch)
        manifest = _manifest(work, suite, sources, found, agent, epoch)
        (work / _MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
        for one in (*FILES, _MANIFEST):
            (work / one).chmod(0o644)
            (work / one).replace(folder / one)
    return Result(
        folder=folder, packages=len(found), kernel=kernel.removeprefix("boot/vmlinuz-"),
        sha256={one: manifest["files"][one]["sha256"] for one in FILES},
        sizes={one: manifest["files"][one]["bytes"] for one in FILES},
    )  # fmt: skip


def _epoch() -> int:
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not given:
        return EPOCH
    if not given.isascii() or not given.isdecimal() or not 315532800 <= int(given) < 1 << 32:
        raise InvalidRequest(
            f"SOURCE_DATE_EPOCH is {given!r:.40}, which is not a time in seconds since 1970, from 1980 to 2106."
        )
    return int(given)


def _folder(to: Path) -> Path:
    """Return the folder for the files, which is created. Raises Conflict, InvalidRequest."""
    try:
        to.mkdir(parents=True, exist_ok=True)
        folder = to.resolve()
        there = {one.name for one in folder.iterdir()}
    except OSError as error:
        raise InvalidRequest(f"{to} cannot be used as the folder: {error.strerror}.", field="to") from None
    if there.intersection(FILES) and _MANIFEST not in there:
        raise Conflict(
            f"{folder} has files that no earlier build has made: {', '.join(sorted(there.intersection(FILES)))}.",
            hint="Choose another folder.",
        )
    if not os.access(folder, os.W_OK):
        raise InvalidRequest(f"This account must not write to {folder}.", field="to")
    if (free := shutil.disk_usage(folder).free) < _LEAST_FREE:
        raise InvalidRequest(f"{folder} has {free >> 20} MiB left; building needs {_LEAST_FREE >> 20} MiB.", field="to")
    return folder


def _furnish(tree: Tree) -> drydock_agent.package.Package:
    """Add to the tree what does not come from packages, and return the agent in it."""
    for name, path, mode in _SYSTEM:
        tree.write(path, programs.read_text(name), mode)
    # What scripts of the packages would do if they ran.
    for name in ("passwd", "group"):
        tree.write(f"etc/{name}", tree.read(f"usr/share/base-passwd/{name}.master"))
    accounts = tree.read("usr/share/base-passwd/passwd.master").decode()
    more = "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\ntss:x:101:101::/run:/usr/sbin/nologin\n"
    tree.write("etc/passwd", accounts.replace("root:*:", "root:x:") + more)
    groups = tree.read("usr/share/base-passwd/group.master").decode()
    tree.write("etc/group", groups + "tss:x:101:\ninput:x:102:\nkvm:x:103:\nrender:x:104:\nsgx:x:105:\n")
    tree.write("etc/shadow", "root:*:19000:0:99999:7:::\n", 0o600)
    tree.write("etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n")
    tree.write("etc/hosts", "127.0.0.1 localhost drydock-ramdisk\n::1 localhost\n")
    tree.write("etc/hostname", "drydock-ramdisk\n")
    tree.write("etc/machine-id", "")
    tree.link("usr/bin/awk", "mawk")
    authorities = [tree.read(path) for path in tree.paths("usr/share/ca-certificates/*.crt")]
    tree.write("etc/ssl/certs/ca-certificates.crt", b"".join(one.rstrip(b"\n") + b"\n" for one in authorities))
    tree.link("usr/lib/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt")
    for name in ("dev", "proc", "sys", "run", "tmp", "mnt", "var/log", "var/tmp"):
        tree.folder(name, 0o1777 if name.endswith("tmp") else 0o755)
    tree.folder("root", 0o700)
    tree.device("dev/console", 5, 1)
    return _agent(tree)


def _agent(tree: Tree) -> drydock_agent.package.Package:
    """Add the agent of this installation."""
    agent = drydock_agent.package.build()
    with zipfile.ZipFile(io.BytesIO(agent.content)) as opened:
        for name in opened.namelist():
            if name != "__main__.py":
                tree.write(f"usr/lib/python3/dist-packages/{name}", opened.read(name))
    return agent


def _pack(tree: Tree, target: Path, epoch: int) -> None:
    """Write the tree as a compressed archive, as the kernel unpacks it."""
    words = ["zstd", "--quiet", f"-{_LEVEL}", "-T1", "-c"]
    with target.open("wb") as written, subprocess.Popen(words, stdin=subprocess.PIPE, stdout=written) as process:
        assert process.stdin is not None
        try:
            tree.pack(process.stdin, epoch=epoch)
        finally:
            process.stdin.close()
    if process.returncode:
        raise DrydockError(f"zstd failed (exit code {process.returncode}).")


def _loaders(tree: Tree) -> iso.Loaders:
    return iso.Loaders(
        shim=tree.read("usr/lib/shim/shimx64.efi.signed"), mok=tree.read("usr/lib/shim/mmx64.efi.signed"),
        grub=tree.read("usr/lib/grub/x86_64-efi-signed/gcdx64.efi.signed"),
        isolinux=tree.read("usr/lib/ISOLINUX/isolinux.bin"), hybrid=tree.read("usr/lib/ISOLINUX/isohdpfx.bin"),
        ldlinux=tree.read("usr/lib/syslinux/modules/bios/ldlinux.c32"),
    )  # fmt: skip


def _manifest(
    work: Path, suite: str, sources: Sequence[str], found: Sequence[packages.Package],
    agent: drydock_agent.package.Package, epoch: int,
) -> dict[str, Any]:  # fmt: skip
    """Return what the files were made from, so that others can make the same."""
    return {
        "suite": suite, "architecture": packages.ARCHITECTURE, "source_date_epoch": epoch,
        "sources": [packages.without_login(line) for line in sources],
        "agent": {"version": agent.version, "sha256": agent.sha256},
        "packages": [dataclasses.asdict(one) for one in found],
        "programs": programs.versions(),
        "kernel_options": OPTIONS,
        "files": {name: {"sha256": _sha256(work / name), "bytes": (work / name).stat().st_size} for name in FILES},
    }  # fmt: skip


def _sha256(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
