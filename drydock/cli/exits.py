"""Exit codes one can script on, and errors as people and programs read them."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn, ParamSpec, TypeVar

import typer
from typer.core import TyperGroup

from drydock.cli import output
from drydock.cli.options import with_numbers
from drydock.core import errors

FAILURE, INVALID, NOT_FOUND, CONFLICT, TIMED_OUT, REFUSED, NOT_ALLOWED, NO_WORKER = range(1, 9)
INTERRUPTED, TERMINATED = 130, 143

P = ParamSpec("P")
R = TypeVar("R")


def code_of(error: BaseException) -> int:
    """The exit code an error ends the program with."""
    from interfaces.errors import LeaseEnded
    from leases.client.errors import LeaseFailed, NoWorker

    table: list[tuple[type[errors.DrydockError], int]] = [
        (LeaseFailed, REFUSED), (LeaseEnded, CONFLICT), (NoWorker, NO_WORKER), (errors.InvalidRequest, INVALID),
        (errors.NotSupported, INVALID), (errors.NotFound, NOT_FOUND), (errors.Conflict, CONFLICT),
        (errors.TimedOut, TIMED_OUT), (errors.Busy, TIMED_OUT), (errors.NotAllowed, NOT_ALLOWED),
    ]  # fmt: skip
    return next((code for known, code in table if is_a(error, known)), FAILURE)


def is_a(error: BaseException, *kinds: type[errors.DrydockError]) -> bool:
    """Whether an error is one of these kinds, raised here or told by a server, which names an interface's error by its
    code alone."""
    return isinstance(error, kinds) or getattr(error, "code", None) in {kind.code for kind in kinds}


class Stopped(BaseException):
    """The user, or the machine, wants the program to end: `code` is its exit code."""

    def __init__(self, code: int) -> None:
        self.code = code


def guarded(work: Callable[P, R]) -> Callable[P, R]:
    """A command whose errors are told in one line and end the program with their code; no traceback.

    DRYDOCK_DEBUG=1 lets them through.
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
    """Whoever read our output has gone; the interpreter must not stumble over it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell(error: Exception, *, as_json: bool = False) -> NoReturn:
    """Say what went wrong, and end."""
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
    """A group of commands that refuses wrong options in our own words, not in those of the library that reads them."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Raises typer.BadParameter for an option or argument that cannot be read."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = refusal(error)
            raise


def refusal(error: typer.BadParameter) -> str:
    """Return why a value was not taken: what was given and what is allowed."""
    found = getattr(error.__cause__, "errors", None)
    if found is None:
        return error.message
    from leases.mistakes import plain_message

    said = []
    for one in found(include_url=False):
        value = repr(one["input"])
        value = value if len(value) <= _LONGEST else f"{value[:_LONGEST]} ..."
        said.append(plain_message(one).replace("It ", f"{value} ", 1))
    return "; ".join(said) + "."


_LONGEST = 60
"""Characters of a value that a refusal repeats."""


def described(error: Exception) -> tuple[str, str, str]:
    """Message, field and hint of any error."""
    if isinstance(error, errors.DrydockError):
        return error.message, error.field, error.hint
    if isinstance(error, ExceptionGroup):
        return described(error.exceptions[0])
    name = type(error).__name__
    text = str(error).strip() or name
    if name in ("OperationalError", "InterfaceError"):
        return f"The database does not answer: {text.splitlines()[0]}", "", "`drydock doctor` says what to mend."
    if name == "ImproperlyConfigured":
        return text, "", ""
    return f"{name}: {text}", "", "This should not happen. DRYDOCK_DEBUG=1 shows where it comes from."
