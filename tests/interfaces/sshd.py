"""A real sshd on a loopback address, for tests."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from interfaces.endpoints import SshEndpoint
from interfaces.keys import KeyPair, new_key_pair
from tests.peers import find


def own_address(last: int) -> str:
    """An address of this machine on which no other process of tests looks for a free port."""
    pid = os.getpid()
    return f"127.{100 + pid // 250 % 100}.{pid % 250}.{last}"


def free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


@dataclass
class Sshd:
    address: str
    port: int
    folder: Path
    host: KeyPair
    user: KeyPair
    popen: subprocess.Popen[bytes]

    def endpoint(self, home: Path | None = None, **changes: object) -> SshEndpoint:
        values: dict[str, object] = {
            "host": self.address,
            "port": self.port,
            "user": getpass.getuser(),
            "host_keys": (self.host.public,),
            "home": str(home) if home else "",
        }
        return SshEndpoint(**{**values, **changes})  # type: ignore[arg-type]

    def sessions(self) -> list[psutil.Process]:
        """The processes that serve a connection each."""
        return psutil.Process(self.popen.pid).children(recursive=True)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for process in self.sessions():
            with suppress(psutil.NoSuchProcess):  # a session may end between the list and the signal
                process.send_signal(number)

    def stop(self) -> None:
        try:
            below = self.sessions()
        except psutil.NoSuchProcess:
            below = []
        self.popen.kill()
        self.popen.wait()
        for process in below:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        shutil.rmtree(self.folder)


def start_sshd(address: str, *lines: str) -> Sshd:
    folder = Path(tempfile.mkdtemp(prefix="drydock-sshd-"))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    host, user, port = new_key_pair(), new_key_pair(), free_port(address)
    (folder / "host").write_text(host.private)
    (folder / "host").chmod(0o600)
    (folder / "authorized_keys").write_text(user.public + "\n")
    (folder / "config").write_text(
        f"Port {port}\nListenAddress {address}\nHostKey {folder}/host\nPidFile {folder}/pid\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        "PermitRootLogin prohibit-password\nMaxStartups 100:30:200\nUseDNS no\n"
        # Bash takes itself for a shell in a shell and leaves out our own .bashrc, which may be slow and take locks.
        "SetEnv SHLVL=1\nSubsystem sftp internal-sftp\n" + "".join(f"{line}\n" for line in lines)
    )
    popen = subprocess.Popen(
        [find("sshd") or "sshd", "-D", "-e", "-f", str(folder / "config")],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex((address, port)) == 0:
                return Sshd(address, port, folder, host, user, popen)
        time.sleep(0.05)
    raise AssertionError("sshd did not start")
