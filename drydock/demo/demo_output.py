"""Output of the demo: rich on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from drydock.cli.toolkit import output
from drydock.core import clock


class DemoOutput:
    """Prints the progress of the demo, and records which of its expectations were met."""

    def __init__(self) -> None:
        self._began = clock.monotonic()
        self._rich = sys.stdout.isatty()
        self.broken: list[str] = []

    def scene(self, title: str) -> None:
        """Print the title of a scene."""
        if self._rich:
            output.console().print(f"\n[bold cyan]{title}[/]")
        else:
            output.line(f"\n== {title}")

    def line(self, text: str) -> None:
        """Print a line with the seconds since the beginning."""
        at = clock.monotonic() - self._began
        if self._rich:
            from rich.text import Text

            output.console().print(Text(f"{at:5.1f} s  ", style="dim").append(text, style="default"))
        else:
            output.line(f"{at:5.1f} s  {text}")

    def promise(self, what: str, kept: bool, found: str = "") -> None:
        """Print whether an expectation was met. The demo fails if it was not."""
        if not kept:
            self.broken.append(f"{what}: {found}" if found else what)
        mark, colour = ("yes", "green") if kept else ("NO", "red")
        about = f" ({found})" if found and not kept else ""
        if self._rich:
            from rich.text import Text

            output.console().print(
                Text("         ").append(f"{mark:3}", style=f"bold {colour}").append(f" {what}{about}")
            )
        else:
            output.line(f"         {mark:3} {what}{about}")

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table."""
        output.table(headers, rows)
        sys.stdout.flush()
