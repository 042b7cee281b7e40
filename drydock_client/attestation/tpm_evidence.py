"""Evidence of a TPM: a quote with its signature, keys and PCR values, as a JSON file."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drydock_client.attestation import tpm
from drydock_client.attestation.evidence import LARGEST_FILE, time_of
from drydock_client.attestation.quote import AttestationError
from drydock_client.attestation.verification import lease_context, nonce_of

FORMAT = "drydock-tpm-evidence-1"
LARGEST_CERTIFICATE = 8192
"""The most bytes that the certificate of an endorsement key may have."""
_MOST_NAME = 200


@dataclass(frozen=True, kw_only=True)
class TpmEvidence:
    """A quote of a TPM, with everything that is needed to verify it again."""

    quote: bytes
    """TPMS_ATTEST."""
    signature: bytes
    """TPMT_SIGNATURE."""
    ak: bytes
    """The public area of the attestation key (TPMT_PUBLIC)."""
    bank: str = "sha256"
    pcrs: Mapping[int, bytes] = field(default_factory=dict)
    ek: bytes = b""
    """The public area of the endorsement key; empty if it is not known."""
    ek_certificate: bytes = b""
    """Its certificate in DER; empty if the TPM has none."""
    nonce: bytes = b""
    lease: int = 0
    """The lease whose machine was asked; 0 if it was asked for no lease."""
    host: str = ""
    """The host that was asked for no lease, by its name at Drydock."""
    collected_at: dt.datetime | None = None
    """When the quote was received, as the server said."""

    @property
    def context(self) -> bytes:
        """The context that follows the nonce in what the TPM signed."""
        return lease_context(self.lease) if self.lease else host_context(self.host) if self.host else b""


def host_context(host: str) -> bytes:
    """Return the context of a host that is attested for no lease."""
    return f"drydock:attestation:v1:host:{host}".encode()


def qualifying(nonce: bytes, context: bytes) -> bytes:
    """Return the 32 bytes that a TPM signs with its PCRs: SHA-256 of the nonce followed by the context.

    TPMs that know no longer hash than SHA-256 accept no more than 34 bytes.
    """
    return hashlib.sha256(nonce + context).digest()


def is_tpm_evidence(content: bytes) -> bool:
    """Return whether a file is evidence of a TPM, and not of TDX."""
    return content.lstrip().startswith(b"{") and FORMAT.encode() in content[:LARGEST_FILE]


def write_tpm_evidence(evidence: TpmEvidence) -> bytes:
    """Return evidence as the content of a file."""
    said: dict[str, Any] = {
        "format": FORMAT, "lease": evidence.lease, "host": evidence.host, "nonce": evidence.nonce.hex(),
        "collected_at": evidence.collected_at.isoformat() if evidence.collected_at else None, "bank": evidence.bank,
        "pcrs": {str(number): value.hex() for number, value in sorted(evidence.pcrs.items())},
        **{name: base64.b64encode(getattr(evidence, name)).decode() for name in _BINARY},
    }  # fmt: skip
    return json.dumps(said, indent=2).encode() + b"\n"


_BINARY = {
    "quote": tpm.LARGEST, "signature": tpm.LARGEST, "ak": tpm.LARGEST, "ek": tpm.LARGEST,
    "ek_certificate": LARGEST_CERTIFICATE,
}  # fmt: skip
"""Maps the fields with bytes to the most that they may have."""


def read_tpm_evidence(content: bytes) -> TpmEvidence:
    """Read a file of evidence. Raises AttestationError."""
    if len(content) > LARGEST_FILE:
        raise AttestationError("evidence", f"The file has {len(content)} bytes; at most {LARGEST_FILE} are read.")
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        raise AttestationError("evidence", "The file is not JSON.") from None
    if not isinstance(said, dict) or said.get("format") != FORMAT:
        raise AttestationError("evidence", f"The file is not of the format {FORMAT}.")
    lease, nonce, host, bank = (said.get(name) for name in ("lease", "nonce", "host", "bank"))
    if not isinstance(lease, int) or isinstance(lease, bool) or not 0 <= lease < 1 << 63:
        raise AttestationError("evidence: lease", "It is not a number.")
    if not isinstance(nonce, str) or not isinstance(host, str) or len(host) > _MOST_NAME or not host.isprintable():
        raise AttestationError("evidence", "nonce and host must be text.")
    if not isinstance(bank, str) or bank not in tpm.HASHES.values():
        raise AttestationError("evidence: bank", "It is not sha256, sha384 or sha512.")
    return TpmEvidence(
        lease=lease, host=host, nonce=nonce_of(nonce) if nonce else b"", bank=bank, pcrs=_pcrs(said.get("pcrs")),
        collected_at=time_of(said.get("collected_at")), **{name: _bytes(said, name) for name in _BINARY},
    )  # fmt: skip


def _bytes(said: Mapping[str, Any], name: str) -> bytes:
    try:
        found = base64.b64decode(said.get(name, ""), validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise AttestationError(f"evidence: {name}", "It is not base64.") from None
    if len(found) > _BINARY[name]:
        raise AttestationError(f"evidence: {name}", f"It has {len(found)} bytes; at most {_BINARY[name]} are read.")
    return found


def _pcrs(given: Any) -> dict[int, bytes]:
    if not isinstance(given, dict) or len(given) > tpm.PCRS:
        raise AttestationError("evidence: pcrs", "They are not a JSON object of PCR values.")
    found = {}
    for number, value in given.items():
        if not isinstance(value, str):
            raise AttestationError("evidence: pcrs", "A PCR value is not text.")
        key, digest = pcr_of(f"{number}={value}")
        found[key] = bytes.fromhex(digest)
    return found


def pcr_of(text: str) -> tuple[int, str]:
    """Read the expected value of a PCR, such as `7=65CA...`. Return number and digits in lower case.

    Raises AttestationError.
    """
    number, _, digits = text.partition("=")
    if not (number.isascii() and number.isdigit()) or len(number) > 2 or int(number) >= tpm.PCRS:
        raise AttestationError("PCR", f"Give the number of a PCR, 0 to {tpm.PCRS - 1}, and its value, as in 7=65CA...")
    try:
        value = bytes.fromhex(digits)
    except ValueError:
        value = b""
    if len(value) not in (32, 48, 64):
        raise AttestationError("PCR", f"Give the value of PCR {int(number)} as 64, 96 or 128 hexadecimal digits.")
    return int(number), value.hex()
