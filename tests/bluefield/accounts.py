"""A lease on a host with a real account, from which a BMC fetches an image by SCP."""

from __future__ import annotations

import pwd
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from blueprints.specs import LeaseView
from tests.bluefield.rshim import host_lease
from tests.blueprints.host_peers import Server


def lease_in(server: Server, account: str, **changes: Any) -> LeaseView:
    """Return a lease on the host behind an SSH server, whose account this is.

    `changes` are other values of its control connection.
    """
    made = pwd.getpwnam(account)
    found = host_lease(server, server.folder)
    control = found.control()
    assert control is not None
    there = replace(control, **{"uid": made.pw_uid, "gid": made.pw_gid, "home": made.pw_dir, **changes})
    other = replace(found.resource, id=5, key="host5", name="images")  # not the host of the card
    return replace(found, resource=other, controlled=lambda _: there)


def clear(account: str) -> None:
    """Remove what a build has put into the home of the account, as the end of its lease does."""
    for name in (".ssh", ".drydock-dpu"):
        shutil.rmtree(Path(pwd.getpwnam(account).pw_dir) / name, ignore_errors=True)
