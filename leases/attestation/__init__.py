"""Attestation of leased machines: a TDX quote is fetched from the guest, verified, and kept with the lease.

`guest` talks to the machine, `evidence` has the operations. The verification itself is `drydock_client.attestation`,
which owners can run without a server. What the machine returns is untrusted: a guest that lies fails the checks.
"""

from leases.attestation.evidence import attest, evidence_of, newest, sentence

__all__ = ["attest", "evidence_of", "newest", "sentence"]
