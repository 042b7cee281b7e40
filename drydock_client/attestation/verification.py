"""The verification of a TDX quote against a pinned root, a nonce, expected values and Intel's statements."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drydock_client.attestation import certificates, tcb
from drydock_client.attestation.collateral import Collateral, Statement
from drydock_client.attestation.quote import AttestationError, Quote, parse_quote
from drydock_client.attestation.verdict import Verdict, failed, in_order, not_checked, passed
from drydock_client.values import CheckResult

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

SHORTEST_NONCE, LONGEST_NONCE = 16, 64
MR_TD_BYTES = 48


def report_data(nonce: bytes, context: bytes) -> bytes:
    """Return the 64 bytes that a machine puts into its quote: SHA-512 of the nonce followed by the context."""
    return hashlib.sha512(nonce + context).digest()


def lease_context(lease: int) -> bytes:
    """Return the context of a lease, so that a quote for one lease proves nothing for another."""
    return f"drydock:attestation:v1:lease:{lease}".encode()


def nonce_of(digits: str) -> bytes:
    """Read a nonce of 16 to 64 bytes in hexadecimal digits. Raises AttestationError."""
    return _bytes_of(digits, "nonce", SHORTEST_NONCE, LONGEST_NONCE)


def mr_td_of(digits: str) -> str:
    """Check a value of MR_TD, 48 bytes in hexadecimal digits, and return it in lower case. Raises AttestationError."""
    return _bytes_of(digits, "MR_TD", MR_TD_BYTES, MR_TD_BYTES).hex()


def _bytes_of(digits: str, what: str, least: int, most: int) -> bytes:
    try:
        found = bytes.fromhex(digits)
    except ValueError:
        found = b""
    if not least <= len(found) <= most:
        size = f"{least}" if least == most else f"{least} to {most}"
        raise AttestationError(what, f"Give {size} bytes in hexadecimal digits, {2 * least} digits or more."
                               if least != most else f"Give {size} bytes, {2 * least} hexadecimal digits.")  # fmt: skip
    return found


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The values that a quote is compared with. Empty ones are not checked."""

    nonce: bytes = b""
    context: bytes = b""
    mr_tds: frozenset[str] = frozenset()
    """The accepted values of MR_TD, in lower-case hexadecimal digits."""
    root: str = certificates.INTEL_ROOT
    """SHA-256 of the root certificate."""
    tcb_statuses: frozenset[str] = frozenset({tcb.UP_TO_DATE})
    """The statuses of a TCB that pass."""
    collateral: Collateral = field(default_factory=Collateral)


@dataclass(frozen=True, kw_only=True)
class _Subject:
    """A quote with its certificates, or with the reason why they cannot be read."""

    quote: Quote
    expected: Expected
    at: dt.datetime
    chain: tuple[Certificate, ...] = ()
    platform: certificates.Platform | None = None
    problem: str = ""


def verify(content: bytes, expected: Expected, at: dt.datetime) -> Verdict:
    """Verify a quote for a time, and return the verdict with the outcome of every check.

    Raises AttestationError if the quote cannot be read, if the collateral is malformed, or if `cryptography` is not
    installed.
    """
    certificates.available()
    subject = _subject(parse_quote(content), expected, at)
    level, tcb_checks = _tcb(subject)
    report = subject.quote.report
    return Verdict(
        checks=in_order([*(check(subject) for check in _CHECKS), *tcb_checks]), at=at, mr_td=report.mr_td.hex(),
        report_data=report.report_data.hex(), debug=report.debug,
        fmspc=subject.platform.fmspc if subject.platform else "", tcb_status=level.status, advisories=level.advisories,
    )  # fmt: skip


def _subject(quote: Quote, expected: Expected, at: dt.datetime) -> _Subject:
    try:
        chain = certificates.load_certificates(quote.pck_chain, "certificates of the quote")
        return _Subject(quote=quote, expected=expected, at=at, chain=chain, platform=certificates.platform_of(chain[0]))
    except AttestationError as error:
        return _Subject(quote=quote, expected=expected, at=at, problem=error.what)


def _outcome(name: str, good: bool, right: str, wrong: str) -> CheckResult:
    return passed(name, right) if good else failed(name, wrong)


def _quote_signature(subject: _Subject) -> CheckResult:
    quote = subject.quote
    return _outcome(
        "quote_signature", certificates.signed_by(quote.attestation_key, quote.signature, quote.signed),
        f"The signature over the first {len(quote.signed)} bytes of the quote is good.",
        "The quote was changed after it was signed, or signed by another key.",
    )  # fmt: skip


def _qe_binding(subject: _Subject) -> CheckResult:
    """Check that the report data of the QE is SHA-256 of key and authentication data, followed by 32 zeros."""
    quote = subject.quote
    wanted = hashlib.sha256(quote.attestation_key + quote.qe_authentication).digest() + bytes(32)
    return _outcome(
        "qe_binding", hmac.compare_digest(quote.qe.report_data, wanted),
        "The report of the quoting enclave contains the hash of the attestation key.",
        "The report of the quoting enclave is about another attestation key.",
    )  # fmt: skip


def _qe_report(subject: _Subject) -> CheckResult:
    if subject.problem:
        return failed("qe_report", f"The certificate that should have signed it cannot be used. {subject.problem}")
    quote = subject.quote
    return _outcome(
        "qe_report", certificates.signed_by(subject.chain[0], quote.qe_signature, quote.qe_signed),
        "The processor's certified key signed the report of the quoting enclave.",
        "The processor's certified key did not sign the report of the quoting enclave.",
    )  # fmt: skip


def _chain(subject: _Subject) -> CheckResult:
    problem = subject.problem or certificates.chain_problem(subject.chain, subject.expected.root)
    which = "Intel's" if subject.expected.root == certificates.INTEL_ROOT else "the given"
    return _outcome("chain", not problem, f"The certificates lead to {which} root {subject.expected.root}.", problem)


def _validity(subject: _Subject) -> CheckResult:
    problem = subject.problem or certificates.validity_problem(subject.chain, subject.at)
    return _outcome(
        "validity", not problem, f"All {len(subject.chain)} certificates are valid on {subject.at:%Y-%m-%d}.", problem
    )


def _revocation(subject: _Subject) -> CheckResult:
    if subject.problem:
        return failed("revocation", subject.problem)
    lists = subject.expected.collateral.revocation_lists
    if not lists:
        return not_checked("revocation", "No revocation lists were given.")
    problem, missing = certificates.revocation_problem(subject.chain, lists, subject.at)
    if not problem and missing:
        return not_checked("revocation", missing)
    return _outcome("revocation", not problem, "No certificate is revoked.", problem)


def _debug(subject: _Subject) -> CheckResult:
    quote = subject.quote
    if quote.report.debug:
        return failed("debug", "The machine is in debug mode: its host can read and change its memory.")
    return _outcome(
        "debug", not quote.qe.debug, "Debug mode is off in the machine and in the quoting enclave.",
        "The quoting enclave is in debug mode, so that anybody can sign in its name.",
    )  # fmt: skip


def _measurement(subject: _Subject) -> CheckResult:
    found, wanted = subject.quote.report.mr_td.hex(), subject.expected.mr_tds
    if not wanted:
        return not_checked("measurement", f"No expected value was given; MR_TD is {found}.")
    return _outcome(
        "measurement", found in wanted, "MR_TD has an expected value.",
        f"MR_TD is {found}, and {_one_of(sorted(wanted))} is expected: the machine has other firmware.",
    )  # fmt: skip


def _one_of(values: list[str]) -> str:
    return values[0] if len(values) == 1 else f"one of {len(values)} other values"


def _nonce(subject: _Subject) -> CheckResult:
    expected = subject.expected
    if not expected.nonce:
        return not_checked("nonce", "No nonce was given, so the quote may be an old one.")
    wanted = report_data(expected.nonce, expected.context)
    return _outcome(
        "nonce", hmac.compare_digest(subject.quote.report.report_data, wanted),
        "The report data was made from the nonce, so the quote is an answer to it.",
        "The report data was not made from the nonce: the quote answers another question, or is an old one.",
    )  # fmt: skip


_CHECKS: tuple[Callable[[_Subject], CheckResult], ...] = (
    _quote_signature, _qe_binding, _qe_report, _chain, _validity, _revocation, _debug, _measurement, _nonce,
)  # fmt: skip


def _tcb(subject: _Subject) -> tuple[tcb.Level, tuple[CheckResult, CheckResult]]:
    """Check the quoting enclave and the TCB. The status of the TCB includes that of the quoting enclave."""
    enclave, enclave_check = _enclave(subject)
    platform, platform_check = _platform(subject)
    if not platform.status:
        return platform, (enclave_check, platform_check)
    level = tcb.converged(platform, enclave) if enclave.status else platform
    return level, (enclave_check, _status_check("tcb", level, subject.expected, "The status of the TCB is"))


def _enclave(subject: _Subject) -> tuple[tcb.Level, CheckResult]:
    name, found = "qe_identity", subject.expected.collateral.statements_of("enclaveIdentity")
    if not found:
        return tcb.Level(), not_checked(name, "The identity of the quoting enclave was not given.")
    if unverified := _untrusted(name, subject, found[0]):
        return tcb.Level(), unverified
    level = tcb.enclave_level(found[0], subject.quote.qe)
    return level, _status_check(name, level, subject.expected, "It is Intel's, and its status is")


def _platform(subject: _Subject) -> tuple[tcb.Level, CheckResult]:
    name, platform = "tcb", subject.platform
    if platform is None:
        return tcb.Level(), failed(name, subject.problem)
    found = subject.expected.collateral.statements_of("tcbInfo")
    if not found:
        return tcb.Level(), not_checked(name, "No TCB information was given.")
    about = [one for one in found if str(one.content.get("fmspc")).lower() == platform.fmspc]
    if not about:
        return tcb.Level(), not_checked(name, f"No TCB information for the FMSPC {platform.fmspc} was given.")
    if unverified := _untrusted(name, subject, about[0]):
        return tcb.Level(), unverified
    level = tcb.platform_level(about[0], platform, subject.quote.report)
    return level, _status_check(name, level, subject.expected, "The status of the TCB is")


def _untrusted(name: str, subject: _Subject, statement: Statement) -> CheckResult | None:
    """Return the outcome of a check whose statement cannot be trusted, or None if it can."""
    collateral = subject.expected.collateral
    if not collateral.signer_chain:
        return not_checked(name, "The certificate that signed Intel's statements was not given.")
    problem = collateral.problem_of(statement, subject.expected.root, subject.at)
    return failed(name, problem) if problem else None


def _status_check(name: str, level: tcb.Level, expected: Expected, words: str) -> CheckResult:
    if level.problem:
        return failed(name, level.problem)
    known = f" ({', '.join(level.advisories)})" if level.advisories else ""
    return _outcome(
        name, level.status in expected.tcb_statuses, f"{words} {level.status}.",
        f"{words} {level.status}{known}; accepted: {', '.join(sorted(expected.tcb_statuses))}.",
    )  # fmt: skip
