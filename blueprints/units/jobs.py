"""Units as jobs of a lease: started once, found again by name, read from files that only root can change, and ended.

The state of a job, its exit code and its bounded output are kept as for every other job (`interfaces.command.shell`);
systemd holds the processes, and says when the last of them has ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from blueprints.hostshell import AS_ROOT, HostShell
from blueprints.units import firewall, scripts
from blueprints.units.podman import environment
from blueprints.units.text import unit_text
from blueprints.units.values import FOLDER, RUNTIME, Unit
from drydock.core.errors import InvalidRequest
from interfaces.command import jobscripts
from interfaces.command.contract import KEPT, Command, Output, Words
from interfaces.command.jobs import Job, JobSpec, checked_id
from interfaces.command.metering import Sample
from interfaces.command.result import CommandResult
from interfaces.command.shell import ShellCommand, ShellJobs, prepared
from interfaces.contract import StillMine
from interfaces.deadline import Cancel, Deadline
from interfaces.errors import CommandFailed, InterfaceError, JobConflict, JobMissing, NotStarted
from interfaces.transport import Transport

_PIECE = 4 << 20
"""Bytes of an archive that are sent with one call."""
_NODE_CPUS = 'cat "/sys/devices/system/node/node$1/cpulist"\n'
_SECONDS = 60.0


class RootShell:
    """Runs scripts as root over the control account, for `ShellJobs`."""

    grace: ClassVar[float] = ShellCommand.grace

    def __init__(self, command: ShellCommand) -> None:
        self._command = command
        self.transport: Transport = command.transport

    def check(
        self, words: Words, *, stdin: bytes = b"", timeout: float | None = None, max_output: int = KEPT
    ) -> CommandResult:
        """Run `/bin/sh -c SCRIPT sh ARGUMENTS` as root. Raises CommandFailed, and the errors of `Command.run`."""
        assert not isinstance(words, str)
        shell, option, script, name, *arguments = words
        assert (shell, option, name) == ("/bin/sh", "-c", "sh")
        asked = ["/bin/sh", "-c", AS_ROOT, "sh", script, *arguments]
        return self._command.check(asked, stdin=stdin, timeout=timeout, max_output=max_output)

    def ask(self, script: str, *arguments: str, stdin: bytes = b"") -> str:
        """Run a script and return its output."""
        words = ["/bin/sh", "-c", script, "sh", *arguments]
        return self.check(words, stdin=stdin, timeout=_SECONDS, max_output=1 << 16).text


class UnitJobs(ShellJobs):
    """The job of one unit: its id is that of the workload."""

    def __init__(self, command: ShellCommand, unit: Unit) -> None:
        self._root = RootShell(command)
        self._unit = unit
        self._jobs = f"{unit.folder}/jobs"
        super().__init__(self._root, self._jobs)

    def start(self, spec: JobSpec) -> Job:
        """Open the ports of the workload and start its unit once. Raises NotStarted if the host refuses.

        The variables are those of the container. No process of root has them in its environment.
        """
        digest, made = prepared(spec).digest, prepared(replace(spec, env={}))
        given = environment(spec.env)
        unit = self._placed()
        with _refusals():
            self._root.ask(scripts.MAKE_FOLDER, unit.folder, unit.name)
            if unit.ports:
                self._root.ask(firewall.OPEN, *firewall.opening(unit))
            text = unit_text(unit, f"{self._jobs}/{spec.id}", [unit.name, unit.folder, made.blocks])
            said = self._root.ask(
                scripts.START, self._jobs, spec.id, digest, jobscripts.RUNNER, str(len(made.command)),
                str(len(given.plain)), unit.name, text, scripts.MAIN, stdin=made.command + given.plain + given.values,
            )  # fmt: skip
        if said.strip() == "conflict":
            raise JobConflict(f"Another job already has the id {spec.id!r}.")
        return self.status(spec.id)

    def cancel(self, id: str) -> Job:
        """Stop the unit, and return the status of its job. Raises JobConflict if the unit does not stop."""
        state = self._root.ask(scripts.CANCEL, self._jobs, checked_id(id), self._unit.name, self._unit.folder).strip()
        if state == "missing":
            raise JobMissing(f"Job {id!r} does not exist on the host.")
        if state not in ("inactive", "failed"):
            raise JobConflict(f"The unit {self._unit.name} of the job could not be stopped: it is {state}.")
        self._root.ask(jobscripts.CANCELLED, self._jobs, id)
        return self.status(id)

    def sample(self) -> Sample:
        """Return the counters of the unit's control group: the present ones, or those at its end."""
        return parse(self._root.ask(scripts.METER, self._unit.name, self._unit.folder))

    def send(self, archive: Path, seconds: float) -> bool:
        """Copy an archive to the host, in pieces and from where an earlier call has stopped.

        Returns False if it is not complete after `seconds`. The host verifies it before it loads it.
        """
        deadline = Deadline(seconds)
        with _refusals():
            self._root.ask(scripts.MAKE_FOLDER, self._unit.folder, self._unit.name)
        with archive.open("rb") as file:
            size = file.seek(0, 2)
            there = self._receive(0, b"")
            while there is not None and there < size:
                if not deadline.remaining:
                    return False
                there = self._receive(there, _piece(file, there))
        return True

    def _receive(self, offset: int, piece: bytes) -> int | None:
        said = self._root.ask(scripts.RECEIVE, self._unit.folder, str(offset), str(len(piece)), stdin=piece).strip()
        return None if said == "done" else int(said)

    def _placed(self) -> Unit:
        """Return the unit with the processors of its NUMA nodes, if these are known and are not given yet."""
        if not self._unit.memory_nodes or self._unit.cpus:
            return self._unit
        found = [self._root.ask(_NODE_CPUS, node).strip() for node in self._unit.memory_nodes.split(",")]
        return replace(self._unit, cpus=",".join(one for one in found if one))


def _piece(file: BinaryIO, offset: int) -> bytes:
    file.seek(offset)
    return file.read(_PIECE)


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise NotStarted, with the last line that the script printed, if the host refuses the workload."""
    try:
        yield
    except CommandFailed as error:
        if error.result.exit_code != firewall.REFUSED:
            raise
        raise NotStarted(error.result.error_text.strip().rpartition("\n")[2]) from error


_COUNTED = re.compile(r"counted" + r" (-|[0-9]{1,18}|\[[a-z ]+\])" * 6)


def parse(said: str) -> Sample:
    """Return the counters that the host printed. Raises InterfaceError if it printed none."""
    found = re.search(r"^host (\S{1,64})$", said, re.MULTILINE)
    if found is None:
        raise InterfaceError("The host did not report the usage of the lease's unit.")
    counted = next((each for line in said.splitlines() if (each := _COUNTED.fullmatch(line))), None)
    if counted is None:
        return Sample(scope="cgroup", boot=found[1], seconds=0.0)
    usage, memory, peak, inactive, into, out = (_number(word) for word in counted.groups())
    return Sample(
        scope="cgroup", boot=found[1], seconds=None if usage is None else usage / 1e6, peak=peak,
        memory=None if memory is None else max(0, memory - (inactive or 0)),
        network=None if into is None or out is None else (into, out),
    )  # fmt: skip


def _number(word: str) -> int | None:
    """Return a counter. systemd prints 2**64 - 1, or a word in brackets, for one that it does not have."""
    return int(word) if word.isdigit() and int(word) < 1 << 63 else None


class UnitCommand(Command):
    """The command interface of a lease, with its unit as its job."""

    def __init__(self, account: Command, control: Transport, unit: Unit, *, still_mine: StillMine) -> None:
        super().__init__(account.transport, still_mine=still_mine)
        self._account = account
        self._jobs = UnitJobs(ShellCommand(control, still_mine=still_mine), unit)

    @property
    def jobs(self) -> UnitJobs:
        """The unit as a job."""
        return self._jobs

    def run(
        self, words: Words, *, env: Mapping[str, str] | None = None, cwd: str = "", stdin: bytes = b"",
        timeout: float | None = None, on_output: Callable[[Output], None] | None = None, max_output: int = KEPT,
        cancel: Cancel | None = None,
    ) -> CommandResult:  # fmt: skip
        """Run a command as the lease's account."""
        return self._account.run(
            words, env=env, cwd=cwd, stdin=stdin, timeout=timeout, on_output=on_output, max_output=max_output,
            cancel=cancel,
        )  # fmt: skip

    def stream(self, words: Words, **given: Any) -> Iterator[Output]:
        """Run a command as the lease's account, and yield its output."""
        return self._account.stream(words, **given)


def removed(there: HostShell, account: str) -> bool:
    """End the unit of an account, close its ports and remove all that it has left. Return whether nothing is left.

    May be repeated, and does nothing where there is no unit.
    """
    said = there.as_root(scripts.END, account).strip()
    if not said:
        return True
    word, _, key = said.rpartition("\n")[2].partition(" ")
    if word != "ended":
        return False
    if key != "-":
        unit = Unit(key=key, account=account)
        if there.as_root(firewall.CLOSE, unit.folder, unit.comment).strip():
            return False
        if there.as_root(scripts.FORGET, unit.name).strip():
            return False
        there.as_root(firewall.RELEASE, FOLDER, account)
    gone = [there.remove_tree(f"{folder}/{account}", root=True) for folder in (RUNTIME, FOLDER)]
    there.as_root(scripts.TIDY)
    return all(gone)


def removed_all(there: HostShell, prefix: str) -> bool:
    """Do the same for all accounts whose names start so. Return whether nothing is left."""
    if not prefix:
        raise InvalidRequest("A prefix is required.")
    accounts = there.as_root(scripts.ACCOUNTS, prefix).split()
    return all([removed(there, account) for account in accounts])
