"""The certificate of an agent that listens: given by its operator, or made once by the host's `openssl`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import ssl
import subprocess
import tempfile
from pathlib import Path

from drydock_agent.program.errors import AgentError
from drydock_agent.program.state import create

_FILE = "listen.pem"
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL)
_MOST = 65_536


class Certificate:
    """A certificate and its key in files. Raises AgentError if they cannot be used."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self.context.load_cert_chain(certificate, key, password=_no_password)
            with certificate.open() as opened:
                found = _PEM.search(opened.read(_MOST))
        except (OSError, UnicodeDecodeError, ValueError) as error:
            said = getattr(error, "strerror", "") or getattr(error, "reason", "") or str(error)
            raise AgentError(f"{certificate} and {key} are not a certificate and its key: {said}.") from None
        if found is None:
            raise AgentError(f"{certificate} has no certificate in PEM.")
        self.pem = found[0]
        """The certificate that the agent announces."""

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the certificate, in hexadecimal digits."""
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(self.pem)).hexdigest()


def own(folder: Path) -> Certificate:
    """Return the agent's own certificate, which is made at the first call. Raises AgentError."""
    file = folder / _FILE
    if not file.exists():
        _make(folder, file)
    return Certificate(file, file)


def made(folder: Path) -> Certificate | None:
    """Return the agent's own certificate if it was made. Raises AgentError."""
    file = folder / _FILE
    return Certificate(file, file) if file.exists() else None


def _make(folder: Path, file: Path) -> None:
    """Make a key and a certificate for it. The server pins it, so it needs neither a name nor an authority."""
    program = shutil.which("openssl")
    if program is None:
        raise AgentError(
            "This host has no openssl to make a certificate with. Install it, or give a certificate and its key:"
            " --certificate FILE --key FILE."
        )
    with tempfile.TemporaryDirectory(dir=folder) as made:
        key, certificate = Path(made) / "key", Path(made) / "certificate"
        command = [
            program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-sha256",
            "-days", "36500", "-subj", "/CN=drydock-agent", "-keyout", str(key), "-out", str(certificate),
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise AgentError(f"openssl could not make a certificate: {error}.") from None
        if done.returncode:
            said = " ".join(done.stderr.split())[-300:]
            raise AgentError(f"openssl could not make a certificate: {said}. Give one: --certificate FILE --key FILE.")
        both = Path(made) / "both"
        create(both, key.read_bytes() + certificate.read_bytes())
        with contextlib.suppress(FileExistsError):
            os.link(both, file)


def _no_password() -> bytes:
    raise ValueError("the key is encrypted; give one without a password")
