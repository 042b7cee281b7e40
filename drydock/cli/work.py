"""`drydock run`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.errand import run as run_there
from drydock.cli.errand import seconds
from drydock.cli.exits import guarded
from drydock.cli.signals import stoppable


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("run", rich_help_panel="Work")(run)


@guarded
def run(
    lease: o.LeaseId, command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...")], *,
    shell: Annotated[bool, typer.Option("--shell", help="COMMAND is one line for /bin/sh.")] = False,
    cwd: Annotated[str, typer.Option(help="Where, from the lease's home.")] = "",
    env: Annotated[list[str] | None, typer.Option("--env", "-e", metavar="KEY=VALUE")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Give our standard input to the command.")] = False,
    timeout: Annotated[str | None, typer.Option("--timeout", metavar="SPAN", help="End it after this.")] = None,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Run a command on a lease; its output is ours as it comes, and so is its exit code."""
    words = " ".join(command) if shell else command
    with stoppable():
        ended = run_there(
            o.client(), lease, words, env=o.variables(env), cwd=cwd,
            stdin=sys.stdin.buffer.read() if stdin else b"", quiet=as_json, timeout=seconds(timeout),
        )  # fmt: skip
    if as_json:
        output.emit(ended)
    raise typer.Exit(ended.exit_code)
