"""Those who look at this machine past its leases, for the leftover suite."""

from __future__ import annotations

import subprocess

from blueprints.leftovers import NAMES, ROWS, Outside, Run

NEVER_HERE = {"immutable", "at", "systemd-user", "linger", "fuse"}
"""Rows that need a tool, a service or a right that machines of the tests mostly lack."""
OF_REPOSITORIES = {"git-hooks", "git-config", "git-commits"}
OF_NEIGHBOURS = {"setuid-elsewhere", "setuid-descriptor", "thread-with-the-uid"}
OF_PAGES = {"home-file", "odd-names", "deep-folders", "closed-folders"}
"""Rows that need no commands."""
PER_ACCOUNT = {row.name for row in ROWS if row.shared or row.own_account}
"""Rows that say nothing of an account that leases share."""
ALWAYS = frozenset(NAMES) - NEVER_HERE - OF_REPOSITORIES - OF_NEIGHBOURS - {"cron"}


def as_uid(uid: int) -> Run:
    """Programs with the rights of an account, whether or not it has a name."""
    words = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"] if uid else []

    def run(text: bytes) -> str:
        done = subprocess.run([*words, "/bin/sh", "-s"], input=text, capture_output=True, timeout=100, cwd="/")
        return done.stdout.decode(errors="replace")

    return run


HERE = Outside(root=as_uid(0), account=as_uid)
"""Root on this machine."""
