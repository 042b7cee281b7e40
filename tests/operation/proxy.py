"""nginx with the configuration we give away, on free ports and with a certificate of its own."""

from __future__ import annotations

import datetime as dt
import socket
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from drydock.core import clock
from tests.operation.deployment import DEPLOY

NAME = "drydock.example.org"


def certificate(folder: Path) -> None:
    """A certificate and its key, as the configuration names them."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = clock.now()
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False).sign(key, hashes.SHA256())
    )  # fmt: skip
    plain = serialization.NoEncryption()
    (folder / "fullchain.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "privkey.pem").write_bytes(private)


def free_port() -> int:
    """A port that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def adapt(folder: Path, web: int, http: int, https: int) -> Path:
    """Our configuration with these ports and paths of `folder`, inside the least that nginx needs around it."""
    certificate(folder)
    text = (DEPLOY / "nginx" / "drydock.conf").read_text()
    changes = {
        "    listen [::]:80;\n": "", "    listen [::]:443 ssl;\n": "", "listen 80;": f"listen 127.0.0.1:{http};",
        "listen 443 ": f"listen 127.0.0.1:{https} ", "127.0.0.1:8000": f"127.0.0.1:{web}",
        "/etc/drydock/tls/": f"{folder}/",
    }  # fmt: skip
    for before, after in changes.items():
        assert before in text, before
        text = text.replace(before, after)
    temporary = "".join(
        f"{one}_temp_path {folder}/{one};\n" for one in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "drydock.conf").write_text(text)
    (folder / "nginx.conf").write_text(
        f"pid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}include {folder}/drydock.conf;\n}}\n"
    )
    return folder / "nginx.conf"
