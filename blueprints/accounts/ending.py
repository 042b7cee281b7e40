"""The end of an account of a lease, or of its part in the shared account; each step may be repeated at any time."""

from __future__ import annotations

from blueprints.accounts import scripts
from blueprints.hosts import LEASE_VARIABLE
from blueprints.hostshell import HostShell

SHARED_FOLDER = ".drydock-leases"


def vanished(there: HostShell, user: str, home: str) -> bool:
    """Everything of an account: access, processes, files, the account; True when nothing is left."""
    close(there, user)
    if there.end_account(user) or not files_removed(there, user, home):
        return False
    remove(there, user, home)
    return True


def close(there: HostShell, user: str) -> None:
    """Nothing new begins for the account."""
    there.as_root(scripts.CLOSE_ACCESS, user)


def files_removed(there: HostShell, user: str, home: str) -> bool:
    """True when the home is gone and nothing of the account lies where all may write."""
    return there.sweep_account(user) and there.remove_tree(home, root=True)


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
