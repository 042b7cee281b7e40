"""Keep attestation evidence with the lease that it was collected for, with an event for each piece."""

from __future__ import annotations

from blueprints.answers import Answer, Failed, Ready
from blueprints.records.evidence import Evidence
from drydock_client.values import to_json
from leases.engine.core.transitions import record_event
from leases.models import LeaseEvidence, Run

KEPT = 10
"""The number of pieces of evidence that a lease keeps: the newest."""


def record(current: Run, answer: Answer | None) -> None:
    """Keep the evidence in the answer of a step with its lease. A step for no lease has said the verdict in its log."""
    if current.lease_id is None or not isinstance(answer, Ready | Failed):
        return
    for one in answer.evidence:
        keep(current.lease_id, one, actor="drydock")


def keep(lease_id: int, found: Evidence, *, actor: str, chosen: bool = False, collateral: str = "") -> LeaseEvidence:
    """Store evidence with its event, and delete what the lease has too much. Call inside a transaction.

    `chosen` says whether the caller chose the nonce, and `collateral` is the hash of what a TDX quote was compared with.
    """
    verdict = found.verdict
    row = LeaseEvidence.objects.create(
        lease_id=lease_id, kind=found.kind, actor=actor[:150], nonce=found.nonce.hex(), chosen=chosen,
        provider=found.provider, quote=found.document, root=found.root, collateral=collateral, passed=verdict.passed,
        verdict=to_json(verdict),
    )  # fmt: skip
    kept = LeaseEvidence.objects.filter(lease=lease_id).order_by("-pk").values("pk")[:KEPT]
    LeaseEvidence.objects.filter(lease=lease_id).exclude(pk__in=list(kept.values_list("pk", flat=True))).delete()
    record_event(
        "lease.attested", verdict.sentence, actor=actor, lease_id=lease_id,
        details={"evidence": row.pk, "passed": verdict.passed},
    )  # fmt: skip
    return row
