"""Frozen values of the leftover suite: a row of the table, and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to survive the end of a lease.

    The scripts are for /bin/sh. They know `$t` (a word that no other run and no other row has), `$note` (the last line
    that `plant` printed), `$was` (the planting lease's home), `$uid` (its uid), `$copy` (where its commands begin) and
    the functions in `blueprints.leftovers.programs`. `plant` ends with 3 where the row is not possible on the host,
    and says why. `look` ends with 0 when it is there, 1 when it is gone, and 3 when it cannot tell.
    """

    name: str
    proves: str
    plant: str = ""
    look: str
    undo: str = ""
    """Removes what the row has left: nothing of a validation stays on an operator's host."""
    accomplice: str = ""
    """Run by a second lease beside, before `plant`; what it prints is the `$note` of `plant`. Such a row is looked for
    by that lease."""
    after: str = ""
    """Run by the second lease after `plant`, with its note."""
    arm: str = ""
    """Run at the very end of the planting lease: what would be in the way of planting other rows."""
    tools: tuple[str, ...] = ()
    """Programs that the host must have."""
    job: bool = False
    """Planted through the jobs of the command interface; `plant` is the job's line."""
    seen_at_once: bool = True
    """Whether `look` finds it while its lease lives. False: to look is the attack itself, or it may have no effect."""
    rests: bool = False
    """Whether it only matters where the next lease has the same uid: an account's number that goes round and rests
    keeps it from doing harm, though nobody can take it away."""
    own_account: bool = False
    """Only tried where the lease's account is nobody else's: it would hit the operator's own work."""
    shared: str = ""
    """Why it outlives a lease that shares its account with others; empty: it must not."""


class Verdict(StrEnum):
    """What came of a row."""

    OK = "ok"
    """It was planted, and nothing of it is left."""
    SURVIVED = "SURVIVED"
    SHARED = "shared"
    """It survived in an account that leases share with Drydock itself, where that is documented."""
    NOT_POSSIBLE = "not possible"
    """It could not be planted, or nobody could look for it."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What came of one row, a sentence about it, and what it would prove."""

    row: str
    verdict: Verdict
    message: str
    proves: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """All findings, in the order of the table. `token` begins the name of everything that was planted; `unanswered`
    says why a lease that should have looked did not."""

    token: str
    findings: tuple[Finding, ...]
    unanswered: str = ""

    @property
    def ok(self) -> bool:
        """Whether something was planted and nothing survived that must not."""
        return not self.survived and not self.unanswered and any(one.verdict is Verdict.OK for one in self.findings)

    @property
    def survived(self) -> tuple[str, ...]:
        """Names of the rows that survived and must not."""
        return self.names(Verdict.SURVIVED)

    def names(self, verdict: Verdict) -> tuple[str, ...]:
        """Names of the rows with this verdict."""
        return tuple(one.row for one in self.findings if one.verdict is verdict)

    def to_json(self) -> Mapping[str, Any]:
        """As one JSON object."""
        return {
            "token": self.token, "ok": self.ok, "survived": list(self.survived),
            "unanswered": self.unanswered,
            "rows": [
                {"row": one.row, "verdict": one.verdict.value, "message": one.message, "proves": one.proves}
                for one in self.findings
            ],
        }  # fmt: skip
