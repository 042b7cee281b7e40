"""Certificates, revocation lists and signatures, by the package `cryptography`, which the extra `attest` installs.

It is imported when a function is called, so that the client can be used without it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from drydock_client.attestation.quote import AttestationError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.x509 import Certificate, CertificateRevocationList

INTEL_ROOT = "44a0196b2b99f889b8e149e95b807a350e7424964399e885a7cbb8ccfab674d3"
"""SHA-256 of the certificate "Intel SGX Root CA", which Intel publishes in its provisioning certification service."""

_MOST_CERTIFICATES = 8
_SGX = "1.2.840.113741.1.13.1"
"""The extension of PCK certificates (Intel SGX PCK Certificate and Certificate Revocation List Profile, 1.3.5)."""
_PCK = "PCK certificate"
_PREFIX = bytes.fromhex("2a864886f84d010d01")
"""The same object identifier in DER."""
_INTEGER, _OCTETS, _IDENTIFIER, _SEQUENCE = 0x02, 0x04, 0x06, 0x30
_LONG_LENGTHS = {0x81: 1, 0x82: 2}
"""Maps the first byte of a long length in DER to the number of bytes that follow."""


@dataclass(frozen=True, kw_only=True)
class Platform:
    """The facts about a processor in its PCK certificate, with which TCB information is compared."""

    fmspc: str
    pce_id: str
    components: tuple[int, ...]
    """The SVNs of the 16 components of the SGX TCB."""
    pce_svn: int


def available() -> None:
    """Raise AttestationError unless the package `cryptography` is installed."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise AttestationError(
            "verification", "The package cryptography is missing. Run: pip install 'cryptography>=50'"
        ) from None


def fingerprint(certificate: Certificate) -> str:
    """Return the SHA-256 of a certificate in hexadecimal digits."""
    from cryptography.hazmat.primitives.hashes import SHA256

    return certificate.fingerprint(SHA256()).hex()


def load_certificates(pem: bytes, where: str, most: int = _MOST_CERTIFICATES) -> tuple[Certificate, ...]:
    """Return the certificates of a PEM text. Raises AttestationError if there is none, or if one cannot be read."""
    from cryptography.x509 import load_pem_x509_certificates

    try:
        found = load_pem_x509_certificates(pem)
        for one in found:
            _touch(one)
    except _errors() as error:
        raise AttestationError(where, f"The certificates cannot be read: {error}.") from None
    if len(found) > most:
        raise AttestationError(where, f"There are {len(found)} certificates; at most {most} are read.")
    return tuple(found)


def read_certificate(load: Callable[[bytes], Certificate], content: bytes, where: str) -> Certificate:
    """Return a certificate, read by a function of `cryptography`. Raises AttestationError if it cannot be read."""
    try:
        found = load(content)
        _touch(found)
    except _errors() as error:
        raise AttestationError(where, f"It cannot be read: {error}.") from None
    return found


def root_fingerprint(pem: bytes) -> str:
    """Return the fingerprint of the one root certificate in a PEM text. Raises AttestationError."""
    found = load_certificates(pem, "root certificate")
    if len(found) != 1:
        raise AttestationError("root certificate", f"The file has {len(found)} certificates; give one.")
    return fingerprint(found[0])


def _touch(certificate: Certificate) -> None:
    """Read what is parsed late, so that a broken certificate fails here."""
    certificate.public_key()
    _ = (certificate.extensions, certificate.issuer, certificate.subject, certificate.not_valid_after_utc)


def _errors() -> tuple[type[Exception], ...]:
    """Return what `cryptography` raises for bad input."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.x509 import DuplicateExtension, InvalidVersion

    return (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, DuplicateExtension, InvalidVersion)


def signed_by(key: bytes | Certificate, signature: bytes, message: bytes) -> bool:
    """Return whether a signature (r and s, 64 bytes) of ECDSA P-256 with SHA-256 is good.

    `key` is x and y, 64 bytes, or the certificate of the key.
    """
    from cryptography.hazmat.primitives.asymmetric import ec, utils
    from cryptography.hazmat.primitives.hashes import SHA256

    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    try:
        _public_key(key).verify(utils.encode_dss_signature(r, s), message, ec.ECDSA(SHA256()))
    except _errors():
        return False
    return True


def _public_key(key: bytes | Certificate) -> EllipticCurvePublicKey:
    """Return a key on the curve P-256. Raises ValueError if it is another key, or not on the curve."""
    from cryptography.hazmat.primitives.asymmetric import ec

    if isinstance(key, bytes):
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), b"\x04" + key)
    found = key.public_key()
    if not isinstance(found, ec.EllipticCurvePublicKey) or not isinstance(found.curve, ec.SECP256R1):
        raise ValueError("the key is not on the curve P-256")
    return found


def chain_problem(chain: Sequence[Certificate], root: str) -> str:
    """Return why a chain does not lead to the root with this fingerprint, or an empty string if it does.

    The root is the last certificate of the chain.
    """
    if not chain:
        return "There are no certificates."
    if (found := fingerprint(chain[-1])) != root:
        return f"It ends in a certificate with the SHA-256 {found}, not in the pinned root {root}."
    for depth, (one, issuer) in enumerate(zip(chain, [*chain[1:], chain[-1]], strict=True)):
        if said := link_problem(one, issuer, depth):
            return f"{name_of(one)}: {said}"
    return ""


def link_problem(one: Certificate, issuer: Certificate, below: int) -> str:
    """Return why `issuer`, with `below` authorities between itself and the end of the chain, did not issue `one`."""
    try:
        one.verify_directly_issued_by(issuer)
    except _errors():
        return f"it was not signed by {name_of(issuer)}."
    below = below if one is not issuer else below - 1
    return "" if _may_sign(issuer, below) else f"{name_of(issuer)} is not allowed to issue it."


def _may_sign(issuer: Certificate, below: int) -> bool:
    from cryptography.x509 import BasicConstraints, ExtensionNotFound, KeyUsage

    try:
        basic = issuer.extensions.get_extension_for_class(BasicConstraints).value
        usage = issuer.extensions.get_extension_for_class(KeyUsage).value
    except ExtensionNotFound:
        return False
    long = basic.path_length is not None and below > basic.path_length
    return basic.ca and usage.key_cert_sign and not long


def _may_revoke(issuer: Certificate) -> bool:
    from cryptography.x509 import ExtensionNotFound, KeyUsage

    try:
        return issuer.extensions.get_extension_for_class(KeyUsage).value.crl_sign
    except ExtensionNotFound:
        return False


def name_of(certificate: Certificate) -> str:
    """Return the common name of a certificate, for messages."""
    return _common_name(certificate.subject)


def _common_name(subject: Any) -> str:
    from cryptography.x509.oid import NameOID

    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else "a certificate without a name"


def validity_problem(chain: Iterable[Certificate], at: dt.datetime) -> str:
    """Return which certificate is not valid at a time, or an empty string if all are."""
    for one in chain:
        first, last = one.not_valid_before_utc, one.not_valid_after_utc
        if not first <= at <= last:
            return f"{name_of(one)} is valid from {_day(first)} to {_day(last)}, and not on {_day(at)}."
    return ""


def _day(at: dt.datetime) -> str:
    return at.date().isoformat()


def load_revocation_list(content: bytes, where: str) -> CertificateRevocationList:
    """Return a revocation list in DER or PEM format. Raises AttestationError."""
    from cryptography.x509 import load_der_x509_crl, load_pem_x509_crl

    load = load_pem_x509_crl if content.lstrip().startswith(b"-----BEGIN") else load_der_x509_crl
    try:
        found = load(content)
        _ = (found.issuer, found.next_update_utc, found.signature_hash_algorithm)
    except _errors() as error:
        raise AttestationError(where, f"The revocation list cannot be read: {error}.") from None
    return found


def revocation_problem(
    chain: Sequence[Certificate], lists: Sequence[CertificateRevocationList], at: dt.datetime
) -> tuple[str, str]:
    """Return why a certificate of a chain counts as revoked, and which issuer's list is missing. Both may be empty.

    A list that its issuer did not sign or that is out of date cannot clear a certificate.
    """
    missing = ""
    for one, issuer in pairwise(chain):
        newest = max((it for it in lists if it.issuer == one.issuer), key=lambda it: it.last_update_utc, default=None)
        if newest is None:
            missing = missing or f"There is no revocation list of {name_of(issuer)}."
        elif said := _list_problem(newest, issuer, at) or _revoked(newest, one):
            return said, ""
    return "", missing


def _list_problem(one: CertificateRevocationList, issuer: Certificate, at: dt.datetime) -> str:
    try:
        good = one.is_signature_valid(issuer.public_key())  # type: ignore[arg-type]
    except _errors():
        good = False
    if not good or not _may_revoke(issuer):
        return f"The revocation list of {name_of(issuer)} was not signed by it."
    if one.last_update_utc > at:
        return f"The revocation list of {name_of(issuer)} was issued on {_day(one.last_update_utc)}, after {_day(at)}."
    if one.next_update_utc is None or one.next_update_utc < at:
        until = "no date" if one.next_update_utc is None else _day(one.next_update_utc)
        return f"The revocation list of {name_of(issuer)} was to be replaced by {until}; it is out of date."
    return ""


def _revoked(one: CertificateRevocationList, certificate: Certificate) -> str:
    try:
        found = one.get_revoked_certificate_by_serial_number(certificate.serial_number)
    except _errors():
        return f"The revocation list of {_common_name(one.issuer)} has an entry that cannot be read."
    return "" if found is None else f"{name_of(certificate)} was revoked on {_day(found.revocation_date_utc)}."


def platform_of(certificate: Certificate) -> Platform:
    """Return the processor that a PCK certificate names. Raises AttestationError if it is not such a certificate."""
    from cryptography.x509 import ExtensionNotFound, ObjectIdentifier, UnrecognizedExtension

    try:
        found = certificate.extensions.get_extension_for_oid(ObjectIdentifier(_SGX)).value
    except ExtensionNotFound:
        raise AttestationError(_PCK, f"{name_of(certificate)} has no SGX extension ({_SGX}).") from None
    assert isinstance(found, UnrecognizedExtension)
    return read_extension(found.value)


def read_extension(content: bytes) -> Platform:
    """Read the SGX extension of a PCK certificate, in DER. Raises AttestationError."""
    ((tag, whole),) = _elements(content, most=1)
    fields = _pairs(whole if tag == _SEQUENCE else b"", _PREFIX)
    tcb = _pairs(_field(fields, 2, _SEQUENCE), _PREFIX + b"\x02")
    return Platform(
        fmspc=_field(fields, 4, _OCTETS).hex(), pce_id=_field(fields, 3, _OCTETS).hex(),
        components=tuple(_number(tcb, n) for n in range(1, 17)), pce_svn=_number(tcb, 17),
    )  # fmt: skip


_Element = tuple[int, bytes]
"""Tag and content of a value in DER."""


def _field(fields: Mapping[int, _Element], number: int, tag: int) -> bytes:
    found, value = fields.get(number, (0, b""))
    if found != tag:
        raise AttestationError(_PCK, f"The SGX extension has no field {_SGX}.{number}.")
    return value


def _number(tcb: Mapping[int, _Element], number: int) -> int:
    value = _field(tcb, number, _INTEGER)
    if not 1 <= len(value) <= 3 or value[0] & 0x80:
        raise AttestationError(_PCK, f"The SVN {number} in the SGX extension is out of range.")
    return int.from_bytes(value, "big")


def _pairs(content: bytes, prefix: bytes) -> dict[int, _Element]:
    """Read pairs of object identifier and value. Return the values by the number that follows `prefix`."""
    found = {}
    for tag, pair in _elements(content, most=32):
        parts = _elements(pair, most=2)
        if tag != _SEQUENCE or len(parts) != 2 or parts[0][0] != _IDENTIFIER:
            raise AttestationError(_PCK, "The SGX extension is not a sequence of pairs.")
        identifier, value = parts[0][1], parts[1]
        if identifier[:-1] == prefix:
            found[identifier[-1]] = value
    return found


def _elements(content: bytes, *, most: int) -> list[_Element]:
    """Read one to `most` values that follow one another in DER."""
    found: list[_Element] = []
    at = 0
    while at < len(content) and len(found) < most:
        start, end = _extent(content, at)
        found.append((content[at], content[start:end]))
        at = end
    if not found or at < len(content):
        raise AttestationError(_PCK, f"The SGX extension cannot be read at offset {at}.")
    return found


def _extent(content: bytes, at: int) -> tuple[int, int]:
    """Return where the content of a value begins and ends. Its length has at most two bytes of its own."""
    first = content[at + 1] if at + 1 < len(content) else 0xFF
    more = _LONG_LENGTHS.get(first, 0)
    start = at + 2 + more
    length = int.from_bytes(content[at + 2 : start], "big") if more else first
    if (first > 0x7F and not more) or start + length > len(content):
        raise AttestationError(_PCK, f"The SGX extension cannot be read at offset {at}.")
    return start, start + length
