"""`drydock ssh` and `port-forward`: run the system's `ssh` with a temporary configuration and agent."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import CONFLICT, FAILURE, begin_cleanup, guarded, is_a, stoppable
from drydock.cli.toolkit.lease_run import run_command as run_there
from drydock.core.errors import DrydockError, InvalidRequest, NotAllowed, NotFound, NotSupported
from interfaces.endpoints import SshEndpoint
from interfaces.errors import LeaseEnded

if TYPE_CHECKING:
    from drydock_client.protocol import Client
    from drydock_client.values import AccessInfo, Bastion
    from interfaces.endpoints import LocalEndpoint


PREFIX, BASTION = "drydock-ssh-", "drydock-bastion"

_STALE = 60.0

_ENDING = 5.0

_LONGEST = 70

"""The maximum length in bytes of a folder's path that leaves room for the name of a socket; the limit is about 100."""


@contextlib.contextmanager
def connection(
    client: Client, info: AccessInfo, identities: Sequence[Path] = (), *, agent: Path | None = None
) -> Iterator[tuple[list[str], str]]:
    """Yield the beginning of an `ssh` command line, and the host's name in it.

    `BASTION` is the name of the bastion, if any. The configuration and host keys are in a temporary folder; a folder
    left behind by a killed command is removed by the next command. The lease's private key is never written to a file:
    an agent holds it, listening at `agent` if that is given.
    """
    from interfaces.ssh.keyagent import KeyAgent
    from interfaces.ssh.openssh import Identity, entry, known_hosts_of

    program, there, own = _program(), endpoint_of(info), _files(identities)
    key = "" if info.own_keys else lease_key(client, info.lease)
    with _folder() as folder, contextlib.ExitStack() as stack:
        agent = agent or folder / "agent"
        if key:
            stack.enter_context(KeyAgent(key, agent))
        identity = Identity(agent=agent) if key else Identity(files=own)
        known, name = folder / "known_hosts", f"drydock-{info.lease}"
        text = entry([name], there, known_hosts=known, identity=identity, jump=BASTION if there.bastion else "")
        hosts = known_hosts_of(name, there)
        if there.bastion:
            text += entry([BASTION], there.bastion, known_hosts=known, identity=Identity(files=own))
            hosts += known_hosts_of(BASTION, there.bastion)
        known.write_text(hosts)
        (folder / "config").write_text(text)
        try:
            yield [program, "-F", str(folder / "config")], name
        finally:
            # `ssh` closes a proxy's input and sends it SIGHUP at once: the agent is to go all the same.
            begin_cleanup()


def lease_key(client: Client, lease: int) -> str:
    """Return the private key of a lease. Raises NotAllowed, with a hint on how to work without the key."""
    try:
        return client.private_key(lease)
    except (NotFound, NotAllowed) as error:
        raise NotAllowed(
            f"You cannot read the private key of lease {lease}: {error.message}",
            hint="Only its owner can log in with it. Use `drydock run` and `drydock cp`, or give your own public key "
            "with the request: drydock lease host --public-key FILE.",
        ) from error  # fmt: skip


def endpoint_of(info: AccessInfo) -> SshEndpoint:
    """Return the SSH endpoint of a lease, with every value from the server validated. Raises InvalidRequest."""

    def read(one: AccessInfo | Bastion, **more: Any) -> SshEndpoint:
        keys = tuple(key.key for key in one.host_keys)
        return SshEndpoint(host=one.host, port=one.port, user=one.user, host_keys=keys, **more)

    return read(info, bastion=read(info.bastion) if info.bastion else None)


def run(command: Sequence[str], **given: Any) -> int:
    """Run a program to its end. Return its exit code, or 128 plus the number of the signal that ended it."""
    with started(command, **given) as process:
        code = process.wait()
    return 128 - code if code < 0 else code


@contextlib.contextmanager
def started(command: Sequence[str], **given: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a program that is ended with the block, or when this process ends in any way."""
    from drydock.engines.process import end_with_parent

    process = subprocess.Popen(list(command), text=True, preexec_fn=end_with_parent(signal.SIGTERM), **given)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_ENDING)
            process.kill()
            process.wait()


def _program() -> str:
    found = shutil.which("ssh")
    if found is None:
        raise InvalidRequest(
            "`ssh` was not found on this machine.", hint="Install an OpenSSH client (Debian: openssh-client)."
        )
    return found


def _files(identities: Sequence[Path]) -> tuple[Path, ...]:
    found = tuple(path.expanduser().absolute() for path in identities)
    for file in found:
        if not file.is_file():
            raise InvalidRequest(
                f"File {file} does not exist.", field="identity", hint="Give the path of your own private key."
            )
    return found


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Create a folder that only this user may enter, and keep it locked while it is in use."""
    place = tempfile.gettempdir()
    place = place if len(os.fsencode(place)) < _LONGEST else "/tmp"  # noqa: S108 - the folder in it is private
    _sweep(Path(place))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    try:
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(place: Path) -> None:
    """Remove the temporary folders that killed commands left behind."""
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if status.st_uid != os.geteuid() or folder.is_symlink() or time.time() - status.st_mtime < _STALE:
                continue
            with (folder / "lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)


def has_ended(client: Client, lease: int) -> bool:
    """Return whether a lease is known to have ended."""
    try:
        client.access(lease)
    except DrydockError as error:
        return is_a(error, LeaseEnded, NotFound)
    except Exception:  # nothing is known now, and the lost connection has been told
        return False
    return False


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
    import subprocess

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
    if (lost or code == _LOST) and has_ended(client, lease):
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
