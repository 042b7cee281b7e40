"""Parties that plant rows and look for them: leases with commands, leases with files only, and outside observers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from blueprints.leftovers.programs import Answer, Said, understood
from blueprints.leftovers.values import Row
from drydock.core.errors import DrydockError
from interfaces.command import Command
from interfaces.command.jobs import Jobs
from interfaces.filesystem import Filesystem

Run = Callable[[bytes], str]
"""Runs a program passed to /bin/sh on standard input, and returns its output."""

_TIMEOUT = 120.0
_ODD = ("-rf", "*", "two\nlines", "ünï ☃", " ")


class Unanswered(DrydockError):
    """A program did not run to its end."""

    code = "unanswered"


@dataclass(frozen=True, kw_only=True)
class Party:
    """A lease or an outside observer that runs programs."""

    name: str
    run: Run
    jobs: Jobs | None = None

    @classmethod
    def of(cls, command: Command, name: str) -> Party:
        """Return a lease as a party, using its command interface."""

        def run(text: bytes) -> str:
            return command.run(["/bin/sh", "-s"], stdin=text, timeout=_TIMEOUT).text

        return cls(name=name, run=run, jobs=command.jobs)

    def asked(self, program: bytes) -> Answer:
        """Run a program and return its parsed answer.

        Raises the errors of `Command.run`, and Unanswered if the program did not finish.
        """
        said = self.run(program)
        if (answer := understood(said)) is None:
            raise Unanswered(f"{self.name} did not run a program to its end: {said[-200:]!r}")
        return answer


@dataclass(frozen=True, kw_only=True)
class Pages:
    """A lease that has files but runs no commands, such as the lease of a site."""

    name: str
    files: Filesystem

    def plant(self, rows: Sequence[Row], token: str) -> Mapping[str, str]:
        """Plant the rows that need only files. Return the reasons for the rows that cannot be planted."""
        refused = {}
        for row in rows:
            if (plant := _PLANTS.get(row.name)) is None:
                refused[row.name] = "The lease cannot run commands."
                continue
            try:
                plant(self.files, f"{token}-{row.name}")
            except DrydockError as error:
                refused[row.name] = str(error)
        return refused

    def seen(self, rows: Sequence[Row], token: str) -> Answer:
        """Return the rows that are present, and remove them."""
        said = {}
        for row in rows:
            name = f"{token}-{row.name}"
            there = self.files.exists(name)
            if there:
                with contextlib.suppress(DrydockError):
                    self.files.chmod(name, 0o700)
                    self.files.remove(name, recursive=True)
            said[row.name] = Said(code=0 if there else 1, text="")
        return Answer(rows=said, uid=0, boot="", home=self.files.root, folder=self.files.root)


@dataclass(frozen=True, kw_only=True)
class Outside:
    """Observers that can see beyond the leases: root on the machine, and any account of it."""

    root: Run
    account: Callable[[int], Run]

    def parties(self, uid: int) -> tuple[Party, ...]:
        """Return root and the account of an ended lease as observers."""
        as_account = (Party(name=f"uid {uid} itself", run=self.account(uid)),) if uid else ()
        return (Party(name="root on the machine", run=self.root), *as_account)


def _file(files: Filesystem, name: str) -> None:
    files.write_text(name, "left")


def _odd(files: Filesystem, name: str) -> None:
    files.mkdir(name)
    for each in _ODD:
        files.write_bytes(f"{name}/{each}", b"")


def _deep(files: Filesystem, name: str) -> None:
    files.mkdir("/".join([name, *["d"] * 100]))


def _closed(files: Filesystem, name: str) -> None:
    files.mkdir(f"{name}/a")
    files.write_text(f"{name}/a/b", "left")
    files.chmod(name, 0)


_PLANTS: dict[str, Callable[[Filesystem, str], None]] = {
    "home-file": _file, "odd-names": _odd, "deep-folders": _deep, "closed-folders": _closed,
}  # fmt: skip
