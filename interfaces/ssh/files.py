"""Files on a host over SFTP, confined to one folder.

SFTP knows only paths, so confinement is checked before each operation: the server resolves the parent folder of the
path, which must be inside the root. A link that is swapped between the check and the operation can still lead outside.
The server has only the rights of the lease's own account, so this gives no access beyond that of the `command`
interface.
"""

from __future__ import annotations

import errno
import posixpath
import stat

import paramiko

from interfaces.errors import FileError, PathEscape, PathMissing
from interfaces.files import MOST_LISTED, Entry, Files, Kind, Mode, OpenFile, file_error, too_many
from interfaces.ssh.sftp import Sessions, SftpFile, SftpSession, listed

_MODES = {"read": "r", "write": "w", "create": "wx", "append": "a"}


class SftpFiles(Files):
    """Files over SFTP. A relative root is below the endpoint's home or, if that is not set, the account's home."""

    def __init__(self, sessions: Sessions, root: str, *, home: str = "") -> None:
        self.root = posixpath.join(home, root) if home else root
        self._session = SftpSession(sessions)
        self._real_root = ""

    def stat(self, path: str, *, follow: bool = True) -> Entry:
        with self._session.client(path) as client:
            found = client.lstat(self._resolved(client, path, follow=follow))
        return _entry(posixpath.basename(path), found)

    def list(self, path: str, *, most: int = MOST_LISTED) -> list[Entry]:
        with self._session.client(path) as client:
            found = listed(client, self._resolved(client, path, follow=True), most)
        if len(found) > most:
            raise too_many(most, path)
        return sorted((_entry(each.filename, each) for each in found), key=lambda entry: entry.name)

    def open(self, path: str, mode: Mode, *, permissions: int = 0o644) -> OpenFile:
        with self._session.client(path) as client:
            full = self._resolved(client, path, follow=mode != "create")
            new = mode != "read" and _lstat(client, full) is None
            if not new:
                self._only_regular(client, full, path, mode)
            try:
                opened = client.open(full, _MODES[mode])
            except OSError as error:
                if mode == "create" and _lstat(client, full) is not None:
                    raise file_error(errno.EEXIST, "The path already exists", path) from error
                raise
            if new:
                opened.chmod(permissions)
            size = 0 if new else opened.stat().st_size or 0
            opened.set_pipelined(mode != "read")
        return SftpFile(self._session, opened, path, size)

    def mkdir(self, path: str, *, permissions: int = 0o755) -> None:
        with self._session.client(path) as client:
            full = self._resolved(client, path, follow=False)
            if _lstat(client, full) is not None:
                raise file_error(errno.EEXIST, "The path already exists", path)
            client.mkdir(full, permissions)

    def rename(self, source: str, target: str) -> None:
        with self._session.client(source) as client:
            old = self._resolved(client, source, follow=False)
            if _lstat(client, old) is None:
                raise PathMissing(f"No such file or folder: {source!r}.")
            client.posix_rename(old, self._resolved(client, target, follow=False))

    def unlink(self, path: str) -> None:
        with self._session.client(path) as client:
            full = self._resolved(client, path, follow=False)
            if stat.S_ISDIR(client.lstat(full).st_mode or 0):
                raise file_error(errno.EISDIR, "The path is a folder", path)
            client.remove(full)

    def rmdir(self, path: str) -> None:
        with self._session.client(path) as client:
            full = self._resolved(client, path, follow=False)
            if not stat.S_ISDIR(client.lstat(full).st_mode or 0):
                raise file_error(errno.ENOTDIR, "The path is not a folder", path)
            if listed(client, full, 2):
                raise file_error(errno.ENOTEMPTY, "The folder is not empty", path)
            client.rmdir(full)

    def symlink(self, target: str, path: str) -> None:
        with self._session.client(path) as client:
            client.symlink(target, self._resolved(client, path, follow=False))

    def readlink(self, path: str) -> str:
        with self._session.client(path) as client:
            return str(client.readlink(self._resolved(client, path, follow=False)))

    def chmod(self, path: str, permissions: int) -> None:
        with self._session.client(path) as client:
            full = self._resolved(client, path, follow=False)
            if stat.S_ISLNK(client.lstat(full).st_mode or 0):
                raise PathEscape(f"The permissions of a link cannot be changed: {path!r}.")
            client.chmod(full, permissions)

    def sync(self, path: str) -> None:
        """Do nothing, because SFTP has no sync request."""

    def close(self) -> None:
        self._session.close()

    def _resolved(self, client: paramiko.SFTPClient, path: str, *, follow: bool) -> str:
        if not self._real_root:
            self._real_root = client.normalize(self.root or ".")
        if not path:
            return self._real_root
        folder, last = posixpath.split(path)
        parent = self._inside(client, posixpath.join(self._real_root, folder), path)
        full = posixpath.join(parent, last)
        found = _lstat(client, full) if follow else None
        if found is not None and stat.S_ISLNK(found.st_mode or 0):
            return self._inside(client, full, path)
        return full

    def _inside(self, client: paramiko.SFTPClient, full: str, path: str) -> str:
        real = client.normalize(full)
        if real != self._real_root and not real.startswith(self._real_root.rstrip("/") + "/"):
            raise PathEscape(f"A link leads outside the folder of this lease: {path!r}.")
        return real

    def _only_regular(self, client: paramiko.SFTPClient, full: str, path: str, mode: Mode) -> None:
        found = client.lstat(full).st_mode or 0
        if mode == "create":
            raise file_error(errno.EEXIST, "The path already exists", path)
        if not stat.S_ISREG(found):
            raise file_error(errno.EINVAL, "Not a regular file", path)


def _lstat(client: paramiko.SFTPClient, full: str) -> paramiko.SFTPAttributes | None:
    try:
        return client.lstat(full)
    except FileNotFoundError:
        return None


def _entry(name: str, found: paramiko.SFTPAttributes) -> Entry:
    if "/" in name or name in (".", "..") or "\0" in name:
        raise FileError(f"The host listed a file {name!r}, which is not a valid name.")
    kinds: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    mode = found.st_mode or 0
    return Entry(
        name=name,
        kind=kinds.get(stat.S_IFMT(mode), "other"),
        size=found.st_size or 0,
        permissions=stat.S_IMODE(mode),
        modified=float(found.st_mtime or 0),
    )
