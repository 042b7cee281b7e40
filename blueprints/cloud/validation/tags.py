"""Names and tags of the machines of one validation. They differ from those of any lease."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from drydock.core import clock

PREFIX = "dd-validate-"
"""Prefix of the names of validation machines, which no lease's machine has."""
INSTALLATION, RESOURCE, PROOF = "drydock-installation", "drydock-resource", "drydock-proof"
PURPOSE, EXPIRES = "drydock-purpose", "drydock-expires"


@dataclass(frozen=True, kw_only=True)
class RunTags:
    """Names and tags of one run.

    `owner` takes the place of an installation's name, and differs from it: status polls do not count these machines,
    and searches for orphans ignore them. `proof` returns the proof of ownership for a name, by which leftovers of
    earlier runs are recognized.
    """

    owner: str
    run: str
    expires_at: dt.datetime
    """The time after which leftovers of the run may be deleted."""
    proof: Callable[[str], str] = lambda key: ""

    def key(self, part: str) -> str:
        """Return the name of the objects that one check creates."""
        return f"{PREFIX}{self.run}-{part}"

    def tags(self, key: str) -> dict[str, str]:
        """Return the tags of everything under a name."""
        said = {
            INSTALLATION: self.owner, RESOURCE: self.run, PROOF: self.proof(key), PURPOSE: "validation",
            EXPIRES: str(int(self.expires_at.timestamp())),
        }  # fmt: skip
        return {name: value for name, value in said.items() if value}

    @property
    def of_run(self) -> Mapping[str, str]:
        """Return only the tags that all objects created by this run share."""
        return {INSTALLATION: self.owner, RESOURCE: self.run}


def run_tags(owner: str, *, lasts: float = 4 * 3600.0, proof: Callable[[str], str] = lambda key: "") -> RunTags:
    """Return the tags of a new run. `lasts` is the number of seconds until its leftovers may be deleted."""
    expires_at = clock.now() + dt.timedelta(seconds=lasts)
    return RunTags(owner=owner, run=secrets.token_hex(4), expires_at=expires_at, proof=proof)
