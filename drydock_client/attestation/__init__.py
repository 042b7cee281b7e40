"""Verification of attestation evidence: whether a machine is a confidential virtual machine (Intel TDX).

`verify_evidence` checks a file that `drydock attest --fetch` saved, and `verify` a bare quote. Nothing here uses a
server or a network. Both need the package `cryptography`, which the extra `attest` of the client installs.
"""

from drydock_client.attestation.certificates import INTEL_ROOT, root_fingerprint
from drydock_client.attestation.collateral import Collateral, load_files, load_folder
from drydock_client.attestation.evidence import Evidence, read_evidence, verify_evidence, write_evidence
from drydock_client.attestation.quote import LARGEST_QUOTE, AttestationError, Quote, parse_quote
from drydock_client.attestation.tcb import STATUSES, UP_TO_DATE
from drydock_client.attestation.verdict import CHECKS, Verdict
from drydock_client.attestation.verification import (
    Expected,
    lease_context,
    mr_td_of,
    nonce_of,
    report_data,
    verify,
)

__all__ = [
    "CHECKS",
    "INTEL_ROOT",
    "LARGEST_QUOTE",
    "STATUSES",
    "UP_TO_DATE",
    "AttestationError",
    "Collateral",
    "Evidence",
    "Expected",
    "Quote",
    "Verdict",
    "lease_context",
    "load_files",
    "load_folder",
    "mr_td_of",
    "nonce_of",
    "parse_quote",
    "read_evidence",
    "report_data",
    "root_fingerprint",
    "verify",
    "verify_evidence",
    "write_evidence",
]
