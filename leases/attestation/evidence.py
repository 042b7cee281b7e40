"""Operations on attestation evidence: fetch and verify a quote, keep it with the lease, and return what is kept."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from pathlib import Path

from django.conf import settings
from django.db import transaction

from drydock.core import clock
from drydock.core.errors import Conflict, InvalidRequest, NotSupported
from drydock_client import attestation
from drydock_client.attestation import AttestationError, Expected, Verdict
from drydock_client.values import EvidenceInfo, from_json, to_json
from leases.attestation import guest
from leases.attestation.guest import GuestQuote
from leases.engine.core.transitions import record_event
from leases.models import Lease, LeaseEvidence
from leases.operations.callers import Caller, lease_of
from leases.operations.interfaces import command
from leases.validation.input_checks import checked

KEPT = 10
"""The number of pieces of evidence that a lease keeps: the newest."""
_NONCE_BYTES = 32
_MOST_VALUES = 16
_LARGEST_ROOT = 1 << 20
_HOST = "host"


@checked
def attest(who: Caller, lease_id: int, *, nonce: str = "", mr_td: Sequence[str] = ()) -> EvidenceInfo:
    """Fetch a quote from the machine of an active lease, verify it, keep it, and record an event with the verdict.

    Without a nonce, the server makes one. A quote that fails a check is kept too. Raises NotFound, LeaseEnded,
    InvalidRequest; NotSupported if the lease is not a host or the guest cannot make TDX quotes; Conflict if the guest's
    answer cannot be read, or if the operator's collateral is damaged; and what `Command.run` raises.
    """
    expected = _expected(lease_id, nonce, mr_td)
    lease = lease_of(who, lease_id, related=True)
    if lease.type != _HOST:
        raise NotSupported(
            f"Lease {lease_id} is of type {lease.type}; only a host can be attested.", capability="attestation",
            field="lease", hint="Attest the lease of the host below it.",
        )  # fmt: skip
    shell = command(who, lease_id)
    found = guest.fetch(shell, attestation.report_data(expected.nonce, expected.context))
    return _keep(who, lease, found, expected, _verdict(found, expected), chosen=bool(nonce))


def _verdict(found: GuestQuote, expected: Expected) -> Verdict:
    try:
        attestation.parse_quote(found.quote)
    except AttestationError as error:
        raise Conflict(f"The guest returned something else than a TDX quote. {error}", field="lease") from None
    try:
        return attestation.verify(found.quote, expected, clock.now())
    except AttestationError as error:
        raise _unreadable(error) from None


def _unreadable(error: Exception) -> Conflict:
    return Conflict(
        f"What quotes are compared with cannot be read. {error}",
        hint="An operator can correct DRYDOCK_ATTESTATION_COLLATERAL and DRYDOCK_ATTESTATION_ROOT.",
    )


def _expected(lease_id: int, nonce: str, mr_td: Sequence[str]) -> Expected:
    """Return what the quote must contain, and what the operator's settings compare it with."""
    if len(mr_td) > _MOST_VALUES:
        raise InvalidRequest(f"Give at most {_MOST_VALUES} values of MR_TD.", field="mr_td")
    try:
        given = attestation.nonce_of(nonce) if nonce else secrets.token_bytes(_NONCE_BYTES)
        values = frozenset(attestation.mr_td_of(one) for one in mr_td)
    except AttestationError as error:
        raise InvalidRequest(error.what, field="nonce" if error.where == "nonce" else "mr_td") from None
    chosen = settings.DRYDOCK
    try:
        folder = chosen.attestation_collateral
        collateral = attestation.load_folder(folder) if folder else attestation.Collateral()
        root = _root(chosen.attestation_root) if chosen.attestation_root else attestation.INTEL_ROOT
    except (AttestationError, OSError) as error:
        raise _unreadable(error) from None
    return Expected(
        nonce=given, context=attestation.lease_context(lease_id), mr_tds=values, root=root, collateral=collateral,
        tcb_statuses=frozenset(chosen.attestation_tcb),
    )  # fmt: skip


def _root(path: Path) -> str:
    with path.open("rb") as opened:
        return attestation.root_fingerprint(opened.read(_LARGEST_ROOT))


def _keep(
    who: Caller, lease: Lease, found: GuestQuote, expected: Expected, verdict: Verdict, *, chosen: bool
) -> EvidenceInfo:
    """Store the evidence with its event, and delete what the lease has too much."""
    with transaction.atomic():
        row = LeaseEvidence.objects.create(
            lease=lease, actor=who.actor[:150], nonce=expected.nonce.hex(), chosen=chosen, provider=found.provider,
            quote=found.quote, root=expected.root, collateral=expected.collateral.digest, passed=verdict.passed,
            verdict=to_json(verdict),
        )  # fmt: skip
        kept = LeaseEvidence.objects.filter(lease=lease).order_by("-pk").values("pk")[:KEPT]
        LeaseEvidence.objects.filter(lease=lease).exclude(pk__in=list(kept.values_list("pk", flat=True))).delete()
        record_event(
            "lease.attested", verdict.sentence, actor=who.actor, lease_id=lease.pk,
            details={"evidence": row.pk, "passed": verdict.passed},
        )  # fmt: skip
    row.refresh_from_db()
    return _info(row)


@checked
def evidence_of(who: Caller, lease_id: int) -> list[EvidenceInfo]:
    """Return the evidence that is kept with a lease, the newest first. Raises NotFound."""
    return newest(lease_of(who, lease_id))


def newest(lease: Lease) -> list[EvidenceInfo]:
    """Return the evidence of a lease without a check of the caller, the newest first."""
    return [_info(row) for row in LeaseEvidence.objects.filter(lease=lease).order_by("-pk")[:KEPT]]


def sentence(row: LeaseEvidence) -> str:
    """Return the verdict of stored evidence in a sentence."""
    return from_json(Verdict, row.verdict).sentence


def _info(row: LeaseEvidence) -> EvidenceInfo:
    verdict = from_json(Verdict, row.verdict)
    return EvidenceInfo(
        id=row.pk, lease=row.lease_id, collected_at=row.collected_at, actor=row.actor, nonce=row.nonce,
        chosen=row.chosen, provider=row.provider, quote=base64.b64encode(bytes(row.quote)).decode(), passed=row.passed,
        message=verdict.sentence, checks=verdict.checks, mr_td=verdict.mr_td, debug=verdict.debug, fmspc=verdict.fmspc,
        tcb_status=verdict.tcb_status, advisories=verdict.advisories, root=row.root, collateral=row.collateral,
    )  # fmt: skip
