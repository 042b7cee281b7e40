"""The command `drydock console`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded
from drydock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from drydock_client.values import ConsoleInfo

Attach = Annotated[bool, typer.Option("--attach", help="Connect this terminal to the console. End with Enter ~ .")]
Take = Annotated[
    bool, typer.Option("--take", help="With --attach: type even if somebody else does now, who is told about it.")
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="With --attach: only read.")]


def add_console(app: typer.Typer) -> None:
    """Add `drydock console`."""
    app.command("console", rich_help_panel="Work")(console)


@guarded
def console(
    lease: o.LeaseId, *, attach: Attach = False, take: Take = False, read_only: ReadOnly = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Show the console output of a lease's machine, or attach to its serial console.

    Without --attach, prints the newest 64 KiB of what the provider returns or, for a machine to whose console one can
    attach, of what was printed while somebody was attached. Every call is recorded.
    """
    if (take or read_only) and not attach:
        raise InvalidRequest("--take and --read-only need --attach.", field="attach")
    if attach and as_json:
        raise InvalidRequest("--json does not work with --attach.", field="json")
    if attach:
        return _attach(lease, take=take, read_only=read_only)
    info = o.client().console(lease)
    if as_json:
        return output.emit(info)
    output.line(info.text.replace("\r\n", "\n"), end="" if not info.text or info.text.endswith("\n") else "\n")
    if said := _about(info, lease):
        output.say(said)
    return None


def _about(info: ConsoleInfo, lease: int) -> str:
    """Return who is at the console, and how to attach to it, in a line for people."""
    if not info.attachable:
        return "Attaching to this console is not possible." if sys.stdout.isatty() else ""
    who = f"Attached: {', '.join(info.attached)}." if info.attached else "Nobody is attached."
    types = f" {info.writer} types." if info.writer else ""
    empty = " Nothing was printed while somebody was attached." if not info.text else ""
    return f"{who}{types}{empty} Attach: drydock console {lease} --attach"


def _attach(lease: int, *, take: bool, read_only: bool) -> None:
    from drydock.cli.console.terminal import AttachedTerminal

    if not read_only and not sys.stdin.isatty():
        raise InvalidRequest(
            "Typing needs a terminal as standard input.", field="attach", hint="Use --read-only, or the REST API."
        )
    with AttachedTerminal(o.client(), lease, take=take, read_only=read_only) as terminal:
        terminal.run()
