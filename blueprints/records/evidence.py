"""Attestation evidence of hosts, as steps report it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from drydock_client.attestation import TpmVerdict, Verdict


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A quote of a host with the verdict on it, which is kept with the lease that the step is for."""

    kind: Literal["tdx", "tpm"]
    nonce: bytes
    document: bytes
    """A TDX quote, or a file of evidence of a TPM (`drydock_client.attestation.write_tpm_evidence`)."""
    verdict: Verdict | TpmVerdict
    provider: str = ""
    """The provider that made the quote, as reported by the host."""
    root: str = ""
    """SHA-256 of the trusted root certificate of TDX; empty for a TPM."""
