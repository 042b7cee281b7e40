"""The result of a verification: its checks, and the verdict over all of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from drydock_client.values import CheckResult
from drydock_client.values.attestation import summary

CHECKS: dict[str, str] = {
    "quote_signature": "the attestation key signed the quote",
    "qe_binding": "the quoting enclave vouches for the attestation key",
    "qe_report": "the processor's key signed the report of the quoting enclave",
    "chain": "the certificate of the processor's key leads to the pinned root",
    "validity": "all certificates of the chain are valid at this time",
    "revocation": "no certificate of the chain is revoked",
    "qe_identity": "the quoting enclave is one that Intel names",
    "tcb": "the TCB (processor, microcode, TDX module) is up to date",
    "debug": "neither the machine nor the quoting enclave can be debugged",
    "measurement": "MR_TD is one of the expected values",
    "nonce": "the report data contains the nonce",
}
"""Maps the name of each check, in the order of a verdict, to what it means if it passes."""


TPM_CHECKS: dict[str, str] = {
    "magic": "the TPM itself made the quote",
    "quote_signature": "the attestation key signed the quote",
    "ak_attributes": "the attestation key signs only what its TPM makes, and cannot leave it",
    "ak": "the attestation key is the expected one",
    "ek_certificate": "a pinned authority issued the certificate of the endorsement key",
    "ek_validity": "the certificates are valid at this time",
    "ek_binding": "one TPM has the endorsement key and the attestation key",
    "pcr_digest": "the PCR values are those that were quoted",
    "pcr_selection": "all PCRs that were asked for were quoted",
    "pcrs": "the PCRs have the expected values",
    "nonce": "the quote contains the nonce",
}
"""The checks of a TPM quote, in the same form."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The checks of a verification."""

    subject: ClassVar[str]
    """The kind of quote that was verified."""

    checks: tuple[CheckResult, ...]
    at: dt.datetime
    """The time for which certificates, revocation lists and TCB information were checked."""

    @property
    def passed(self) -> bool:
        """Whether no check failed. Checks that were not made are in `unchecked`."""
        return not self.failed

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that failed."""
        return tuple(one for one in self.checks if one.outcome == "failed")

    @property
    def unchecked(self) -> tuple[str, ...]:
        """The names of the checks that were not made, because something to compare with was not given."""
        return tuple(one.name for one in self.checks if one.outcome == "not checked")

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        return summary(self.checks, self.subject)


@dataclass(frozen=True, kw_only=True)
class Verdict(Checked):
    """The result of a verification of a TDX quote."""

    subject: ClassVar[str] = "TDX"

    mr_td: str
    """MR_TD in hexadecimal digits."""
    report_data: str
    """The report data in hexadecimal digits."""
    debug: bool
    """Whether the machine can be debugged by its host."""
    fmspc: str = ""
    """The family, model, stepping, platform and custom SKU of the processor, in hexadecimal digits. Empty if the
    certificate does not say."""
    tcb_status: str = ""
    """The status in Intel's words, such as `UpToDate` or `OutOfDate`. Empty if it was not checked."""
    advisories: tuple[str, ...] = ()
    """Intel's security advisories for the TCB, such as `INTEL-SA-01036`."""


@dataclass(frozen=True, kw_only=True)
class TpmVerdict(Checked):
    """The result of a verification of a TPM quote."""

    subject: ClassVar[str] = "TPM"

    bank: str
    """The hash of the PCRs, such as `sha256`."""
    pcrs: Mapping[str, str] = field(default_factory=dict)
    """Maps the number of each PCR to its value in hexadecimal digits."""
    ak: str = ""
    """SHA-256 of the public area of the attestation key, in hexadecimal digits."""
    issuer: str = ""
    """The issuer of the certificate of the endorsement key. Empty if there is none."""


def passed(name: str, message: str) -> CheckResult:
    """Return a check that passed."""
    return CheckResult(name=name, outcome="passed", message=message)


def failed(name: str, message: str) -> CheckResult:
    """Return a check that failed."""
    return CheckResult(name=name, outcome="failed", message=message)


def not_checked(name: str, message: str) -> CheckResult:
    """Return a check that was not made."""
    return CheckResult(name=name, outcome="not checked", message=message)


def in_order(checks: Iterable[CheckResult], order: Iterable[str] = CHECKS) -> tuple[CheckResult, ...]:
    """Return checks in an order of their names, by default that of `CHECKS`."""
    names = list(order)
    return tuple(sorted(checks, key=lambda one: names.index(one.name)))
