"""Certificates of sites that serve HTTPS. Each is signed with its own key, so a client trusts it by itself."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from interfaces.errors import PathMissing
from interfaces.filesystem.contract import Filesystem

CERTIFICATE, KEY = "certificate.pem", "key.pem"
"""Names of the two files in the folder of a server."""
VALID = dt.timedelta(days=398)
"""How long a certificate is valid: the longest that common clients accept."""

# The clock of a client may be wrong by hours.
_BEFORE = dt.timedelta(days=1)
_LONGEST_NAME = 64


def new_certificate(hosts: Sequence[str]) -> tuple[str, str]:
    """Make a key and a certificate for DNS names and IP addresses, and return the certificate and the key as PEM text.

    The first host is the subject.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    begin = dt.datetime.now(dt.UTC) - _BEFORE
    # Clients compare only the alternative names with the host; the standard limits a subject to 64 characters.
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, hosts[0][:_LONGEST_NAME])])
    builder = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(begin + VALID)
    )  # fmt: skip
    for extension, critical in _extensions(hosts, key.public_key()):
        builder = builder.add_extension(extension, critical=critical)
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    private = key.private_bytes(Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.decode(), private.decode()


def fingerprint(pem: str) -> str:
    """Return the SHA-256 fingerprint of a certificate as 64 lower-case digits. Raises ValueError."""
    return x509.load_pem_x509_certificate(pem.encode()).fingerprint(hashes.SHA256()).hex()


def keep_certificate(files: Filesystem, folder: str, hosts: Sequence[str]) -> str:
    """Return the certificate in a folder. If there is none for these hosts, make it and its key, and write both.

    A call that was interrupted between the two files leaves two that do not belong together; both are then replaced.
    """
    certificate, key = _read(files, f"{folder}/{CERTIFICATE}"), _read(files, f"{folder}/{KEY}")
    if certificate and key and _serves(certificate, key, hosts):
        return certificate
    certificate, key = new_certificate(hosts)
    files.mkdir(folder)
    files.write_text(f"{folder}/{KEY}", key, permissions=0o600)
    files.write_text(f"{folder}/{CERTIFICATE}", certificate)
    return certificate


def _extensions(hosts: Sequence[str], key: ec.EllipticCurvePublicKey) -> list[tuple[x509.ExtensionType, bool]]:
    """Return the extensions of a certificate, and whether each is critical.

    A client trusts the certificate by adding it to its trust store. A BMC authenticates its own clients with the same
    store, for example. Therefore the certificate cannot sign others and is valid for servers only: whoever has
    the key can neither make certificates that the client accepts nor log in there.
    """
    usage = x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=False, crl_sign=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    return [
        (x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (usage, True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectKeyIdentifier.from_public_key(key), False),
    ]


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _read(files: Filesystem, path: str) -> str:
    try:
        return files.read_text(path)
    except (PathMissing, UnicodeDecodeError):
        return ""


def _serves(certificate: str, key: str, hosts: Sequence[str]) -> bool:
    """Return whether a certificate and a key belong together, and the certificate is valid for exactly these hosts."""
    try:
        made = x509.load_pem_x509_certificate(certificate.encode())
        private = serialization.load_pem_private_key(key.encode(), password=None)
        names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, x509.ExtensionNotFound):
        return False
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    same_key = made.public_key().public_bytes(*form) == private.public_key().public_bytes(*form)
    return same_key and list(names) == [_general_name(host) for host in hosts] and _is_current(made)


def _is_current(certificate: x509.Certificate) -> bool:
    return certificate.not_valid_before_utc <= dt.datetime.now(dt.UTC) < certificate.not_valid_after_utc
