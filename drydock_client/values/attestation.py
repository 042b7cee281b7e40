"""Attestation evidence: the quote of a leased machine, and what its verification found."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

CheckOutcome = Literal["passed", "failed", "not checked"]
EvidenceKind = Literal["tdx", "tpm"]


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The outcome of one check of a quote.

    `name` is one of `CHECKS` or, for a TPM, `TPM_CHECKS` of `drydock_client.attestation`.
    """

    name: str
    outcome: CheckOutcome
    message: str
    """The reason, as a sentence."""


@dataclass(frozen=True, kw_only=True)
class EvidenceInfo:
    """A TDX or TPM quote of the machine of a lease, with the server's verdict at the time.

    `drydock_client.attestation` verifies it again without the server.
    """

    id: int
    lease: int
    collected_at: dt.datetime
    actor: str
    """The user who requested it, or `drydock` if it was collected when the lease began."""
    nonce: str
    """The nonce in hexadecimal digits. It proves to a user that the quote is new only if that user chose it."""
    chosen: bool
    """Whether the caller chose the nonce; otherwise the server did."""
    provider: str
    """The name of the kernel's source of the quote, as the machine said."""
    quote: str
    """The quote in base64. That of a TPM is a file of evidence, with its signature, keys and PCR values."""
    passed: bool
    """Whether no check failed. Some may not have been made: see `unchecked`."""
    message: str
    """The verdict in a sentence."""
    checks: tuple[CheckResult, ...]
    mr_td: str
    """SHA-384 of the machine as it was built, in hexadecimal digits. Empty for a TPM."""
    debug: bool
    """Whether the host can read and change the memory of the machine."""
    fmspc: str = ""
    """The type of the processor for which Intel states the TCB status, in hexadecimal digits."""
    tcb_status: str = ""
    """Intel's status of processor, microcode and TDX module, such as `UpToDate`; empty if it was not determined."""
    advisories: tuple[str, ...] = ()
    """Intel's security advisories for that status."""
    root: str = ""
    """SHA-256 of the root certificate that the server trusts."""
    collateral: str = ""
    """SHA-256 over the files of collateral that the server used; empty if it had none."""
    kind: EvidenceKind = "tdx"
    """What made the quote: the processor of a confidential machine, or a TPM."""
    pcrs: Mapping[str, str] = field(default_factory=dict)
    """Maps the number of each PCR of a TPM to its value in hexadecimal digits."""
    ak: str = ""
    """SHA-256 of the public area of a TPM's attestation key, in hexadecimal digits."""

    @property
    def unchecked(self) -> tuple[str, ...]:
        """The names of the checks that were not made."""
        return tuple(one.name for one in self.checks if one.outcome == "not checked")


def summary(checks: Sequence[CheckResult], subject: str = "TDX") -> str:
    """Return the verdict over the checks of a TDX or TPM quote in a sentence."""
    failed = [one for one in checks if one.outcome == "failed"]
    if failed:
        others = len(failed) - 1
        more = f" {others} more {'check' if others == 1 else 'checks'} failed." if others else ""
        return f"The {subject} quote is not trustworthy ({failed[0].name}): {failed[0].message}{more}"
    missing = [one.name for one in checks if one.outcome == "not checked"]
    rest = f" Not checked: {', '.join(missing)}." if missing else ""
    return f"The {subject} quote passed {len(checks) - len(missing)} of {len(checks)} checks.{rest}"
