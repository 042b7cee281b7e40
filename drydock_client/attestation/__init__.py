"""Verification of attestation evidence: Intel TDX quotes of confidential virtual machines, and quotes of a TPM 2.0.

`verify_evidence` checks a file that `drydock attest --fetch` saved, and `verify` a bare TDX quote. `verify_tpm` checks
evidence of a TPM, which `read_tpm_evidence` reads. Nothing here uses a server or a network. All need the package
`cryptography`, which the extra `attest` of the client installs.
"""

from drydock_client.attestation.certificates import INTEL_ROOT, root_fingerprint
from drydock_client.attestation.collateral import Collateral, load_files, load_folder
from drydock_client.attestation.evidence import Evidence, read_evidence, verify_evidence, write_evidence
from drydock_client.attestation.quote import LARGEST_QUOTE, AttestationError, Quote, parse_quote
from drydock_client.attestation.tcb import STATUSES, UP_TO_DATE
from drydock_client.attestation.tpm import Public, parse_public, parse_quoted, parse_signature, pcr_values, unsized
from drydock_client.attestation.tpm_credential import Credential, make_credential
from drydock_client.attestation.tpm_evidence import (
    LARGEST_CERTIFICATE,
    TpmEvidence,
    host_context,
    is_tpm_evidence,
    pcr_of,
    qualifying,
    read_tpm_evidence,
    write_tpm_evidence,
)
from drydock_client.attestation.tpm_verification import (
    TpmExpected,
    ak_of,
    fingerprint_of,
    load_authorities,
    load_ek_certificate,
    verify_tpm,
)
from drydock_client.attestation.verdict import CHECKS, TPM_CHECKS, TpmVerdict, Verdict
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
    "LARGEST_CERTIFICATE",
    "LARGEST_QUOTE",
    "STATUSES",
    "TPM_CHECKS",
    "UP_TO_DATE",
    "AttestationError",
    "Collateral",
    "Credential",
    "Evidence",
    "Expected",
    "Public",
    "Quote",
    "TpmEvidence",
    "TpmExpected",
    "TpmVerdict",
    "Verdict",
    "ak_of",
    "fingerprint_of",
    "host_context",
    "is_tpm_evidence",
    "lease_context",
    "load_authorities",
    "load_ek_certificate",
    "load_files",
    "load_folder",
    "make_credential",
    "mr_td_of",
    "nonce_of",
    "parse_public",
    "parse_quote",
    "parse_quoted",
    "parse_signature",
    "pcr_of",
    "pcr_values",
    "qualifying",
    "read_evidence",
    "read_tpm_evidence",
    "report_data",
    "root_fingerprint",
    "unsized",
    "verify",
    "verify_evidence",
    "verify_tpm",
    "write_evidence",
    "write_tpm_evidence",
]
