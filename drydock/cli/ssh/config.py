"""`drydock ssh-config`: entries for leases in ~/.ssh/config, for ssh, scp, rsync, git and editors.

Our block in ~/.ssh/config includes the files in ~/.ssh/drydock, which contain entries and pinned host keys, but no
private key. The agent of `drydock ssh-proxy`, which ssh starts for each connection, holds the key.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import select
import shlex
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from drydock.cli.ssh import connection
from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output, session
from drydock.cli.toolkit.exits import guarded, is_a, stoppable
from drydock.core.errors import Conflict, DrydockError, InvalidRequest, NotSupported
from drydock.engines.layout import LONGEST_SOCKET
from interfaces.errors import LeaseEnded, Unreachable

if TYPE_CHECKING:
    from drydock_client.values import LeaseInfo
    from interfaces.endpoints import SshEndpoint


BEGIN, END = b"# BEGIN drydock", b"# END drydock"

_BLOCK = BEGIN + b": written by `drydock ssh-config --install`, removed by --remove\nInclude %s\n" + END + b"\n"

_OURS = re.compile(rb"^# BEGIN drydock\b.*\nInclude .*\n# END drydock\b.*(?:\n|\Z)", re.MULTILINE)

_ALIAS = re.compile(r"(?=.*[^0-9])[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

_KEPT = ("DRYDOCK_STATE", "DRYDOCK_USER", "DRYDOCK_TOKENS", session.SERVER, session.CA, session.INSECURE)

"""The environment variables that later connections need to find the same installation. Secrets are not included."""

_PART = 1 << 16

_BESIDE = len(".4194304")

"""The number of bytes that the temporary name of an agent's socket adds to its path: a dot and a process id."""


def add_ssh_config(app: typer.Typer) -> None:
    """Add `drydock ssh-config` and the hidden `ssh-proxy`."""
    app.command("ssh-config", rich_help_panel="Work")(ssh_config)
    app.command("ssh-proxy", hidden=True)(ssh_proxy)


@guarded
def ssh_config(
    *, install: Annotated[bool, typer.Option("--install", help="Write an entry for each of your leases.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove everything that --install has written.")] = False,
) -> None:  # fmt: skip
    """Write entries for your leases for ssh, scp, rsync and editors: `ssh drydock-12`, `ssh drydock-NAME`.

    Only leases that are active now get entries: run it again for later leases. No private key is written.
    """
    if install == remove:
        raise InvalidRequest("Give one of --install and --remove.", field="install")
    place = Path.home() / ".ssh"
    if remove:
        with _locked(place / "drydock"):
            _edit(place / "config", b"")
            for file in [*place.glob("drydock/*.config"), *place.glob("drydock/*.known_hosts")]:
                file.unlink()
        _forget(place / "drydock")
        output.say(f"Removed from {place / 'config'}.")
        return
    written = _install(place)
    for names in written:
        output.line(names[-1])
    output.say(f"{len(written)} leases in {place / 'config'}" if written else "You have no active lease with SSH.")


def _install(place: Path) -> list[list[str]]:
    from interfaces.ssh.openssh import Identity, entry, known_hosts_of, path

    folder, label = place / "drydock", _label() or "here"
    include = path(folder / "*.config")
    known = folder / f"{label}.known_hosts"
    text, hosts, written = "", "", []
    for lease, there, own in _reached():
        names, agent = _names(lease), _agent(folder, label, lease.id)
        text += entry(
            names, there, known_hosts=known, identity=Identity() if own else Identity(agent=agent),
            proxy_command=_proxy(lease.id, None if own else agent),
        )  # fmt: skip
        hosts += known_hosts_of(names[0], there)
        written.append(names)
    with _locked(folder):
        _replace(known, hosts.encode())
        _replace(folder / f"{label}.config", text.encode())
        _edit(place / "config", _BLOCK % include.encode())
    return written


def _reached() -> Iterator[tuple[LeaseInfo, SshEndpoint, bool]]:
    """Yield the caller's active leases with SSH, each with its endpoint and whether it uses the owner's own keys."""
    client = o.client()
    me = session.client(session.server_address()).name if session.server_address() else session.os_user()
    for lease in client.leases(states=["active"], limit=1000):
        if lease.owner == me:
            try:
                info = client.access(lease.id)
            except DrydockError as error:
                if is_a(error, NotSupported, LeaseEnded, Unreachable):
                    continue
                raise
            yield lease, connection.endpoint_of(info), info.own_keys


def _names(lease: LeaseInfo) -> list[str]:
    """Return the host names of a lease: one with its number, and one with its name if that is a plain word."""
    label = _label()
    end = f".{label}" if label else ""
    plain = [lease.name] if _ALIAS.fullmatch(lease.name) else []
    return [f"drydock-{one}{end}" for one in (str(lease.id), *plain)]


def _label() -> str:
    """Return the server's name for use in host names, or an empty string for this machine's engine."""
    if not session.server_address():
        return ""
    parts = urlsplit(session.server_address())
    port = f"-{parts.port}" if parts.port else ""
    return re.sub(r"[^A-Za-z0-9.-]", "-", f"{parts.hostname}{port}")


def _agent(folder: Path, label: str, lease: int) -> Path:
    """Return the path of the socket of a lease's agent.

    It has a hash instead of the server's name if the path is too long. Raises InvalidRequest if even that path is too
    long.
    """
    short = hashlib.sha256(label.encode()).hexdigest()[:8]
    for name in (label, short):
        path = folder / f"{name}-{lease}.agent"
        if len(os.fsencode(path)) + _BESIDE <= LONGEST_SOCKET:
            return path
    raise InvalidRequest(
        f"The path of {folder} is too long: paths of sockets can have at most {LONGEST_SOCKET} bytes.",
        hint="Use `drydock ssh`, or a home with a shorter path.",
    )


def _proxy(lease: int, agent: Path | None) -> str:
    kept = [f"{name}={os.environ[name]}" for name in _KEPT if os.environ.get(name)]
    program = Path(sys.executable).with_name("drydock")
    words = [str(program)] if program.is_file() else [sys.executable, "-m", "drydock"]
    options = ["--agent", str(agent)] if agent else []
    return shlex.join([*(["env", *kept] if kept else []), *words, "ssh-proxy", *options, str(lease)])


@guarded
def ssh_proxy(
    lease: o.LeaseId,
    agent: Annotated[
        Path | None, typer.Option("--agent", help="Socket path for an agent with the lease's key.")
    ] = None,
) -> None:
    """Connect standard input and output with the SSH server of a lease, for the entries of `ssh-config`."""
    with stoppable():
        client = o.client()
        info = client.access(lease)
        there = connection.endpoint_of(info)
        with connection.connection(client, info, agent=agent) as (begin, _):
            if there.bastion:
                code = connection.run([*begin, "-W", f"[{there.host}]:{there.port}", "--", connection.BASTION])
                raise typer.Exit(code)
            _relay(there)


def _relay(there: SshEndpoint) -> None:
    """Relay data in both directions until the host closes the connection or the input ends."""
    try:
        link = socket.create_connection((there.host, there.port), timeout=there.connect_timeout)
    except OSError as error:
        raise Unreachable(f"{there.host}:{there.port} could not be reached: {error.strerror or error}.") from error
    with link:
        link.settimeout(None)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            ready, _, _ = select.select([0, link.fileno()], [], [])
            if link.fileno() in ready:
                part = link.recv(_PART)
                if not part:
                    return
                while part:
                    part = part[os.write(1, part) :]
            if 0 in ready:
                given = os.read(0, _PART)
                if not given:
                    return
                link.sendall(given)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock our folder for one command at a time, creating it if it is missing."""
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _forget(folder: Path) -> None:
    for agent in folder.glob("*.agent*"):
        agent.unlink(missing_ok=True)
    (folder / "lock").unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # something in it is not ours
        folder.rmdir()


def _edit(file: Path, block: bytes) -> None:
    """Write our block at the top of a file, replacing an existing one; everything else stays byte for byte.

    The block goes to the top because an `Include` below a `Host` line would apply only to that host. Raises Conflict if
    the block was edited by hand.
    """
    before = file.read_bytes() if file.exists() else b""
    rest = _OURS.sub(b"", before)
    if re.search(rb"^# (BEGIN|END) drydock\b", rest, re.MULTILINE):
        raise Conflict(
            f"The block from '{BEGIN.decode()}' to '{END.decode()}' in {file} was changed or is incomplete.",
            hint="Remove the block by hand, and try again. Nothing was changed.",
        )
    if block + rest != before:
        _replace(file, block + rest)


def _replace(file: Path, content: bytes) -> None:
    """Replace a file atomically.

    Its mode, its owner and a symbolic link to it are kept; a new file is readable only by this user.
    """
    target = Path(os.path.realpath(file))
    descriptor, beside = tempfile.mkstemp(prefix=".drydock-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
            if target.exists():
                status = target.stat()
                if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(opened.fileno(), status.st_uid, status.st_gid)
                os.fchmod(opened.fileno(), status.st_mode & 0o7777)
        os.replace(beside, target)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
