"""Whose the machines of a validation are: names, tags and an end, all told from those of an installation's leases."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from drydock.core import clock

PREFIX = "dd-validate-"
"""How their names begin, and no lease's machine's."""
INSTALLATION, RESOURCE, PROOF = "drydock-installation", "drydock-resource", "drydock-proof"
PURPOSE, EXPIRES = "drydock-purpose", "drydock-expires"


@dataclass(frozen=True, kw_only=True)
class Marks:
    """Of one run. `owner` stands where an installation's own name stands on machines of leases, and is another word:
    no status reading counts them, and no search for orphans judges them. `proof` proves a name to whoever made it."""

    owner: str
    run: str
    expires_at: dt.datetime
    """By then nobody needs them any more."""
    proof: Callable[[str], str] = lambda key: ""

    def key(self, part: str) -> str:
        """The name of what one check makes."""
        return f"{PREFIX}{self.run}-{part}"

    def tags(self, key: str) -> dict[str, str]:
        """What all that stands under a name bears."""
        said = {
            INSTALLATION: self.owner, RESOURCE: self.run, PROOF: self.proof(key), PURPOSE: "validation",
            EXPIRES: str(int(self.expires_at.timestamp())),
        }  # fmt: skip
        return {name: value for name, value in said.items() if value}

    @property
    def of_run(self) -> Mapping[str, str]:
        """The tags that all of a run share, and nothing else bears."""
        return {INSTALLATION: self.owner, RESOURCE: self.run}


def marks(owner: str, *, lasts: float = 4 * 3600.0, proof: Callable[[str], str] = lambda key: "") -> Marks:
    """Marks of a new run. `lasts`: seconds until what is left of it is to be thrown away at sight."""
    expires_at = clock.now() + dt.timedelta(seconds=lasts)
    return Marks(owner=owner, run=secrets.token_hex(4), expires_at=expires_at, proof=proof)
