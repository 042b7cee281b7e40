"""What goes wrong with private engines, said for people."""

from __future__ import annotations

from pathlib import Path

from drydock.core.errors import DrydockError


class EngineError(DrydockError):
    """A private engine cannot be started."""

    code = "engine"


def last_lines(path: Path, count: int = 8) -> str:
    """The end of a log, indented, to show with an error; empty when there is none."""
    try:
        lines = path.read_text(errors="replace").splitlines()[-count:]
    except OSError:
        return ""
    return "".join(f"\n    {line}" for line in lines)
