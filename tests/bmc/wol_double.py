"""A machine that a magic packet wakes. Its sshd runs while it is on, and its address is silent while it is off."""

from __future__ import annotations

import contextlib
import getpass
import select
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from tests.interfaces.sshd import own_address, start_sshd
from tests.peers import find

MAC = "b0:7b:25:c0:ff:ee"
MAGIC = b"\xff" * 6 + bytes.fromhex(MAC.replace(":", "")) * 16


class Machine:
    """The machine. What is asked of it over SSH is written into `asked` by the scripts of the tests."""

    def __init__(self, folder: Path) -> None:
        self.asked = folder / "asked"
        self.asked.touch()
        self._server = start_sshd(own_address(77))
        self.address, self.port = self._server.address, self._server.port
        self._lock = threading.RLock()
        self._silent: list[socket.socket] = []
        self._waking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._waking.bind((self.address, 0))
        self.wake_port = self._waking.getsockname()[1]
        self.heard: list[bytes] = []
        self._running = True
        self.off()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def credential(self) -> dict[str, str]:
        return {"private_key": self._server.user.private}

    def access(self, **fields: Any) -> dict[str, Any]:
        return {
            "mac": MAC, "broadcast": self.address, "wake_port": self.wake_port, "address": self.address,
            "port": self.port, "user": getpass.getuser(), "host_keys": self._server.host.public,
            "silence_is_off": True, **fields,
        }  # fmt: skip

    def on(self) -> None:
        """Boot: from now on sshd answers."""
        with self._lock:
            if self._server.popen.poll() is None:
                return
            self.refuse()
            self._server.popen = subprocess.Popen(
                [find("sshd") or "sshd", "-D", "-e", "-f", str(self._server.folder / "config")],
                stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip

    def refuse(self) -> None:
        """Run without an SSH server."""
        with self._lock:
            self._stop()
            while self._silent:
                self._silent.pop().close()

    def off(self) -> None:
        """Take no connection, as a machine without power: the queue of this listener is full."""
        with self._lock:
            self.refuse()
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.address, self.port))
            listener.listen(0)
            self._silent = [listener]
            for _ in range(3):
                filling = socket.socket()
                filling.setblocking(False)
                filling.connect_ex((self.address, self.port))
                self._silent.append(filling)

    def _stop(self) -> None:
        popen = self._server.popen
        if popen.poll() is None:
            # A process for a connection that is just being accepted has the port of the server, too.
            popen.send_signal(signal.SIGSTOP)
            sessions = self._server.sessions()
            for process in sessions:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            popen.kill()
            popen.wait()
            psutil.wait_procs(sessions, timeout=10)

    def _run(self) -> None:
        done = 0
        while self._running:
            if select.select([self._waking], [], [], 0.02)[0]:
                self.heard.append(self._waking.recv(2000))
                if self.heard[-1] == MAGIC:
                    self.on()
            lines = self.asked.read_text().splitlines()
            for line in lines[done:]:
                # The answer to the script is on its way.
                time.sleep(0.1)
                self.off()
                if line == "reset":
                    self.on()
            done = len(lines)

    def close(self) -> None:
        self._running = False
        self._thread.join()
        self.refuse()
        self._waking.close()
        self._server.stop()
