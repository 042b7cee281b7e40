"""Errors from the private engines, with messages for users."""

from __future__ import annotations

from pathlib import Path

from drydock.core.errors import DrydockError


class EngineError(DrydockError):
    """A private engine cannot be started."""

    code = "engine"


def last_lines(path: Path, count: int = 8) -> str:
    """Return the end of a log, indented, to show with an error; empty if the log does not exist."""
    try:
        lines = path.read_text(errors="replace").splitlines()[-count:]
    except OSError:
        return ""
    return "".join(f"\n    {line}" for line in lines)
