"""Programs of the operator's, which drivers named `command` run in place of a protocol.

Registrations and configs only name a program. Which ones there are is up to the installation: the files in a folder
that nobody else can change. A program is a process that is bounded in time and output, and ended with all its children.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field, ValidationError

from blueprints.bmc.texts import shown
from blueprints.contract import Fields
from drydock.core import clock
from drydock.core.errors import DrydockError
from interfaces.deadline import Deadline
from interfaces.launch import CLEAN_PATH

LONGEST = 1 << 20
"""Maximum number of bytes on each of the two outputs."""
_CHUNK = 1 << 16
LINGER = 0.5
"""Seconds that the outputs stay open after the program has ended, for what its children still print."""
CLEAN = {"PATH": CLEAN_PATH, "LANG": "C.UTF-8"}
"""The environment of every program."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
Printed = TypeVar("Printed", bound=Fields)


def _plain(text: str) -> str:
    if text in (".", "..") or "//" in text:
        raise ValueError("this is not a name or address")
    return text


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"), AfterValidator(_plain)]
"""The name of a program in its folder."""
Target = Annotated[str, Field(pattern=r"^[A-Za-z0-9\[][A-Za-z0-9._:/@,=+%\[\]-]{0,199}$"), AfterValidator(_plain)]
"""An argument of a program: neither an option nor text that a shell would interpret."""


def allowed(name: str, folder_in: str, error: type[DrydockError], purpose: str) -> Path:
    """Return the path of a program that the installation allows.

    `folder_in` is the environment variable with the folder of the programs, and `purpose` what they are for, such as
    "the control of machines". Raises `error`.
    """
    chosen = os.environ.get(folder_in, "")
    if not chosen:
        raise error(
            f"This installation allows no programs for {purpose}.",
            hint=f"Set {folder_in} to a folder with the programs.",
        )
    folder = Path(chosen)
    if not folder.is_absolute():
        raise error(f"{folder_in} must be an absolute path.")
    for place in (folder, *folder.parents):
        _check_folder(place, folder_in, error)
    path = folder / name
    try:
        found = path.lstat()
    except OSError:
        raise error(f"There is no program {name} in {folder}.") from None
    if not stat.S_ISREG(found.st_mode) or not os.access(path, os.X_OK):
        raise error(f"{path} is not an executable file.", hint="Links are not followed.")
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & _OTHERS_WRITE:
        raise error(f"Others can change {path}.", hint="It must belong to root or Drydock's user: chmod go-w.")
    return path


def _check_folder(folder: Path, folder_in: str, error: type[DrydockError]) -> None:
    try:
        found = folder.lstat()
    except OSError as problem:
        raise error(f"The folder {folder} of {folder_in} cannot be read: {problem.strerror}.") from None
    if not stat.S_ISDIR(found.st_mode):
        raise error(f"{folder} in {folder_in} is not a folder.", hint="Links are not followed.")
    # In a sticky folder such as /tmp, others cannot rename what is not theirs.
    open_to_others = found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX
    if found.st_uid not in (0, os.geteuid()) or open_to_others:
        raise error(
            f"Others can change the folder {folder}.", hint="It must belong to root or Drydock's user: chmod go-w."
        )


@dataclass(frozen=True, kw_only=True)
class Faults:
    """The errors that calls of a program raise."""

    general: type[DrydockError]
    """It cannot be started."""
    late: type[DrydockError]
    """It took too long."""
    invalid: type[DrydockError]
    """It printed too much, or something else than was expected."""
    refused: type[DrydockError]
    """It ended with an exit code that has no meaning of its own, or by a signal."""
    exits: Mapping[int, tuple[type[DrydockError], str]]
    """Exit codes with a meaning: the error, and what the program then says about itself."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program with everything that its calls have in common. Each call gets what is left of the deadline."""

    path: Path
    faults: Faults
    deadline: Deadline
    seconds_in: str
    """The environment variable in which the program finds how many seconds it has."""
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The credential, which the program reads as a JSON object from its standard input."""

    def call(self, *words: str, environment: Mapping[str, str] | None = None) -> bytes:
        """Run the program with these arguments, and return what it prints. Raises the errors of `faults`."""
        faults, named = self.faults, self._named(words)
        if self.deadline.expired:
            raise faults.late(f"{named} was not called, because no time was left.")
        more = {self.seconds_in: f"{self.deadline.remaining:.1f}", **(environment or {})}
        try:
            done = finished([str(self.path), *words], self.given, self.deadline, more)
        except OSError as error:
            raise faults.general(f"{named} cannot be started: {error.strerror}.") from None
        if done.late:
            raise faults.late(f"{named} took longer than {self.deadline.seconds:.3g} s, and was ended.")
        if done.too_long:
            raise faults.invalid(f"{named} printed more than 1 MiB, and was ended.")
        if done.code:
            raise self._failed(named, done)
        return done.output

    def read(self, model: type[Printed], *words: str, environment: Mapping[str, str] | None = None) -> Printed:
        """Run the program, and return the JSON object that it prints. Raises the errors of `faults`."""
        output = self.call(*words, environment=environment)
        try:
            return model.model_validate_json(output)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            what = shown(f"{where}: {first['msg']}" if where else first["msg"], self.given.values())
            raise self.faults.invalid(f"{self._named(words)} printed no valid answer: {what}.") from None

    def _failed(self, named: str, done: Finished) -> DrydockError:
        ended = f"ended with exit code {done.code}" if done.code > 0 else f"was ended by signal {-done.code}"
        kind, what = self.faults.exits.get(done.code, (self.faults.refused, ended))
        said = shown(done.errors, self.given.values())
        return kind(f"{named} {what}" + (f": {said}" if said else "."))

    def _named(self, words: Sequence[str]) -> str:
        return f"The program {self.path.name} ({' '.join(words)})"


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a program ended."""

    code: int
    """The exit code; negative for a signal."""
    output: bytes
    errors: bytes
    late: bool = False
    too_long: bool = False


def finished(
    words: Sequence[str], given: Mapping[str, str], deadline: Deadline, environment: Mapping[str, str]
) -> Finished:
    """Run a program in a clean environment, with `given` as JSON on its standard input, and wait for its end.

    All processes of its group are killed at the deadline, when it prints too much, and after its end.
    """
    with subprocess.Popen(
        list(words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env={**CLEAN, **environment},
        start_new_session=True,
        bufsize=0,
    ) as process:
        exchange = _Exchange(process, json.dumps(dict(given)).encode())
        try:
            exchange.run(deadline)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    outputs = exchange.outputs
    return Finished(
        code=process.returncode,
        output=bytes(outputs["stdout"]),
        errors=bytes(outputs["stderr"]),
        late=exchange.late,
        too_long=exchange.too_long,
    )


class _Exchange:
    """Writes the input of a process, and reads its outputs."""

    def __init__(self, process: subprocess.Popen[bytes], given: bytes) -> None:
        self._process, self._given = process, memoryview(given)
        self.outputs = {"stdout": bytearray(), "stderr": bytearray()}
        self.late = self.too_long = False

    def run(self, deadline: Deadline) -> None:
        """Exchange until both outputs and the process have ended, or it must be killed."""
        ended_at = 0.0
        with selectors.DefaultSelector() as selector:
            self._register(selector)
            while selector.get_map() or not self._over:
                if deadline.expired:
                    self.late = not self._over
                    return
                if not ended_at and self._over:
                    ended_at = clock.monotonic()
                if self.too_long or (ended_at and clock.monotonic() - ended_at > LINGER):
                    return
                self._turn(selector, min(0.05, deadline.remaining))

    @property
    def _over(self) -> bool:
        """Whether the process has ended. It is not reaped yet, so that its number is still that of its group."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _register(self, selector: selectors.BaseSelector) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE, "stdin")
        selector.register(process.stdout, selectors.EVENT_READ, "stdout")
        selector.register(process.stderr, selectors.EVENT_READ, "stderr")

    def _turn(self, selector: selectors.BaseSelector, wait: float) -> None:
        if not selector.get_map():
            clock.sleep(wait)
        for key, _ in selector.select(wait):
            ended = self._write(key.fd) if key.data == "stdin" else self._read(key.fd, self.outputs[key.data])
            if ended:
                selector.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]

    def _write(self, pipe: int) -> bool:
        """Write a part of the input. Returns whether nothing is left, or nobody reads it."""
        try:
            self._given = self._given[os.write(pipe, self._given) :]
        except BlockingIOError:
            return False
        except OSError:
            return True
        return not self._given

    def _read(self, pipe: int, output: bytearray) -> bool:
        """Read a part of an output. Returns whether it has ended."""
        part = os.read(pipe, _CHUNK)
        output += part
        self.too_long = self.too_long or len(output) > LONGEST
        return not part
