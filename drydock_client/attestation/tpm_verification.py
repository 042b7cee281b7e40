"""The verification of a TPM quote against a nonce, pinned authorities, a known attestation key and expected PCRs."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drydock_client.attestation import certificates, tpm
from drydock_client.attestation.quote import AttestationError
from drydock_client.attestation.tpm import Public, Quoted, Signature
from drydock_client.attestation.tpm_credential import problem_of_ek, public_key
from drydock_client.attestation.tpm_evidence import TpmEvidence, qualifying
from drydock_client.attestation.verdict import TPM_CHECKS, TpmVerdict, failed, in_order, not_checked, passed
from drydock_client.values import CheckResult

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_AK = tpm.FIXED_TPM | tpm.FIXED_PARENT | tpm.ORIGIN | tpm.RESTRICTED | tpm.SIGN
_SEQUENCE, _LONG = 0x30, 0x82
MOST_AUTHORITIES = 32
"""The most pinned certificates."""


@dataclass(frozen=True, kw_only=True)
class TpmExpected:
    """The values that a quote is compared with. Empty ones are not checked."""

    nonce: bytes = b""
    authorities: bytes = b""
    """The certificates, in PEM format, one of which must have issued the certificate of the endorsement key."""
    ek_certificate: str = ""
    """SHA-256 of the certificate of the endorsement key, in lower-case hexadecimal digits."""
    ak: str = ""
    """SHA-256 of the public area of the attestation key, in lower-case hexadecimal digits."""
    pcrs: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """Maps the numbers of PCRs to their accepted values, in lower-case hexadecimal digits."""
    proven: bool | None = None
    """Whether the TPM opened a credential that was made for this endorsement key and this attestation key
    (`make_credential`). None if it was not asked to."""


def fingerprint_of(area: bytes) -> str:
    """Return the SHA-256 of a public area, in hexadecimal digits."""
    return hashlib.sha256(area).hexdigest()


def ak_of(content: bytes) -> str:
    """Read an attestation key from its fingerprint, a public area, or a file of tpm2-tools. Return its fingerprint.

    Raises AttestationError.
    """
    text = content.strip()
    if len(text) == 64 and all(one in b"0123456789abcdefABCDEF" for one in text):
        return text.decode().lower()
    try:
        return fingerprint_of(tpm.parse_public(content).content)
    except AttestationError:
        return fingerprint_of(tpm.parse_public(tpm.unsized(content, "attestation key"), "attestation key").content)


@dataclass(frozen=True, kw_only=True)
class _Subject:
    """Evidence that could be read, and what it is compared with."""

    evidence: TpmEvidence
    expected: TpmExpected
    at: dt.datetime
    quoted: Quoted
    signature: Signature
    ak: Public
    ek: Public | None
    certificate: Certificate | None
    authorities: tuple[Certificate, ...]


def verify_tpm(evidence: TpmEvidence, expected: TpmExpected, at: dt.datetime) -> TpmVerdict:
    """Verify evidence of a TPM for a time, and return the verdict with the outcome of every check.

    A nonce in `expected` takes the place of the one that the evidence states. Raises AttestationError if the evidence
    cannot be read, if the authorities cannot be read, or if `cryptography` is not installed.
    """
    certificates.available()
    subject = _subject(evidence, expected, at)
    return TpmVerdict(
        checks=in_order([check(subject) for check in _CHECKS], TPM_CHECKS), at=at, bank=evidence.bank,
        pcrs={str(number): value.hex() for number, value in sorted(evidence.pcrs.items())},
        ak=fingerprint_of(evidence.ak), issuer=_issuer(subject.certificate),
    )  # fmt: skip


def _subject(evidence: TpmEvidence, expected: TpmExpected, at: dt.datetime) -> _Subject:
    ak = tpm.parse_public(evidence.ak, "attestation key")
    public_key(ak)
    return _Subject(
        evidence=evidence, expected=expected, at=at, quoted=tpm.parse_quoted(evidence.quote),
        signature=tpm.parse_signature(evidence.signature), ak=ak,
        ek=tpm.parse_public(evidence.ek, "endorsement key") if evidence.ek else None,
        certificate=load_ek_certificate(evidence.ek_certificate) if evidence.ek_certificate else None,
        authorities=load_authorities(expected.authorities),
    )  # fmt: skip


def load_authorities(pem: bytes) -> tuple[Certificate, ...]:
    """Return the pinned certificates of a PEM text, which may be empty. Raises AttestationError."""
    if not pem.strip():
        return ()
    return certificates.load_certificates(pem, "authorities", MOST_AUTHORITIES)


def load_ek_certificate(content: bytes) -> Certificate:
    """Read the certificate of an endorsement key, which may be padded as TPMs store it. Raises AttestationError."""
    from cryptography.x509 import load_der_x509_certificate

    if content[:2] == bytes((_SEQUENCE, _LONG)):
        content = content[: 4 + int.from_bytes(content[2:4], "big")]
    return certificates.read_certificate(load_der_x509_certificate, content, "certificate of the endorsement key")


def _issuer(certificate: Certificate | None) -> str:
    return "" if certificate is None else certificate.issuer.rfc4514_string()[:500]


def _outcome(name: str, good: bool, right: str, wrong: str) -> CheckResult:
    return passed(name, right) if good else failed(name, wrong)


def _magic(subject: _Subject) -> CheckResult:
    return _outcome(
        "magic", subject.quoted.magic == tpm.GENERATED, "It begins with the magic number of what a TPM makes.",
        f"It begins with 0x{subject.quoted.magic:08x} and not with the magic number of what a TPM makes.",
    )  # fmt: skip


def _quote_signature(subject: _Subject) -> CheckResult:
    return _outcome(
        "quote_signature", _is_signed(subject.ak, subject.signature, subject.evidence.quote),
        "The signature of the quote is good.", "The quote was changed after it was signed, or signed by another key.",
    )  # fmt: skip


def _is_signed(ak: Public, signature: Signature, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, utils

    used: Any = {"sha256": hashes.SHA256(), "sha384": hashes.SHA384(), "sha512": hashes.SHA512()}[signature.hash]
    key: Any = public_key(ak)
    if (signature.scheme == tpm.ECDSA) != (ak.algorithm == tpm.ECC) or ak.scheme != signature.scheme:
        return False
    try:
        if signature.scheme == tpm.ECDSA:
            key.verify(utils.encode_dss_signature(signature.r, signature.s), message, ec.ECDSA(used))
        elif signature.scheme == tpm.RSASSA:
            key.verify(signature.rsa, message, padding.PKCS1v15(), used)
        else:
            how = padding.PSS(mgf=padding.MGF1(used), salt_length=padding.PSS.AUTO)
            key.verify(signature.rsa, message, how, used)
    except (InvalidSignature, ValueError):
        return False
    return True


def _ak_attributes(subject: _Subject) -> CheckResult:
    """Check that the key is restricted, so that it signs nothing that looks like a quote but was made elsewhere."""
    lacking = subject.ak.lacks(_AK)
    wrong = f"The attestation key lacks the attributes {lacking}."
    if not lacking and subject.ak.attributes & tpm.DECRYPT:
        lacking, wrong = "sign only", "The attestation key also decrypts."
    return _outcome("ak_attributes", not lacking, "It is a restricted signing key that stays in its TPM.", wrong)


def _ak(subject: _Subject) -> CheckResult:
    wanted, found = subject.expected.ak, fingerprint_of(subject.evidence.ak)
    if not wanted:
        return not_checked("ak", "No attestation key to compare with was given.")
    return _outcome(
        "ak", hmac.compare_digest(wanted, found), "It is the expected attestation key.",
        f"The attestation key has the SHA-256 {found}; expected: {wanted}.",
    )  # fmt: skip


def _ek_certificate(subject: _Subject) -> CheckResult:
    name, certificate, pinned = "ek_certificate", subject.certificate, subject.expected.ek_certificate
    if not subject.authorities and not pinned:
        return not_checked(name, "No authorities were given.")
    if certificate is None or subject.ek is None:
        return failed(name, "The TPM has no certificate for its endorsement key.")
    if problem := problem_of_ek(subject.ek):
        return failed(name, problem)
    if not _is_for(certificate, subject.ek):
        return failed(name, "The certificate is for another endorsement key.")
    found = certificates.fingerprint(certificate)
    if pinned and not hmac.compare_digest(pinned, found):
        return failed(name, f"The certificate has the SHA-256 {found}; expected: {pinned}.")
    if not subject.authorities:
        return passed(name, "It is the expected certificate.")
    issuer = issuer_of(certificate, subject.authorities)
    return _outcome(
        name, issuer is not None, f"{certificates.name_of(issuer)} issued it." if issuer else "",
        f"Its issuer ({_issuer(certificate) or 'unnamed'}) is none of the pinned authorities.",
    )  # fmt: skip


def _is_for(certificate: Certificate, ek: Public) -> bool:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    how = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return certificate.public_key().public_bytes(*how) == public_key(ek).public_bytes(*how)


def issuer_of(certificate: Certificate, authorities: Sequence[Certificate]) -> Certificate | None:
    """Return the authority that issued a certificate and was allowed to, or None."""
    return next((one for one in authorities if not certificates.link_problem(certificate, one, 0)), None)


def _ek_validity(subject: _Subject) -> CheckResult:
    name, certificate = "ek_validity", subject.certificate
    if certificate is None or not subject.authorities:
        return not_checked(name, "There is no certificate that could be compared with pinned authorities.")
    issuer = issuer_of(certificate, subject.authorities)
    chain = [certificate] if issuer is None else [certificate, issuer]
    problem = certificates.validity_problem(chain, subject.at)
    return _outcome(name, not problem, f"They are valid on {subject.at.date().isoformat()}.", problem)


def _ek_binding(subject: _Subject) -> CheckResult:
    name, proven = "ek_binding", subject.expected.proven
    if proven is None:
        return not_checked(name, "Only whoever challenged the TPM can know it; compare the attestation key instead.")
    return _outcome(
        name, proven, "The TPM opened a credential for both keys.",
        "The TPM did not open a credential for both keys: they are not in one TPM.",
    )  # fmt: skip


def _pcr_digest(subject: _Subject) -> CheckResult:
    evidence, size = subject.evidence, hashlib.new(subject.evidence.bank).digest_size
    found = tpm.pcr_digest(evidence.pcrs, subject.signature.hash)
    whole = all(len(value) == size for value in evidence.pcrs.values())
    return _outcome(
        "pcr_digest", whole and hmac.compare_digest(found, subject.quoted.digest), "The hash of the values was quoted.",
        "The PCR values are not those that were quoted.",
    )  # fmt: skip


def _pcr_selection(subject: _Subject) -> CheckResult:
    evidence = subject.evidence
    wanted = {evidence.bank: frozenset(evidence.pcrs)} if evidence.pcrs else {}
    quoted = {bank: numbers for bank, numbers in subject.quoted.selected.items() if numbers}
    missing = sorted(set(subject.expected.pcrs) - set(evidence.pcrs))
    if missing:
        return failed("pcr_selection", f"PCR {', '.join(map(str, missing))} was not quoted.")
    return _outcome(
        "pcr_selection", bool(wanted) and quoted == wanted,
        f"PCR {', '.join(map(str, sorted(evidence.pcrs)))} of {evidence.bank} were quoted.",
        "The values are not of the PCRs that were quoted." if wanted else "No PCR was quoted.",
    )  # fmt: skip


def _pcrs(subject: _Subject) -> CheckResult:
    wanted = subject.expected.pcrs
    if not wanted:
        return not_checked("pcrs", "No expected values were given.")
    wrong = []
    for number, accepted in sorted(wanted.items()):
        found = subject.evidence.pcrs.get(number, b"").hex() or "missing"
        if found not in accepted:
            wrong.append(f"PCR {number} is {found}; expected: {' or '.join(sorted(accepted))}.")
    return _outcome("pcrs", not wrong, "They have the expected values.", " ".join(wrong))


def _nonce(subject: _Subject) -> CheckResult:
    nonce = subject.expected.nonce or subject.evidence.nonce
    if not nonce:
        return not_checked("nonce", "No nonce was given.")
    wanted = qualifying(nonce, subject.evidence.context)
    return _outcome(
        "nonce", hmac.compare_digest(wanted, subject.quoted.nonce), "The quote was made for this nonce.",
        "The quote was not made for this nonce and this lease.",
    )  # fmt: skip


_CHECKS: tuple[Callable[[_Subject], CheckResult], ...] = (
    _magic, _quote_signature, _ak_attributes, _ak, _ek_certificate, _ek_validity, _ek_binding, _pcr_digest,
    _pcr_selection, _pcrs, _nonce,
)  # fmt: skip
