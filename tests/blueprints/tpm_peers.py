"""Emulated TPMs (swtpm) with endorsement keys that a certificate authority of their own has certified."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.blueprints.host_peers import WORKER, eventually
from tests.peers import require

_RESET = "0" * 63 + "1"
_HOST = f"127.9.7.{WORKER + 1}"
"""An address from which no connection goes out: one would take the port of a TPM that is switched off for a moment."""


def needed() -> None:
    """Skip where the emulator or the tools are missing."""
    for name in ("swtpm", "swtpm_setup", "tpm2"):
        require(name)


@dataclass
class EmulatedTpm:
    """A TPM that answers on a port of this machine."""

    folder: Path
    port: int
    popen: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def tcti(self) -> str:
        """How tpm2-tools reach it."""
        return f"swtpm:host={_HOST},port={self.port}"

    @property
    def ca(self) -> str:
        """The certificates of the authority that issued the certificate of its endorsement key."""
        return (self.folder / "ca/issuercert.pem").read_text()

    def start(self) -> None:
        """Switch it on, with PCRs as after a reset."""
        words = [
            "swtpm", "socket", "--tpm2", "--tpmstate", f"dir={self.folder}/state",
            "--flags", "not-need-init,startup-clear",
            "--server", f"type=tcp,port={self.port},bindaddr={_HOST}",
            "--ctrl", f"type=tcp,port={self.port + 1},bindaddr={_HOST}",
        ]  # fmt: skip
        self.popen = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        eventually(self._listens)

    def stop(self) -> None:
        """Switch it off."""
        if self.popen is not None:
            self.popen.terminate()
            self.popen.wait(10)
            self.popen = None

    def extend(self, pcr: int, digest: str = _RESET) -> None:
        """Measure something into a PCR, as firmware does for what it starts."""
        self.run("tpm2_pcrextend", f"{pcr}:sha256={digest}")

    def run(self, *words: str) -> bytes:
        """Run a tool of tpm2-tools against it."""
        env = {**os.environ, "TPM2TOOLS_TCTI": self.tcti}
        return subprocess.run(words, env=env, cwd=self.folder, check=True, capture_output=True, timeout=60).stdout

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((_HOST, self.port + 1)) == 0


@contextmanager
def emulated_tpm(*, certificate: bool = True) -> Iterator[EmulatedTpm]:
    """A new TPM with keys of its own, which is on."""
    needed()
    folder = Path(tempfile.mkdtemp(prefix="drydock-tpm-", dir="/tmp"))
    made = EmulatedTpm(folder, _two_ports())
    try:
        manufacture(folder, certificate)
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder)


def _two_ports() -> int:
    """A port that is free, as the next one is: the second is that of the control channel."""

    def found() -> int:
        with socket.socket() as one, socket.socket() as two:
            one.bind((_HOST, 0))
            port = int(one.getsockname()[1])
            try:
                two.bind((_HOST, port + 1))
            except (OSError, OverflowError):
                return 0
            return port

    port: int = eventually(found)
    return port


def manufacture(folder: Path, certificate: bool = True) -> None:
    """Make the state of a new TPM (`state`), with an authority (`ca`) that certifies its endorsement key."""
    for name in ("state", "ca"):
        (folder / name).mkdir(mode=0o700, parents=True)
    (folder / "localca.conf").write_text(
        f"statedir = {folder}/ca\nsigningkey = {folder}/ca/signkey.pem\nissuercert = {folder}/ca/issuercert.pem\n"
        f"certserial = {folder}/ca/certserial\n"
    )
    (folder / "options").write_text("--platform-manufacturer Drydock\n--platform-version 1\n--platform-model test\n")
    tool = shutil.which("swtpm_localca") or "/usr/bin/swtpm_localca"
    (folder / "setup.conf").write_text(
        f"create_certs_tool = {tool}\ncreate_certs_tool_config = {folder}/localca.conf\n"
        f"create_certs_tool_options = {folder}/options\nactive_pcr_banks = sha256\n"
    )
    words = ["swtpm_setup", "--tpm2", "--tpmstate", f"{folder}/state", "--config", f"{folder}/setup.conf"]
    words += ["--create-ek-cert"] if certificate else []
    ended = subprocess.run(words, capture_output=True, timeout=120)
    assert ended.returncode == 0, (ended.stdout + ended.stderr).decode()
