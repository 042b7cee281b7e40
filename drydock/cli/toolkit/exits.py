"""Exit codes for scripts, error output for people and programs, and the handling of Ctrl-C and SIGTERM."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, ParamSpec, TypeVar

import typer
from typer.core import TyperGroup

from drydock.cli.toolkit import output
from drydock.cli.toolkit.options import with_numbers
from drydock.core import errors

FAILURE, INVALID, NOT_FOUND, CONFLICT, TIMED_OUT, REFUSED, NOT_ALLOWED, NO_WORKER = range(1, 9)

INTERRUPTED, TERMINATED = 130, 143

P = ParamSpec("P")

R = TypeVar("R")


def code_of(error: BaseException) -> int:
    """Return the exit code for an error."""
    from drydock_client.errors import LeaseFailed, NoWorker
    from interfaces.errors import LeaseEnded

    table: list[tuple[type[errors.DrydockError], int]] = [
        (LeaseFailed, REFUSED), (LeaseEnded, CONFLICT), (NoWorker, NO_WORKER), (errors.InvalidRequest, INVALID),
        (errors.NotSupported, INVALID), (errors.NotFound, NOT_FOUND), (errors.Conflict, CONFLICT),
        (errors.TimedOut, TIMED_OUT), (errors.Busy, TIMED_OUT), (errors.NotAllowed, NOT_ALLOWED),
    ]  # fmt: skip
    return next((code for known, code in table if is_a(error, known)), FAILURE)


def is_a(error: BaseException, *kinds: type[errors.DrydockError]) -> bool:
    """Return whether an error is of one of these kinds, raised locally or reported by a server by its code."""
    return isinstance(error, kinds) or getattr(error, "code", None) in {kind.code for kind in kinds}


class Stopped(BaseException):
    """A signal asked the program to end. `code` is the exit code to end with."""

    def __init__(self, code: int) -> None:
        self.code = code


def guarded(work: Callable[P, R]) -> Callable[P, R]:
    """Wrap a command so that an error is printed on one line and ends the program with its exit code.

    No traceback is printed; with DRYDOCK_DEBUG=1 exceptions are not caught.
    """

    @functools.wraps(work)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return work(*args, **with_numbers(kwargs))
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except Stopped as stopped:
            raise typer.Exit(stopped.code) from None
        except BrokenPipeError:
            _silence_stdout()
            raise typer.Exit(FAILURE) from None
        except Exception as error:
            if os.environ.get("DRYDOCK_DEBUG"):
                raise
            tell(error, as_json=bool(kwargs.get("as_json")))

    return told


def _silence_stdout() -> None:
    """Redirect standard output after its reader has closed it, so that the interpreter can exit quietly."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell(error: Exception, *, as_json: bool = False) -> NoReturn:
    """Print an error, and exit."""
    message, field, hint = described(error)
    code = code_of(error)
    problems = [(p.field, p.message) for p in getattr(error, "problems", ())] or [(field, message)]
    if as_json:
        kind = getattr(error, "code", "error")
        said: dict[str, Any] = {"code": kind, "message": message, "field": field, "hint": hint, "exit_code": code}
        said["problems"] = [{"field": where, "message": what} for where, what in problems]
        if capability := getattr(error, "capability", ""):
            said["capability"] = capability
        if verdicts := getattr(error, "verdicts", ()):
            said["verdicts"] = verdicts
        output.emit_line({"error": said})
    else:
        for where, what in problems:
            output.say(f"drydock: {where + ': ' if where else ''}{what}")
        if hint:
            output.say(f"  {hint}")
    raise typer.Exit(code)


class PlainGroup(TyperGroup):
    """A group of commands that reports invalid options in our words instead of the parser's."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Raises typer.BadParameter for an option or argument that cannot be read."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = refusal(error)
            raise


def refusal(error: typer.BadParameter) -> str:
    """Return why a value was refused: the given value and what is allowed."""
    found = getattr(error.__cause__, "errors", None)
    if found is None:
        return error.message
    from leases.validation.errors import plain_message

    said = []
    for one in found(include_url=False):
        value = repr(one["input"])
        value = value if len(value) <= _LONGEST else f"{value[:_LONGEST]} ..."
        said.append(plain_message(one).replace("It ", f"{value} ", 1))
    return "; ".join(said) + "."


_LONGEST = 60

"""The maximum number of characters of a value that a refusal repeats."""


def described(error: Exception) -> tuple[str, str, str]:
    """Return the message, field and hint of any error."""
    if isinstance(error, errors.DrydockError):
        return error.message, error.field, error.hint
    if isinstance(error, ExceptionGroup):
        return described(error.exceptions[0])
    name = type(error).__name__
    text = str(error).strip() or name
    if name in ("OperationalError", "InterfaceError") or _is_lost(error):
        return f"The database is not reachable: {text.splitlines()[0]}", "", "Run `drydock doctor` to find the problem."
    if name == "ImproperlyConfigured":
        return text, "", ""
    return f"{name}: {text}", "", "This is a bug in Drydock. DRYDOCK_DEBUG=1 shows a traceback."


def _is_lost(error: Exception) -> bool:
    if type(error).__module__ != "django.db.utils":
        return False
    from leases.engine.core.database import is_lost

    return is_lost(error)


_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGHUP: TERMINATED}


def _stop(number: int, _: object) -> None:
    # Only once: what follows is the clearing up, and a second signal must not end that.
    begin_cleanup()
    raise Stopped(_CODES[signal.Signals(number)])


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Raise Stopped for the first signal in this block; further signals do not disturb the cleanup."""
    before = {number: signal.signal(number, _stop) for number in _CODES}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def begin_cleanup() -> None:
    """Ignore signals from here to the end of the surrounding `stoppable`.

    `stoppable` itself does this once the first signal has arrived.
    """
    for known in _CODES:
        signal.signal(known, signal.SIG_IGN)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore signals in this block."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _CODES}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
