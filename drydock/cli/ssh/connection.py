"""Running the system's `ssh` for a lease, with a temporary configuration and an agent that holds the key."""

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

from drydock.cli.toolkit.exits import begin_cleanup
from drydock.core.errors import InvalidRequest, NotAllowed, NotFound
from interfaces.endpoints import SshEndpoint

if TYPE_CHECKING:
    from drydock_client.protocol import Client
    from drydock_client.values import AccessInfo, Bastion


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
