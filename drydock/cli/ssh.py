"""`drydock ssh` and `drydock port-forward`: the system's `ssh` to the account of a lease."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli import openssh, output
from drydock.cli import options as o
from drydock.cli.errand import run as run_there
from drydock.cli.exits import CONFLICT, FAILURE, guarded
from drydock.cli.signals import stoppable
from drydock.core.errors import InvalidRequest, NotSupported

if TYPE_CHECKING:
    from interfaces.endpoints import LocalEndpoint
    from leases.client import Client

_LOST = 255
"""How `ssh` ends when it could not connect, or lost its connection."""
_READY = "drydock-forwarding"
_PORTS = re.compile(r"([0-9]{1,5}):([0-9]{1,5})")
Identity = Annotated[
    list[Path] | None,
    typer.Option(
        "--identity", "-i", metavar="FILE",
        help="A private key of your own: for a bastion, and for a lease that was given your public keys.",
    ),
]  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    # As with ssh itself, everything after the lease is the command.
    app.command("ssh", rich_help_panel="Work", context_settings={"allow_interspersed_args": False})(ssh)
    app.command("port-forward", rich_help_panel="Work")(port_forward)


@guarded
def ssh(
    lease: o.LeaseId,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]...", help="A line for the shell there, as with ssh.")
    ] = None,
    *, tty: Annotated[bool, typer.Option("--tty", "-t", help="Give the command a terminal.")] = False,
    identity: Identity = None,
) -> None:  # fmt: skip
    """Log in to a lease with the system's ssh; the exit code of COMMAND, or of the shell, is ours.

    The host key is pinned. The lease's private key is held by an agent for this one command, and never in a file.
    On a host that is this machine it is a shell as the lease's account. Options go before LEASE.
    """
    words = list(command or ())
    line = " ".join(words[1:] if words[:1] == ["--"] else words)
    with stoppable():
        client = o.client()
        account = _local_account(lease)
        code = _here(client, lease, account, line, tty=tty) if account else _there(client, lease, line, tty, identity)
    raise typer.Exit(code)


@guarded
def port_forward(
    lease: o.LeaseId,
    ports: Annotated[list[str], typer.Argument(metavar="LOCAL:REMOTE...", help="Ports, such as 8080:80.")],
    *, identity: Identity = None,
) -> None:  # fmt: skip
    """Forward ports of this machine, on 127.0.0.1 alone, to ports of a lease's host until Ctrl-C."""
    pairs = [_pair(one) for one in ports]
    with stoppable():
        client = o.client()
        if _local_account(lease):
            raise NotSupported(
                f"Lease {lease} is on this machine: its ports are on 127.0.0.1 already.", capability="access"
            )
        code = _forward(client, lease, pairs, identity or [])
    raise typer.Exit(code)


def _local_account(lease: int) -> LocalEndpoint | None:
    from drydock.cli import server, session

    return None if server.address() else session.connect_here().local_account(lease)


def _here(client: Client, lease: int, account: LocalEndpoint, line: str, *, tty: bool) -> int:
    from interfaces.local.terminal import attach

    terminal = sys.stdin.isatty()
    if terminal and (tty or not line):
        return attach(account, line)
    words = ["/bin/sh", "-c", line] if line else ["/bin/sh"]
    given = b"" if terminal else sys.stdin.buffer.read()
    return run_there(client, lease, words, env={}, cwd="", stdin=given, quiet=False).exit_code


def _there(client: Client, lease: int, line: str, tty: bool, identity: list[Path] | None) -> int:
    with openssh.way(client, client.access(lease), identity or []) as (begin, name):
        options = ["-t"] if tty else []
        code = openssh.run([*begin, *options, "--", name, *([line] if line else [])])
    return _told(client, lease, code)


def _forward(client: Client, lease: int, pairs: list[tuple[int, int]], identity: list[Path]) -> int:
    import subprocess

    # The line is written once the connection stands and the ports are open.
    options = ["-N", "-T", "-o", "ExitOnForwardFailure=yes", "-o", "PermitLocalCommand=yes"]
    options += ["-o", f"LocalCommand=echo {_READY}"]
    for local, remote in pairs:
        options += ["-L", f"127.0.0.1:{local}:localhost:{remote}"]
    with (
        openssh.way(client, client.access(lease), identity) as (begin, name),
        openssh.started([*begin, *options, "--", name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        if process.stdout.readline().strip() == _READY:
            for local, remote in pairs:
                output.say(f"127.0.0.1:{local} is port {remote} of lease {lease}")
            output.say("Ctrl-C ends it")
        code = process.wait()
    return _told(client, lease, FAILURE if code == _LOST else code, lost=code == _LOST)


def _told(client: Client, lease: int, code: int, *, lost: bool = False) -> int:
    """The exit code, where it was the lease that ended the connection."""
    if (lost or code == _LOST) and openssh.over(client, lease):
        output.say(f"drydock: lease {lease} has ended")
        return CONFLICT
    return 128 - code if code < 0 else code


def _pair(text: str) -> tuple[int, int]:
    found = _PORTS.fullmatch(text)
    ports = (int(found[1]), int(found[2])) if found else (0, 0)
    if not all(0 < port < 65536 for port in ports):
        raise InvalidRequest(
            f"{text!r} is not LOCAL:REMOTE.", field="ports", hint="Two ports from 1 to 65535, such as 8080:80."
        )
    return ports
