"""Exit codes one can script on, and errors as people and programs read them."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn, ParamSpec, TypeVar

import typer

from drydock.core import errors

FAILURE, INVALID, NOT_FOUND, CONFLICT, TIMED_OUT, REFUSED, NOT_ALLOWED, NO_WORKER = range(1, 9)
INTERRUPTED, TERMINATED = 130, 143

P = ParamSpec("P")
R = TypeVar("R")


def code_of(error: BaseException) -> int:
    """The exit code an error ends the program with."""
    from leases.client.errors import LeaseFailed, NoWorker

    table: list[tuple[type[BaseException], int]] = [
        (LeaseFailed, REFUSED), (NoWorker, NO_WORKER), (errors.InvalidRequest, INVALID),
        (errors.NotSupported, INVALID), (errors.NotFound, NOT_FOUND), (errors.Conflict, CONFLICT),
        (errors.TimedOut, TIMED_OUT), (errors.Busy, TIMED_OUT), (errors.NotAllowed, NOT_ALLOWED),
    ]  # fmt: skip
    return next((code for known, code in table if isinstance(error, known)), FAILURE)


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
            return work(*args, **kwargs)
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
            from leases.client.values import to_json

            said["verdicts"] = to_json(verdicts)
        print(json.dumps({"error": said}))
    else:
        for where, what in problems:
            print(f"drydock: {where + ': ' if where else ''}{what}", file=sys.stderr)
        if hint:
            print(f"  {hint}", file=sys.stderr)
    raise typer.Exit(code)


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
