"""The files of the ramdisk: what is taken from the packages, what is added, and the archive that the kernel unpacks."""

from __future__ import annotations

import dataclasses
import fnmatch
import posixpath
import re
import tarfile
from collections.abc import Iterator
from typing import IO

from drydock.core.errors import DrydockError

DROPPED = (
    # For people, for other languages, and for the installation of packages.
    "usr/share/doc/*", "usr/share/man/*", "usr/share/locale/*", "usr/share/info/*", "usr/share/lintian/*",
    "usr/share/bug/*", "usr/share/bash-completion/*", "usr/share/zsh/*", "usr/share/menu/*", "usr/share/pixmaps/*",
    "usr/share/doc-base/*", "usr/share/common-licenses/*", "usr/share/debconf/*", "usr/include/*", "usr/games/*",
    "var/lib/dpkg/*", "var/lib/apt/*", "var/cache/*", "etc/apt/*", "etc/cron*", "etc/init.d/*", "etc/kernel/*",
    "etc/logrotate.d/*", "etc/dpkg/*", "etc/debconf.conf",
    # Of the machine that builds.
    "etc/resolv.conf", "etc/hostname", "dev/*",
    # What dependencies bring and nothing uses: Perl for scripts that do not run, GRUB and initramfs-tools.
    "usr/bin/perl*", "usr/share/perl*", "usr/lib/x86_64-linux-gnu/perl*", "usr/lib/x86_64-linux-gnu/libperl*",
    "etc/perl/*", "usr/lib/usrmerge/*", "usr/lib/grub/*", "usr/share/grub/*", "usr/bin/grub-*", "usr/sbin/grub-*",
    "usr/lib/shim/*", "usr/lib/ISOLINUX/*", "usr/lib/syslinux/*", "usr/share/syslinux/*", "usr/share/initramfs-tools/*",
    "usr/lib/initramfs-tools/*", "etc/initramfs-tools/*", "etc/grub.d/*", "boot/*", "usr/lib/systemd/system/*",
    "usr/lib/python3*/idlelib/*", "usr/lib/python3*/lib2to3/*", "usr/lib/python3*/pydoc_data/*",
    "usr/lib/python3*/ensurepip/*",
    # Drivers of devices that servers do not boot from or are reached by.
    *(f"usr/lib/modules/*/kernel/{name}/*" for name in (
        "sound", "drivers/gpu", "drivers/media", "drivers/bluetooth", "drivers/staging", "drivers/iio",
        "drivers/comedi", "drivers/isdn", "drivers/net/wireless", "drivers/net/can", "drivers/net/wwan",
        "drivers/input/touchscreen", "drivers/input/joystick", "drivers/input/tablet", "drivers/video",
        "drivers/infiniband", "drivers/mtd", "drivers/w1", "drivers/nfc", "drivers/gnss", "drivers/target",
        "net/bluetooth", "net/mac80211", "net/wireless", "net/can", "net/nfc", "net/sunrpc", "net/netfilter",
        "net/rxrpc", "net/tipc", "net/batman-adv", "fs/smb", "fs/nfs", "fs/nfsd", "fs/ocfs2", "fs/ceph", "fs/afs",
        "fs/gfs2", "fs/btrfs", "fs/f2fs", "fs/ubifs", "fs/jfs", "fs/reiserfs", "fs/xfs", "fs/dlm",
    )),
    "usr/lib/modules/*/kernel/lib/test_*",
)  # fmt: skip
"""Patterns of paths that the ramdisk does not have. `*` also stands for slashes."""
_MERGED = re.compile(r"\A(bin|sbin|lib|lib32|lib64|libx32)(?=/|\Z)")
_DROPPED = re.compile("|".join(fnmatch.translate(pattern) for pattern in DROPPED))
_FILE, _FOLDER, _LINK, _DEVICE = 0o100000, 0o040000, 0o120000, 0o020000
_CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A file, a folder, a link or a device. `member` is where the content is in the archive of the packages."""

    mode: int
    content: bytes = b""
    member: tarfile.TarInfo | None = None
    device: tuple[int, int] = (0, 0)

    @property
    def size(self) -> int:
        """The size of the content in bytes."""
        return self.member.size if self.member is not None else len(self.content)


class Tree:
    """Files by path, without a slash at the beginning. All belong to root."""

    def __init__(self, packages: tarfile.TarFile) -> None:
        self._packages = packages
        self._entries: dict[str, Entry] = {}
        self._all: dict[str, tarfile.TarInfo] = {}
        for member in packages:
            path = _merged(posixpath.normpath(member.name).lstrip("/"))
            if path != ".":
                self._all[path] = member
        for path, member in self._all.items():
            if not _DROPPED.match(path):
                self._take(path, member)
        for name in ("bin", "sbin", "lib", "lib64"):
            self.link(name, f"usr/{name}")

    def _take(self, path: str, member: tarfile.TarInfo) -> None:
        # Set-user-ID bits and the like are for accounts besides root, which the ramdisk does not have.
        mode = member.mode & 0o777
        if member.isdir():
            self._entries[path] = Entry(mode=_FOLDER | (member.mode & 0o1777))
        elif member.issym():
            self.link(path, _target(path, member))
        elif member.islnk():
            found = self._all.get(_merged(posixpath.normpath(member.linkname).lstrip("/")))
            if found is not None and found.isreg():
                self._entries[path] = Entry(mode=_FILE | mode, member=found)
        elif member.isreg():
            self._entries[path] = Entry(mode=_FILE | mode, member=member)

    def folder(self, path: str, mode: int = 0o755) -> None:
        """Add a folder."""
        self._entries[path] = Entry(mode=_FOLDER | mode)

    def write(self, path: str, content: bytes | str, mode: int = 0o644) -> None:
        """Add or replace a file."""
        stored = content.encode() if isinstance(content, str) else content
        self._entries[path] = Entry(mode=_FILE | mode, content=stored)

    def link(self, path: str, target: str) -> None:
        """Add or replace a symbolic link."""
        self._entries[path] = Entry(mode=_LINK | 0o777, content=target.encode())

    def device(self, path: str, major: int, minor: int) -> None:
        """Add a character device."""
        self._entries[path] = Entry(mode=_DEVICE | 0o600, device=(major, minor))

    def found(self, pattern: str) -> str:
        """Return the last path in the packages that matches, by name. Raises DrydockError if there is none."""
        if not (paths := sorted(fnmatch.filter(self._all, pattern))):
            raise DrydockError(f"No package contains the file {pattern}, which the ramdisk needs.")
        return paths[-1]

    def paths(self, pattern: str) -> list[str]:
        """Return the paths in the packages that match, sorted."""
        return sorted(fnmatch.filter(self._all, pattern))

    def read(self, path: str) -> bytes:
        """Return the content of a file of the packages, also if it is dropped. Raises DrydockError."""
        member = self._all.get(path)
        content = self._packages.extractfile(member) if member is not None and member.isreg() else None
        if content is None:
            raise DrydockError(f"No package contains the file {path}, which the ramdisk needs.")
        return content.read()

    def pack(self, target: IO[bytes], *, epoch: int) -> None:
        """Write the archive that the kernel unpacks (cpio, format newc), with `epoch` as the time of all files."""
        self._add_folders()
        for number, (path, entry) in enumerate([*sorted(self._entries.items()), ("TRAILER!!!", Entry(mode=0))], 1):
            links = 2 if entry.mode & 0o170000 == _FOLDER else 1
            name = path.encode() + b"\0"
            fields = (number, entry.mode, 0, 0, links, epoch, entry.size, 0, 0, *entry.device, len(name), 0)
            target.write(b"070701" + b"".join(b"%08X" % field for field in fields) + name)
            target.write(b"\0" * (-(110 + len(name)) % 4))
            for chunk in self._content(entry):
                target.write(chunk)
            target.write(b"\0" * (-entry.size % 4))

    def _add_folders(self) -> None:
        """Add the folders above all entries, which the kernel does not create by itself."""
        for path in list(self._entries):
            parent = posixpath.dirname(path)
            while parent and parent not in self._entries:
                self._entries[parent] = Entry(mode=_FOLDER | 0o755)
                parent = posixpath.dirname(parent)

    def _content(self, entry: Entry) -> Iterator[bytes]:
        if entry.member is None:
            yield entry.content
            return
        opened = self._packages.extractfile(entry.member)
        assert opened is not None
        while chunk := opened.read(_CHUNK):
            yield chunk


def _target(path: str, member: tarfile.TarInfo) -> str:
    """Return the target of a link, which is made absolute if the link has moved."""
    came_from = posixpath.normpath(member.name).lstrip("/")
    if came_from == path or member.linkname.startswith("/"):
        return member.linkname
    return "/" + _merged(posixpath.normpath(posixpath.join(posixpath.dirname(came_from), member.linkname)))


def _merged(path: str) -> str:
    """Return where a path is once /bin, /lib and the like are links into /usr, as in every Debian since 12."""
    return _MERGED.sub(r"usr/\1", path, count=1)
