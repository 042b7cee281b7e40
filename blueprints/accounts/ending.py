"""The end of an account of a lease, or of its part in the shared account; each step may be repeated at any time."""

from __future__ import annotations

from blueprints.accounts import scripts
from blueprints.hosts import LEASE_VARIABLE
from blueprints.hostshell import HostShell
from interfaces.errors import CommandFailed, DeadlineExceeded

SHARED_FOLDER = ".drydock-leases"


def vanished(there: HostShell, user: str, home: str) -> bool:
    """Everything of an account: access, processes, files, the account; True when nothing is left."""
    close(there, user)
    if there.end_account(user) or not files_removed(there, user, home):
        return False
    if not there.remove_tree(aside_of(home), root=True):
        return False
    remove(there, user, home)
    return True


def close(there: HostShell, user: str) -> None:
    """Nothing new begins for the account."""
    there.as_root(scripts.CLOSE_ACCESS, user)


def files_removed(there: HostShell, user: str, home: str) -> bool:
    """True when the home is gone and nothing of the account lies where all may write."""
    return there.sweep_account(user, homes=home.rpartition("/")[0]) and there.remove_tree(home, root=True)


def put_aside(there: HostShell, home: str) -> str:
    """Move a home that cannot be removed to where root alone comes. Raises CommandFailed."""
    there.as_root(scripts.PUT_ASIDE, home)
    return home


def tidied(there: HostShell, homes: str, begins: str) -> list[str]:
    """Try again to remove the homes that were put aside, with their accounts; those that are left."""
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
    """The folder of root's into which a home is put that cannot be removed."""
    homes, _, user = home.rpartition("/")
    return f"{homes}/{scripts.ASIDE}/{user}"


def remove(there: HostShell, user: str, home: str) -> None:
    """The account itself. Raises CommandFailed when it cannot be removed."""
    there.as_root(scripts.REMOVE_ACCOUNT, user, home)


def shared_close(there: HostShell, user: str) -> None:
    """The lease's keys no longer open the shared account."""
    there.run(scripts.SHARED_CLOSE, f"drydock:{user}")


def shared_ended(there: HostShell, user: str, lease_key: str, *, whole: bool) -> bool:
    """True when nothing runs that bears the lease's mark or works in its folder; with `whole`, when the shared
    account runs nothing at all but our own connection."""
    home, uid = there.run("cd && pwd -P && id -u").splitlines()
    left = there.end_marked(f"{LEASE_VARIABLE}={lease_key}", f"{home}/{SHARED_FOLDER}/{user}")
    return not left and not (whole and there.end_account(uid, root=False))


def shared_removed(there: HostShell, user: str) -> bool:
    """True when the lease's folder in the shared account is gone."""
    home = there.run("cd && pwd -P").rstrip("\n")
    return there.remove_tree(f"{home}/{SHARED_FOLDER}/{user}", root=False)
