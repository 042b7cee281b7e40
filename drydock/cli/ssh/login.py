"""`drydock ssh` and `drydock port-forward`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli.ssh.connection import connection, run, started
from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import CONFLICT, FAILURE, guarded, is_a, stoppable
from drydock.cli.toolkit.lease_run import run_command as run_there
from drydock.core.errors import DrydockError, InvalidRequest, NotFound, NotSupported
from interfaces.errors import LeaseEnded

if TYPE_CHECKING:
    from drydock_client.protocol import Client
    from interfaces.endpoints import LocalEndpoint


_LOST = 255

"""The exit code of `ssh` if it could not connect or lost its connection."""

_READY = "drydock-forwarding"

_PORTS = re.compile(r"([0-9]{1,5}):([0-9]{1,5})")

Identity = Annotated[
    list[Path] | None,
    typer.Option(
        "--identity", "-i", metavar="FILE",
        help="Your own private key, for a bastion or for a lease with your public keys.",
    ),
]  # fmt: skip


def add_ssh(app: typer.Typer) -> None:
    """Add `drydock ssh` and `drydock port-forward`."""
    # As with ssh itself, everything after the lease is the command.
    app.command("ssh", rich_help_panel="Work", context_settings={"allow_interspersed_args": False})(ssh)
    app.command("port-forward", rich_help_panel="Work")(port_forward)


@guarded
def ssh(
    lease: o.LeaseId,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]...", help="Command line for the remote shell, as with ssh.")
    ] = None,
    *, tty: Annotated[bool, typer.Option("--tty", "-t", help="Allocate a terminal for the command.")] = False,
    identity: Identity = None,
) -> None:  # fmt: skip
    """Log in to a lease with the system's ssh, and exit with the exit code of COMMAND or of the shell.

    The host key is pinned. The lease's private key is held by an agent for this one command, and is never written to a
    file. If the host is this machine, a shell is started as the lease's account. Options go before LEASE.
    """
    words = list(command or ())
    line = " ".join(words[1:] if words[:1] == ["--"] else words)
    with stoppable():
        client = o.client()
        account = _local_account(lease)
        code = (
            _run_locally(client, lease, account, line, tty=tty)
            if account
            else _run_ssh(client, lease, line, tty, identity)
        )
    raise typer.Exit(code)


@guarded
def port_forward(
    lease: o.LeaseId,
    ports: Annotated[list[str], typer.Argument(metavar="LOCAL:REMOTE...", help="Pairs of ports, for example 8080:80.")],
    *, identity: Identity = None,
) -> None:  # fmt: skip
    """Forward ports of this machine, on 127.0.0.1 only, to ports of a lease's host until Ctrl-C."""
    pairs = [_pair(one) for one in ports]
    with stoppable():
        client = o.client()
        if _local_account(lease):
            raise NotSupported(
                f"Lease {lease} is on this machine: its ports are already on 127.0.0.1.", capability="access"
            )
        code = _forward(client, lease, pairs, identity or [])
    raise typer.Exit(code)


def _local_account(lease: int) -> LocalEndpoint | None:
    from drydock.cli.toolkit import session

    return None if session.server_address() else session.connect_here().local_account(lease)


def _run_locally(client: Client, lease: int, account: LocalEndpoint, line: str, *, tty: bool) -> int:
    from interfaces.local.terminal import attach

    terminal = sys.stdin.isatty()
    if terminal and (tty or not line):
        return attach(account, line)
    words = ["/bin/sh", "-c", line] if line else ["/bin/sh"]
    given = b"" if terminal else sys.stdin.buffer.read()
    return run_there(client, lease, words, env={}, cwd="", stdin=given, quiet=False).exit_code


def _run_ssh(client: Client, lease: int, line: str, tty: bool, identity: list[Path] | None) -> int:
    with connection(client, client.access(lease), identity or []) as (begin, name):
        options = ["-t"] if tty else []
        code = run([*begin, *options, "--", name, *([line] if line else [])])
    return _told(client, lease, code)


def _forward(client: Client, lease: int, pairs: list[tuple[int, int]], identity: list[Path]) -> int:
    # The line is written once the connection stands and the ports are open.
    options = ["-N", "-T", "-o", "ExitOnForwardFailure=yes", "-o", "PermitLocalCommand=yes"]
    options += ["-o", f"LocalCommand=echo {_READY}"]
    for local, remote in pairs:
        options += ["-L", f"127.0.0.1:{local}:localhost:{remote}"]
    with (
        connection(client, client.access(lease), identity) as (begin, name),
        started([*begin, *options, "--", name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        if process.stdout.readline().strip() == _READY:
            for local, remote in pairs:
                output.say(f"127.0.0.1:{local} is port {remote} of lease {lease}")
            output.say("Ctrl-C stops the forwarding")
        code = process.wait()
    return _told(client, lease, FAILURE if code == _LOST else code, lost=code == _LOST)


def _told(client: Client, lease: int, code: int, *, lost: bool = False) -> int:
    """Return the exit code, and print a message if the connection was closed because the lease ended."""
    if (lost or code == _LOST) and _has_ended(client, lease):
        output.say(f"drydock: lease {lease} has ended")
        return CONFLICT
    return 128 - code if code < 0 else code


def _pair(text: str) -> tuple[int, int]:
    found = _PORTS.fullmatch(text)
    ports = (int(found[1]), int(found[2])) if found else (0, 0)
    if not all(0 < port < 65536 for port in ports):
        raise InvalidRequest(
            f"{text!r} is not LOCAL:REMOTE.", field="ports", hint="Give two ports from 1 to 65535, for example 8080:80."
        )
    return ports


def _has_ended(client: Client, lease: int) -> bool:
    """Return whether a lease is known to have ended."""
    try:
        client.access(lease)
    except DrydockError as error:
        return is_a(error, LeaseEnded, NotFound)
    except Exception:  # nothing is known now, and the lost connection has been told
        return False
    return False
