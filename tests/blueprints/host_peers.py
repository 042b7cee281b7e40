"""Accounts, processes and SSH servers of this machine, for tests of the kinds of hosts."""

from __future__ import annotations

import fcntl
import getpass
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from drydock.core import clock
from interfaces.keys import KeyPair, new_key_pair
from interfaces.ssh.pool import POOL
from tests.peers import require as require_peer

AS_ROOT = os.geteuid() == 0
WORKER = int((os.environ.get("PYTEST_XDIST_WORKER") or "gw0").removeprefix("gw"))
FIRST_UID = 710_000 + 100 * (os.getpid() % 200)
PLACES = [Path(name) for name in ("/tmp", "/var/tmp", "/dev/shm")]

# In shell: the interpreter of the tests may be closed to other accounts.
DAEMON = "cd /; ( {setsid} /bin/sh -c '( sleep 600 & ) </dev/null >/dev/null 2>&1' & ) </dev/null >/dev/null 2>&1"
"""Leaves a process that is nobody's child, in a session of its own."""

BOMB = """
cat >/tmp/dd-respawn-$$ <<'end'
[ "$(date +%s)" -lt "$1" ] || exit 0
echo >>"$HOME/generations"
sleep 0.02
setsid /bin/sh "$0" "$1" &
end
cd /; exec </dev/null >/dev/null 2>&1
n=0 end=$(($(date +%s) + 60))
while [ $n -lt 30 ]; do setsid /bin/sh /tmp/dd-respawn-$$ $end & n=$((n + 1)); done
"""
"""About 30 processes, each followed by a child in a session of its own all the time, for a minute at most."""


def daemon(*, clean: bool = False) -> str:
    """The line that leaves a daemon, with `clean` one without the environment of its lease."""
    return DAEMON.format(setsid="env -i setsid" if clean else "setsid")


def alive(uid: int) -> list[psutil.Process]:
    """The processes of an account that are not dead."""
    return [one for one in psutil.process_iter() if _is(one, uid)]


def named(name: str, uid: int) -> list[psutil.Process]:
    """The processes of an account that run this program."""
    found = []
    for one in alive(uid):
        with suppress(psutil.Error):  # it ended in between
            if one.name() == name:
                found.append(one)
    return found


def headless(uid: int) -> list[int]:
    """The processes of an account whose first thread has exited, while another runs."""
    return [one.pid for one in alive(uid) if _state(Path(f"/proc/{one.pid}/stat")) == "Z"]


def marked(mark: str) -> list[psutil.Process]:
    """The processes that carry the mark in their environment."""
    return [one for one in psutil.process_iter() if _carries(one, mark)]


def files_of(uid: int) -> list[Path]:
    """What an account owns in the places that all may write to."""
    return [path for place in PLACES for path in place.iterdir() if _owner(path) == uid]


def _owner(path: Path) -> int | None:
    """Whose a path is; None when it went away: others work there, too."""
    try:
        return path.lstat().st_uid
    except FileNotFoundError:
        return None


def eventually(holds: Callable[[], Any], seconds: float = 10) -> Any:
    """What `holds` gives, as soon as it is true."""
    until = clock.monotonic() + seconds
    while not (found := holds()):
        assert clock.monotonic() < until, "it did not come true"
        clock.sleep(0.05)
    return found


def require(*programs: str) -> None:
    """Skip where a program is missing; in CI that is a failure."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing and os.environ.get("CI"):
        pytest.fail(f"missing: {missing}")
    if missing:
        pytest.skip(f"missing: {missing}")


def needs_root() -> None:
    """Skip where accounts cannot be taken."""
    if not AS_ROOT:
        pytest.skip("only root works as another account")


@contextmanager
def removed(*paths: Path) -> Iterator[None]:
    """Whatever happens, these are gone afterwards."""
    try:
        yield
    finally:
        for path in paths:
            subprocess.run(["rm", "-rf", "--", str(path)], check=False)


def _is(process: psutil.Process, uid: int) -> bool:
    try:
        return uid in process.uids() and not _is_dead(process.pid)
    except psutil.Error:
        return False


def _is_dead(pid: int) -> bool:
    """Whether no thread runs: the first one may have exited before others."""
    try:
        states = [_state(thread) for thread in Path(f"/proc/{pid}/task").glob("*/stat")]
    except FileNotFoundError:  # it ended in between
        return True
    return all(state in ("", "Z", "X") for state in states)


def _state(stat: Path) -> str:
    try:
        return stat.read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""


def _carries(process: psutil.Process, mark: str) -> bool:
    try:
        name, _, value = mark.partition("=")
        return process.environ().get(name) == value and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False


@dataclass
class Server:
    """An SSH server on a loopback address: a host of its own, as far as a client can tell."""

    address: str
    port: int
    folder: Path
    host: KeyPair
    control: KeyPair
    popen: subprocess.Popen[bytes]

    def registration(self, user: str = "") -> dict[str, Any]:
        """As an operator would register it."""
        return {
            "address": self.address,
            "port": self.port,
            "user": user or getpass.getuser(),
            "host_keys": [self.host.public],
        }

    def stop(self) -> None:
        """End the server with every connection to it."""
        children = psutil.Process(self.popen.pid).children(recursive=True) if self.popen.poll() is None else []
        self.popen.terminate()
        self.popen.wait(10)
        for child in children:
            with suppress(psutil.Error):
                child.kill()
        # psutil.wait_procs would wait until the first process of the machine has reaped them, which may take seconds.
        eventually(lambda: all(_is_dead(child.pid) for child in children), 5)

    def again(self) -> None:
        """Start it once more, at the same place with the same keys."""
        self.popen = start_sshd(self.folder, self.address, self.port)


SSHD = "/usr/sbin/sshd"


@contextmanager
def server(address: str) -> Iterator[Server]:
    """An SSH server that lets the control key in as anybody, and accounts by their own authorized keys."""
    require(SSHD, "ssh-keygen")
    if AS_ROOT:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="dd-sshd-", dir="/tmp"))
    folder.chmod(0o755)
    host, control = new_key_pair("host"), new_key_pair("control")
    _private(folder / "host", host.private)
    (folder / "control").write_text(control.public + "\n")
    port = free_port(address)
    (folder / "config").write_text(sshd_config(folder, address, port))
    running = Server(address, port, folder, host, control, start_sshd(folder, address, port))
    try:
        yield running
    finally:
        POOL.close_idle(0)
        running.stop()
        shutil.rmtree(folder)


def free_port(address: str) -> int:
    """A port of this address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def sshd_config(folder: Path, address: str, port: int, *, more: str = "", home: Path | None = None) -> str:
    """The configuration of a server whose keys are `host` and `control` in this folder.

    With `home`, root has this home there, and whatever is done to it leaves the one of this machine's root alone.
    """
    keys, variables = ".ssh/authorized_keys", "SHLVL=1"
    if home is not None:
        keys, variables = f"{home}/{keys}", f"{variables} HOME={home}"
    return (
        f"Port {port}\nListenAddress {address}\nHostKey {folder}/host\nPidFile {folder}/pid\n"
        f"AuthorizedKeysFile {folder}/control {keys}\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
        f"MaxStartups 100:30:200\nUseDNS no\nSubsystem sftp internal-sftp\n{more}"
        # Bash takes itself for a shell in a shell and leaves out root's own .bashrc, which may be slow and take locks.
        + (f"Match User root\n  SetEnv {variables}\n" if AS_ROOT else "")
    )


def peer_account() -> str:
    """The account that shared leases use: as root one made for them."""
    return f"ddpeer{os.getpid()}" if AS_ROOT else getpass.getuser()


@contextmanager
def account() -> Iterator[str]:
    """The account of `peer_account`, for as long as it is needed."""
    name = peer_account()
    if AS_ROOT:
        require("useradd", "userdel", "pkill")
        subprocess.run(["useradd", "-m", "-p", "*", "-s", "/bin/sh", name], check=True)
    keys = Path(f"~{name}").expanduser() / ".ssh"
    kept = keys.exists()
    try:
        yield name
    finally:
        if AS_ROOT:
            subprocess.run(["pkill", "-KILL", "-u", name], check=False)
            eventually(lambda: not alive(pwd.getpwnam(name).pw_uid))
            home = Path(pwd.getpwnam(name).pw_dir)
            subprocess.run(["userdel", "-r", name], check=False, capture_output=True)
            shutil.rmtree(home, ignore_errors=True)  # userdel leaves one that was closed, as it is then root's
        elif not kept:
            shutil.rmtree(keys, ignore_errors=True)


@contextmanager
def sudoer(account: str, rule: str = "NOPASSWD: ALL") -> Iterator[None]:
    """The account may use sudo for as long as it is needed."""
    require_peer("sudo")
    rules = Path(f"/etc/sudoers.d/{account}")
    with removed(rules):
        rules.write_text(f"{account} ALL=(ALL:ALL) {rule}\n")
        rules.chmod(0o440)
        yield


def accounts(beginning: str = "dd") -> list[str]:
    """The accounts of this machine whose names begin so, without the control accounts of the tests and those of leases
    on the machines of emulated clouds (tests/clouds/machines.py), which run at the same time."""
    names = [entry.pw_name for entry in pwd.getpwall() if "/drydock-homes-" not in entry.pw_dir]
    return [name for name in names if name.startswith(beginning) and not name.startswith("ddpeer")]


@contextmanager
def alone() -> Iterator[None]:
    """Tests that look at all accounts of the machine run one at a time, whichever process or run they are in."""
    folder = os.open("/tmp", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


@contextmanager
def unchanged_accounts() -> Iterator[None]:
    """Be alone, and end with the accounts that there were at the beginning."""
    with alone():
        before = accounts()
        yield
        assert accounts() == before


def start_sshd(folder: Path, address: str, port: int) -> subprocess.Popen[bytes]:
    popen = subprocess.Popen(
        [SSHD, "-D", "-e", "-f", str(folder / "config")], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((address, port)) == 0

    eventually(listens, 20)
    return popen


def _private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
