"""One run of the suite: plant the rows with one lease, look for them after it has ended, and remove what is left."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from blueprints.leftovers.files import FILES
from blueprints.leftovers.kernel import KERNEL
from blueprints.leftovers.parties import Outside, Pages, Party
from blueprints.leftovers.processes import PROCESSES
from blueprints.leftovers.programs import HELPERS, Answer, program
from blueprints.leftovers.values import Finding, Report, Row, Verdict
from drydock.core import clock
from drydock.core.errors import DrydockError
from interfaces.command import JobSpec

ROWS = (*FILES, *KERNEL, *PROCESSES)
NAMES = tuple(row.name for row in ROWS)
_SCANS = 3
_ARMING = 1.3
"""Seconds until armed rows take effect."""
_THERE, _GONE = 0, 1
_NO_NEIGHBOUR = "The row needs a second lease on the same host at the same time, with an account of its own."
_NOT_ITS_OWN = "The account is shared, so the row would affect other users of it."
_NO_EFFECT = "The row had no effect: it was not found while its lease was active."


@dataclass(frozen=True, kw_only=True)
class Planted:
    """The rows that were planted, and their location.

    `notes` has the output of the planting scripts; `refused` has a reason for each row that was not planted.
    """

    uid: int = 0
    boot: str = ""
    home: str
    above: str = ""
    folder: str
    own_account: bool
    notes: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def known(self) -> dict[str, str]:
        """Return the variables for the scripts that look for rows."""
        return {"was": self.home, "above": self.above, "uid": str(self.uid), "copy": self.folder}


class Suite:
    """One run of the suite. The names of everything that it plants start with its token."""

    def __init__(self, rows: Iterable[Row] = ROWS) -> None:
        self.rows, self.token = tuple(rows), f"dd-left-{secrets.token_hex(5)}"

    def plant(
        self, lease: Party | Pages, *, own_account: bool, above: str = "", beside: Party | None = None
    ) -> Planted:
        """Plant every row that can be planted, as the lease."""
        if isinstance(lease, Pages):
            refused = lease.plant(self.rows, self.token)
            return Planted(home=lease.files.root, folder=lease.files.root, own_account=own_account, refused=refused)
        return _Planting(self, lease, beside, own_account, above if own_account else "").done()

    def look(
        self, planted: Planted, after: Party | Pages, *, beside: Party | None = None, outside: Outside | None = None
    ) -> Report:
        """Check which planted rows are still visible to the next lease, to a lease beside it, and from outside.

        Each observer removes what it finds where it can.
        """
        findings = {row.name: _unplanted(row, planted) for row in self.rows if row.name in planted.refused}
        rows = [row for row in self.rows if row.name not in planted.refused]
        parties = (after, *(outside.parties(planted.uid) if outside else ()))
        own = [row for row in rows if not row.accomplice]
        seen = [(viewer.name, self._seen(viewer, planted, own)) for viewer in parties]
        findings |= {row.name: _judged(row, planted, seen) for row in own}
        answer = seen[0][1]
        if beside and (others := [row for row in rows if row.accomplice]):
            rests = isinstance(answer, Answer) and answer.uid != planted.uid
            seen = [(beside.name, self._seen(beside, planted, others))]
            findings |= {row.name: _judged(row, planted, seen, rests=rests and row.rests) for row in others}
        unanswered = next((said for said in (answer, seen[0][1]) if isinstance(said, str)), "")
        found = tuple(findings[row.name] for row in self.rows)
        return Report(token=self.token, findings=found, unanswered=unanswered)

    def _seen(self, viewer: Party | Pages, planted: Planted, rows: Sequence[Row]) -> Answer | str:
        """Return what a viewer sees, or the reason why it could not look."""
        try:
            if isinstance(viewer, Pages):
                return viewer.seen(rows, self.token)
            answer = viewer.asked(self.program(rows, "look", planted.notes, planted.known, scans=_SCANS))
            if left := [row for row in rows if row.undo and _code(answer, row) == _THERE]:
                viewer.asked(self.program(left, "undo", planted.notes, planted.known))
        except DrydockError as error:
            return f"{viewer.name}: {error}"
        return answer if planted.boot in ("", answer.boot) else f"{viewer.name} is on another machine."

    def program(
        self, rows: Iterable[Row], script: str, notes: Mapping[str, str], known: Mapping[str, str] = {}, *,
        scans: int = 0,
    ) -> bytes:  # fmt: skip
        """Return the program that carries out one script of every row."""
        scripts = [(row.name, row.tools, getattr(row, script), notes.get(row.name, "")) for row in rows]
        return program(scripts, known, token=self.token, scans=scans)


class _Planting:
    """The rows of one suite, planted in turn by a lease and its accomplice."""

    def __init__(self, suite: Suite, lease: Party, beside: Party | None, own_account: bool, above: str) -> None:
        self._suite, self._lease, self._beside, self._own = suite, lease, beside, own_account
        self._notes: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._here = lease.asked(suite.program((), "plant", {}))
        self._known = {"was": self._here.home, "above": above, "uid": str(self._here.uid), "copy": self._here.folder}

    def done(self) -> Planted:
        """Plant all rows, verify that they are present, and arm the rows that need it."""
        self._leave_out()
        if self._beside:
            self._ask(self._beside, "accomplice", {"uid": self._known["uid"]})
        self._ask(self._lease, "plant", self._known)
        self._start_jobs()
        if self._beside:
            self._ask(self._beside, "after", {"uid": self._known["uid"]})
        self._verify()
        armed = [row for row in self._rows() if row.arm]
        if armed:
            self._lease.asked(self._suite.program(armed, "arm", self._notes, self._known))
            clock.sleep(_ARMING)
        return Planted(
            uid=self._here.uid, boot=self._here.boot, home=self._here.home, above=self._known["above"],
            folder=self._here.folder, own_account=self._own, notes=self._notes, refused=self._refused,
        )  # fmt: skip

    def _rows(self) -> list[Row]:
        return [row for row in self._suite.rows if row.name not in self._refused]

    def _leave_out(self) -> None:
        there = self._beside.asked(self._suite.program((), "plant", {})) if self._beside else None
        neighbour = there is not None and there.boot == self._here.boot and there.uid != self._here.uid
        for row in self._suite.rows:
            if row.own_account and not self._own:
                self._refused[row.name] = _NOT_ITS_OWN
            elif row.accomplice and not neighbour:
                self._refused[row.name] = _NO_NEIGHBOUR

    def _ask(self, party: Party, script: str, known: Mapping[str, str]) -> None:
        """Have a party carry out the scripts of this name; rows whose script fails are not planted."""
        rows = [row for row in self._rows() if getattr(row, script) and not (script == "plant" and row.job)]
        if not rows:
            return
        for name, said in party.asked(self._suite.program(rows, script, self._notes, known)).rows.items():
            if said.code:
                self._refused[name] = said.text or f"The script ended with {said.code}."
            elif script != "after":
                self._notes[name] = said.text

    def _start_jobs(self) -> None:
        for row in self._rows():
            if not row.job:
                continue
            name = f"{self._suite.token}-{row.name}"
            try:
                assert self._lease.jobs is not None
                self._lease.jobs.start(JobSpec(id=name, words=f"{HELPERS}\nt={name}; export t\n{row.plant}"))
            except DrydockError as error:
                self._refused[row.name] = str(error)

    def _verify(self) -> None:
        """Reject rows that their own lease cannot see.

        If even that lease does not find them, their later absence proves nothing.
        """
        rows = [row for row in self._rows() if row.seen_at_once]
        for party, some in (
            (self._lease, [row for row in rows if not row.accomplice]),
            (self._beside, [row for row in rows if row.accomplice]),
        ):
            if party is None or not some:
                continue
            answer = party.asked(self._suite.program(some, "look", self._notes, self._known, scans=_SCANS))
            for row in some:
                if _code(answer, row) != _THERE:
                    said = answer.rows.get(row.name)
                    self._refused[row.name] = said.text if said and said.text else _NO_EFFECT


def _unplanted(row: Row, planted: Planted) -> Finding:
    return Finding(row=row.name, verdict=Verdict.NOT_POSSIBLE, message=planted.refused[row.name], proves=row.proves)


def _code(answer: Answer, row: Row) -> int | None:
    said = answer.rows.get(row.name)
    return said.code if said else None


def _judged(row: Row, planted: Planted, seen: Sequence[tuple[str, Answer | str]], *, rests: bool = False) -> Finding:
    there = [name for name, answer in seen if isinstance(answer, Answer) and _code(answer, row) == _THERE]
    gone = [name for name, answer in seen if isinstance(answer, Answer) and _code(answer, row) == _GONE]
    if there and row.shared and not planted.own_account:
        verdict, message = Verdict.SHARED, row.shared
    elif there and rests:
        verdict, message = (
            Verdict.OK,
            f"The row still gives access to uid {planted.uid}, but the next lease has another uid.",
        )
    elif there:
        verdict, message = Verdict.SURVIVED, f"Seen by {', '.join(there)}."
    elif gone:
        verdict, message = Verdict.OK, f"Not seen by {', '.join(gone)}."
    else:
        verdict, message = Verdict.NOT_POSSIBLE, f"Could not check the row: {_reasons(row, seen)}"
    return Finding(row=row.name, verdict=verdict, message=message, proves=row.proves)


def _reasons(row: Row, seen: Sequence[tuple[str, Answer | str]]) -> str:
    said = [one if isinstance(one, str) else one.rows[row.name].text for _, one in seen
            if isinstance(one, str) or row.name in one.rows]  # fmt: skip
    return "; ".join(said) or "No lease is left to check with."
