"""Attestation of hosts through their control account: by a TPM 2.0, and by Intel TDX if the host is a TD itself.

A host is attested when it is enrolled, which records what it is compared with later, and before each lease. The
verification itself is `drydock_client.attestation`. Nothing here knows a kind: steps pass a shell and get an answer.
"""

from blueprints.attestation.config import TRAITS, Attestation, ExpectedEvidence, check_expected, without_claims
from blueprints.attestation.host_tpm import NoEvidence
from blueprints.attestation.steps import FACT, Run, attested, enrolled, tpm_evidence

__all__ = [
    "FACT",
    "TRAITS",
    "Attestation",
    "ExpectedEvidence",
    "NoEvidence",
    "Run",
    "attested",
    "check_expected",
    "enrolled",
    "tpm_evidence",
    "without_claims",
]
