"""The system's `ssh` on the way to a lease: its configuration and an agent with the lease's key, for one command."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drydock.cli.exits import is_a
from drydock.core.errors import DrydockError, InvalidRequest, NotAllowed, NotFound
from interfaces.endpoints import SshEndpoint
from interfaces.errors import LeaseEnded

if TYPE_CHECKING:
    from leases.client import AccessInfo, Bastion, Client

PREFIX, BASTION = "drydock-ssh-", "drydock-bastion"
_STALE = 60.0
_ENDING = 5.0
_LONGEST = 70
"""Bytes of a folder's path that leave room for the name of a socket, which may have about 100."""


@contextlib.contextmanager
def way(
    client: Client, info: AccessInfo, identities: Sequence[Path] = (), *, agent: Path | None = None
) -> Iterator[tuple[list[str], str]]:
    """The beginning of a command line of `ssh`, and the name of the host in it; `BASTION` is that of a bastion.

    Configuration and host keys are in a folder of this command's own that is removed at its end; what a killed command
    has left is removed by the next. The lease's private key is in no file: an agent has it, at
    `agent` where that is given.
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
        yield [program, "-F", str(folder / "config")], name


def lease_key(client: Client, lease: int) -> str:
    """The private key of a lease, as its owner. Raises NotFound and NotAllowed with what to do without it."""
    try:
        return client.private_key(lease)
    except (NotFound, NotAllowed) as error:
        raise NotAllowed(
            f"The private key of lease {lease} is not shown to you: {error.message}",
            hint="Its owner alone logs in with it. Use `drydock run` and `drydock cp`, or give your own public key "
            "with the request: drydock lease host --public-key FILE.",
        ) from error  # fmt: skip


def endpoint_of(info: AccessInfo) -> SshEndpoint:
    """Where a lease is reached, each value checked here whatever a server said. Raises InvalidRequest."""

    def read(one: AccessInfo | Bastion, **more: Any) -> SshEndpoint:
        keys = tuple(key.key for key in one.host_keys)
        return SshEndpoint(host=one.host, port=one.port, user=one.user, host_keys=keys, **more)

    return read(info, bastion=read(info.bastion) if info.bastion else None)


def run(command: Sequence[str], **given: Any) -> int:
    """Run a program to its end; its exit code, 128 and its number for a signal. It does not outlive this process."""
    with started(command, **given) as process:
        code = process.wait()
    return 128 - code if code < 0 else code


@contextlib.contextmanager
def started(command: Sequence[str], **given: Any) -> Iterator[subprocess.Popen[str]]:
    """A program that ends with the block, and with this process however that ends."""
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
            "There is no program `ssh` on this machine.", hint="Install an OpenSSH client (Debian: openssh-client)."
        )
    return found


def _files(identities: Sequence[Path]) -> tuple[Path, ...]:
    found = tuple(path.expanduser().absolute() for path in identities)
    for file in found:
        if not file.is_file():
            raise InvalidRequest(f"There is no file {file}.", field="identity", hint="Give a private key of your own.")
    return found


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder that only this user may enter, locked as long as it is used."""
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
    """Remove the folders of commands that were killed."""
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if status.st_uid != os.geteuid() or folder.is_symlink() or time.time() - status.st_mtime < _STALE:
                continue
            with (folder / "lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)


def over(client: Client, lease: int) -> bool:
    """Whether a lease has ended, as far as can be found out."""
    try:
        client.access(lease)
    except DrydockError as error:
        return is_a(error, LeaseEnded, NotFound)
    except Exception:  # nothing is known now, and the lost connection has been told
        return False
    return False
