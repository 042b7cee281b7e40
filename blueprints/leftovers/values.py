"""Frozen values of the leftover suite: rows of the table, and findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Row:
    """A way in which something could outlive its lease.

    The scripts are for /bin/sh. They know `$t` (a word that no other run and no other row has), `$note` (the last line
    that `plant` printed), `$was` (the planting lease's home), `$uid` (its uid), `$copy` (where its commands begin) and
    the functions in `blueprints.leftovers.programs`.
    """

    name: str
    proves: str
    plant: str = ""
    look: str
    undo: str = ""
    """Script that removes what the row has left, so that a validation leaves nothing on an operator's host."""
    accomplice: str = ""
    """Script that a second lease runs before `plant`; its output becomes the `$note` of `plant`. The second lease also
    looks for such a row."""
    after: str = ""
    """Script that the second lease runs after `plant`, with the note that `plant` printed."""
    arm: str = ""
    """Script that runs last in the planting lease, for effects that would prevent other rows from being planted."""
    tools: tuple[str, ...] = ()
    """Programs that the host must have."""
    job: bool = False
    """Whether the row is planted as a job of the command interface; `plant` is then the job's command line."""
    seen_at_once: bool = True
    """Whether `look` finds the row while its lease lives. False if looking is itself the attack, or if the row may have
    no effect."""
    rests: bool = False
    """Whether the row matters only if the next lease has the same uid. Such a row cannot be removed, but does no harm,
    because uids are rotated and rest before they are used again."""
    own_account: bool = False
    """Whether the row is only tried in an account that the lease does not share, because it would affect the operator's
    own work."""
    shared: str = ""
    """Why the row may survive a lease that shares its account with others; empty if it must not survive."""


class Verdict(StrEnum):
    """The outcome of a row."""

    OK = "ok"
    """The row was planted, and nothing of it is left."""
    SURVIVED = "SURVIVED"
    SHARED = "shared"
    """The row survived in an account that leases share with Drydock itself, as documented."""
    NOT_POSSIBLE = "not possible"
    """The row could not be planted, or no party could look for it."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The outcome of one row, an explanation, and the conclusion to draw if the row survived."""

    row: str
    verdict: Verdict
    message: str
    proves: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """All findings, in the order of the table.

    `token` is the prefix of the name of everything that was planted; `unanswered` explains why a lease that should have
    looked did not.
    """

    token: str
    findings: tuple[Finding, ...]
    unanswered: str = ""

    @property
    def ok(self) -> bool:
        """Return whether something was planted and every row that must not survive is gone."""
        return not self.survived and not self.unanswered and any(one.verdict is Verdict.OK for one in self.findings)

    @property
    def survived(self) -> tuple[str, ...]:
        """Names of the rows that survived but must not."""
        return self.names(Verdict.SURVIVED)

    def names(self, verdict: Verdict) -> tuple[str, ...]:
        """Return the names of the rows with this verdict."""
        return tuple(one.row for one in self.findings if one.verdict is verdict)

    def to_json(self) -> Mapping[str, Any]:
        """Return the report as one JSON object."""
        return {
            "token": self.token, "ok": self.ok, "survived": list(self.survived),
            "unanswered": self.unanswered,
            "rows": [
                {"row": one.row, "verdict": one.verdict.value, "message": one.message, "proves": one.proves}
                for one in self.findings
            ],
        }  # fmt: skip
