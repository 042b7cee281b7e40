"""Errors, the same in process and over HTTP. The docstring of each class is its default message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drydock_client.values import Verdict


_LONGEST, _LONGEST_FIELD, _TOLD = 2000, 200, 20


def _fit(text: str, most: int, kept: str = "\n\t") -> str:
    """Remove control characters from untrusted text, and shorten it for a terminal or log."""
    short = text[:most] + "…" if len(text) > most else text
    if short.isprintable():
        return short
    return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in short)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A mistake in a request: the field, in the caller's spelling, and a message that explains the mistake."""

    field: str
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "field", _fit(self.field, _LONGEST_FIELD, kept=""))
        object.__setattr__(self, "message", _fit(self.message, _LONGEST))


class DrydockError(Exception):
    """An operation of Drydock failed."""

    code = "error"

    def __init__(self, message: str = "", *, field: str = "", hint: str = "") -> None:
        self.message = _fit(message, _LONGEST) or (type(self).__doc__ or "").strip()
        self.field = _fit(field, _LONGEST_FIELD, kept="")
        self.hint = hint
        super().__init__(self.message)

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        what_to_do = f" {self.hint}" if self.hint else ""
        return f"{where}{self.message}{what_to_do}"


class InvalidRequest(DrydockError):
    """The request is invalid. Nothing was changed."""

    code = "invalid"

    def __init__(self, message: str = "", *, field: str = "", hint: str = "", problems: Sequence[Problem] = ()) -> None:
        first = problems[0] if problems else Problem(field=field, message=message)
        super().__init__(first.message, field=first.field, hint=hint)
        told, more = tuple(problems[:_TOLD]), len(problems) - _TOLD
        told += (Problem(field="", message=f"There are {more} more errors."),) * (more > 0)
        self.problems = told or (Problem(field=self.field, message=self.message),)
        """All mistakes in the request. The first one also sets the error's own field and message."""

    def __str__(self) -> str:
        said = " ".join(f"{p.field}: {p.message}" if p.field else p.message for p in self.problems)
        return _fit(f"{said} {self.hint}".strip(), _LONGEST)


class NotFound(DrydockError):
    """The object does not exist or is not yours."""

    code = "not_found"


class Conflict(DrydockError):
    """The state of the object does not allow this."""

    code = "conflict"


class NotAllowed(DrydockError):
    """You do not have permission to do this."""

    code = "not_allowed"


class NotSupported(DrydockError):
    """The kind does not support this."""

    code = "not_supported"

    def __init__(self, message: str = "", *, field: str = "", hint: str = "", capability: str = "") -> None:
        super().__init__(message, field=field, hint=hint)
        self.capability = capability
        """The capability that is missing, such as `reboot`; empty if it has no name."""


class Busy(DrydockError):
    """The object is busy. Nothing was changed; try again in a moment."""

    code = "busy"


class TimedOut(DrydockError):
    """The operation timed out."""

    code = "timed_out"


class LeaseFailed(DrydockError):
    """The lease cannot be granted or has ended.

    `state`, `reason` and the verdict on every candidate give the cause.
    """

    code = "lease_failed"

    def __init__(self, message: str, *, state: str, reason: str, verdicts: Sequence[Verdict] = ()) -> None:
        self.state = state
        self.reason = reason
        self.verdicts = tuple(verdicts)
        super().__init__(message)


class NoWorker(DrydockError):
    """No worker is running, so nothing is built or cleaned."""

    code = "no_worker"
