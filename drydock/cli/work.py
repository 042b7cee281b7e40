"""`drydock run`, and `drydock watch`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from drydock.cli import options as o
from drydock.cli import output, watching
from drydock.cli.errand import run as run_there
from drydock.cli.errand import seconds
from drydock.cli.exits import guarded
from drydock.cli.signals import stoppable


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("run", rich_help_panel="Work")(run)
    app.command("watch", rich_help_panel="Work")(watch)


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


@guarded
def watch(lease: o.LeaseId, *, as_json: o.AsJson = False) -> None:
    """Watch a lease's workload: its output from the beginning, also after the end; its exit code is ours.

    Ctrl-C ends this program and nothing else.
    """
    with stoppable():
        client = o.client()
        with client.attended() as attended:
            found = watching.follow(client, lease, attended, quiet=as_json)
    if as_json:
        output.emit(found)
    elif found.message:
        output.say(found.message)
    raise typer.Exit(watching.code_of(found))
