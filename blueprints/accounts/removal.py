"""Removal of a lease's account, or of its part in the shared account; every step may be repeated at any time."""

from __future__ import annotations

from blueprints.accounts import scripts
from blueprints.hosts import LEASE_VARIABLE
from blueprints.hostshell import HostShell
from interfaces.errors import CommandFailed, DeadlineExceeded

SHARED_FOLDER = ".drydock-leases"


def vanished(there: HostShell, user: str, home: str) -> bool:
    """Remove the access, processes and files of an account. Return whether nothing of them is left."""
    close(there, user)
    if there.end_account(user) or not files_removed(there, user, home):
        return False
    if not there.remove_tree(aside_of(home), root=True):
        return False
    remove(there, user, home)
    return True


def close(there: HostShell, user: str) -> None:
    """Prevent new logins and processes for the account."""
    there.as_root(scripts.CLOSE_ACCESS, user)


def files_removed(there: HostShell, user: str, home: str) -> bool:
    """Remove the account's home and its files in shared folders. Return whether all of them are gone."""
    return there.sweep_account(user, homes=home.rpartition("/")[0]) and there.remove_tree(home, root=True)


def put_aside(there: HostShell, home: str) -> str:
    """Move a home that cannot be removed to a folder that only root can enter. Raises CommandFailed."""
    there.as_root(scripts.PUT_ASIDE, home)
    return home


def tidied(there: HostShell, homes: str, begins: str) -> list[str]:
    """Retry the removal of homes that were set aside, and of their accounts. Return the ones that remain."""
    left, users = [], there.as_root(scripts.PUT_ASIDE_THERE, homes, begins).split()
    for user in users:
        home = f"{homes}/{user}"
        try:
            gone = not there.tired and vanished(there, user, home)
        except (CommandFailed, DeadlineExceeded):
            gone = False
        left += [] if gone else [home]
    if users and not left:
        there.as_root(scripts.PUT_ASIDE_THERE, homes, begins)
    return left


def aside_of(home: str) -> str:
    """Return the path, accessible only to root, to which a home that cannot be removed is moved."""
    homes, _, user = home.rpartition("/")
    return f"{homes}/{scripts.ASIDE}/{user}"


def remove(there: HostShell, user: str, home: str) -> None:
    """Remove the account itself. Raises CommandFailed."""
    there.as_root(scripts.REMOVE_ACCOUNT, user, home)


def shared_close(there: HostShell, user: str) -> None:
    """Remove the lease's keys from the shared account."""
    there.run(scripts.SHARED_CLOSE, f"drydock:{user}")


def shared_ended(there: HostShell, user: str, lease_key: str, *, whole: bool) -> bool:
    """End the processes that bear the lease's mark or work in its folder.

    Return whether none is left or, if `whole` is true, whether the shared account runs nothing except this connection.
    """
    home, uid = there.run("cd && pwd -P && id -u").splitlines()
    left = there.end_marked(f"{LEASE_VARIABLE}={lease_key}", f"{home}/{SHARED_FOLDER}/{user}")
    return not left and not (whole and there.end_account(uid, root=False))


def shared_removed(there: HostShell, user: str) -> bool:
    """Remove the lease's folder in the shared account. Return whether the folder is gone."""
    home = there.run("cd && pwd -P").rstrip("\n")
    return there.remove_tree(f"{home}/{SHARED_FOLDER}/{user}", root=False)
