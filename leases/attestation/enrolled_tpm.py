"""A quote of the TPM of an enrolled host, by the interface `command` of the lease on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blueprints import attestation as of_hosts
from blueprints.attestation import FACT, NoEvidence
from blueprints.attestation.host_tpm import NO_TPM
from blueprints.records.evidence import Evidence
from drydock.core.errors import Conflict, InvalidRequest, NotSupported
from drydock_client import attestation
from drydock_client.attestation import AttestationError
from interfaces.command.contract import Command
from interfaces.errors import CommandFailed
from leases.attestation.guest import run_as_root
from leases.engine.core import specs
from leases.models import Lease

if TYPE_CHECKING:
    from blueprints.attestation.config import TpmPolicy
    from blueprints.specs import ResourceView


def attest(command: Command, lease: Lease, nonce: bytes, pcr: Sequence[str]) -> Evidence:
    """Take a quote of the TPM of a lease's host, and compare it with what its enrolment recorded.

    Raises InvalidRequest for a malformed value of a PCR, NotSupported if the host was not enrolled with a TPM, Conflict
    if it gives no evidence, and what `Command.run` raises.
    """
    resource = specs.lease_view(lease).resource
    values, policy = _values(pcr), _policy(resource, lease)

    def run(script: str, *arguments: str) -> str:
        ended = run_as_root(command, ["sh", "-c", script, "sh", *arguments], denied=NO_TPM)
        if not ended.ok:
            raise CommandFailed(ended)
        return ended.text

    try:
        return of_hosts.tpm_evidence(policy, resource, lease.pk, nonce, run, values)
    except NoEvidence as error:
        raise Conflict(error.message, field="lease", hint=error.hint) from None


def _policy(resource: ResourceView, lease: Lease) -> TpmPolicy:
    policy = getattr(resource.blueprint.config, "attestation", None)
    if policy is None or policy.tpm is None or not resource.facts.get(FACT, {}).get("tpm"):
        raise NotSupported(
            f"The host of lease {lease.pk} was not enrolled with a TPM.", capability="attestation", field="lease",
            hint="Request a host with the trait tpm.",
        )  # fmt: skip
    found: TpmPolicy = policy.tpm
    return found


def _values(pcr: Sequence[str]) -> dict[str, str]:
    try:
        return {str(number): value for number, value in map(attestation.pcr_of, pcr)}
    except AttestationError as error:
        raise InvalidRequest(error.what, field="pcr") from None
