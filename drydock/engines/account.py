"""The user id under which an engine runs. If Drydock runs as root, it is an unused id, and no user is added.

PostgreSQL refuses to run as root. Only its `initdb` needs an entry in the password file, so the cluster is created by
an account that every system has (`nobody`, in a folder that only our group can enter) and then given to the unused id.
"""

from __future__ import annotations

import dataclasses
import os
import pwd
import stat
import zlib
from pathlib import Path
from typing import Any

from drydock.engines.errors import EngineError

# Neither Debian's nor systemd's ranges (systemd: "60578…61183 unused").
FREE = range(60900, 61000)


@dataclasses.dataclass(frozen=True)
class Account:
    """A user id and a group id under which to run a program. None means the ids of this process."""

    uid: int | None = None
    gid: int | None = None

    def arguments(self) -> dict[str, Any]:
        """Return keywords for subprocess that make the child run under this account."""
        if self.uid is None:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def owns(self, path: Path) -> None:
        """Change the owner of a tree to this account."""
        if self.uid is None or self.gid is None:
            return
        for folder, folders, files in os.walk(path):
            for name in (folder, *(os.path.join(folder, entry) for entry in folders + files)):
                os.chown(name, self.uid, self.gid, follow_symlinks=False)


def engine_account(wanted: int, data: Path) -> Account:
    """Return the account for the engines of a state folder: the owner of its data, else `wanted` or a free one."""
    if os.geteuid() != 0:
        return Account()
    require_passage(data)
    kept = data.stat().st_uid if data.exists() else 0
    uid: int = kept or wanted or _free(data)
    return Account(uid, uid)


def creator_account(account: Account) -> Account:
    """Return the account that creates the cluster: it has a password file entry, and is in the engine's own group."""
    if account.uid is None:
        _require_name(os.geteuid())
        return account
    for name in ("nobody", "daemon", "bin"):
        try:
            return Account(pwd.getpwnam(name).pw_uid, account.gid)
        except KeyError:
            continue
    raise EngineError("This system has no account named nobody, daemon or bin to create the database with.")


def closed_folder(path: Path) -> Path | None:
    """Return the first folder above a path that other accounts cannot pass through, or None."""
    return next((part for part in reversed(path.resolve().parents) if not part.stat().st_mode & stat.S_IXOTH), None)


def require_passage(path: Path) -> None:
    """Raise EngineError if an unprivileged account cannot reach a path. Never changes permissions."""
    if closed := closed_folder(path):
        raise EngineError(
            f"As root the engines run under an unprivileged account, which cannot pass through {closed}.",
            hint="Set DRYDOCK_STATE to a folder like /var/lib/drydock.",
        )


def _require_name(uid: int) -> None:
    try:
        pwd.getpwuid(uid)
    except KeyError as error:
        raise EngineError(
            f"User id {uid} has no name on this system, and PostgreSQL needs one to create its files.",
            hint="Add a line for it to /etc/passwd, or set DATABASE_URL to a server of your own.",
        ) from error


def _free(data: Path) -> int:
    first = zlib.crc32(os.fsencode(data)) % len(FREE)
    candidates: list[int] = [*FREE[first:], *FREE[:first]]
    for uid in candidates:
        try:
            pwd.getpwuid(uid)
        except KeyError:
            return uid
    raise EngineError("All user ids from 60900 to 60999 are in use.", hint="Set DRYDOCK_ENGINE_ACCOUNT.")
