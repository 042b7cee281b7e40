"""Operations on attestation evidence: fetch and verify a quote, keep it with the lease, and return what is kept."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.db import transaction

from blueprints.records.evidence import Evidence
from drydock.core import clock
from drydock.core.errors import Conflict, InvalidRequest, NotSupported
from drydock_client import attestation
from drydock_client.attestation import AttestationError, Expected, TpmVerdict, Verdict
from drydock_client.values import EvidenceInfo, from_json
from leases.attestation import enrolled_tpm, guest
from leases.attestation.guest import GuestQuote
from leases.engine.records import evidence
from leases.engine.records.evidence import KEPT
from leases.models import Lease, LeaseEvidence
from leases.operations.callers import Caller, lease_of
from leases.operations.interfaces import command
from leases.validation.input_checks import checked

_NONCE_BYTES = 32
_MOST_VALUES = 16
_LARGEST_ROOT = 1 << 20
_HOST = "host"
_Read = TypeVar("_Read")


@checked
def attest(
    who: Caller,
    lease_id: int,
    *,
    nonce: str = "",
    mr_td: Sequence[str] = (),
    kind: str = "tdx",
    pcr: Sequence[str] = (),
) -> EvidenceInfo:
    """Fetch a quote from the machine of an active lease, verify it, keep it, and record an event with the verdict.

    `kind` is `tdx` or `tpm`; the TPM is compared with what was recorded when the host was enrolled and, for PCRs in
    `pcr` (such as `7=65CA...`), with these values instead. Without a nonce, the server makes one. A quote that fails a
    check is kept too. Raises NotFound, LeaseEnded, InvalidRequest; NotSupported if the lease is not a host or the guest
    cannot make such quotes; Conflict if the guest's answer cannot be read, or if the operator's collateral is damaged;
    and what `Command.run` raises.
    """
    given = _nonce(nonce)
    lease = _asked(who, lease_id, kind, mr_td, pcr)
    chosen = bool(nonce)
    if kind == LeaseEvidence.Kind.TPM:
        found = enrolled_tpm.attest(command(who, lease_id), lease, given, pcr)
        return _keep(who, lease, found, chosen=chosen)
    expected = _expected(lease_id, given, mr_td)
    quote = guest.fetch(command(who, lease_id), attestation.report_data(expected.nonce, expected.context))
    found = Evidence(
        kind="tdx", nonce=given, document=quote.quote, verdict=_verdict(quote, expected), provider=quote.provider,
        root=expected.root,
    )  # fmt: skip
    return _keep(who, lease, found, chosen=chosen, collateral=expected.collateral.digest)


def _asked(who: Caller, lease_id: int, kind: str, mr_td: Sequence[str], pcr: Sequence[str]) -> Lease:
    """Return the lease of a request that can be carried out."""
    kinds = list(LeaseEvidence.Kind.values)
    if kind not in kinds:
        raise InvalidRequest(f"{kind!r:.40} is not a kind of evidence. Choose from: {', '.join(kinds)}.", field="kind")
    for field, values, wanted in (("mr_td", mr_td, "tdx"), ("pcr", pcr, "tpm")):
        if values and kind != wanted:
            raise InvalidRequest(f"{field} is compared with evidence of the kind {wanted} only.", field=field)
    if len(mr_td) > _MOST_VALUES:
        raise InvalidRequest(f"Give at most {_MOST_VALUES} values of MR_TD.", field="mr_td")
    for one in mr_td:
        _checked("mr_td", partial(attestation.mr_td_of, one))
    lease = lease_of(who, lease_id, related=True)
    if lease.type != _HOST:
        raise NotSupported(
            f"Lease {lease_id} is of type {lease.type}; only a host can be attested.", capability="attestation",
            field="lease", hint="Attest the lease of the host below it.",
        )  # fmt: skip
    return lease


def _nonce(nonce: str) -> bytes:
    return _checked("nonce", partial(attestation.nonce_of, nonce)) if nonce else secrets.token_bytes(_NONCE_BYTES)


def _checked(field: str, read: Callable[[], _Read]) -> _Read:
    try:
        return read()
    except AttestationError as error:
        raise InvalidRequest(error.what, field=field) from None


def _keep(who: Caller, lease: Lease, found: Evidence, *, chosen: bool, collateral: str = "") -> EvidenceInfo:
    with transaction.atomic():
        row = evidence.keep(lease.pk, found, actor=who.actor, chosen=chosen, collateral=collateral)
    row.refresh_from_db()
    return _info(row)


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


def _expected(lease_id: int, nonce: bytes, mr_td: Sequence[str]) -> Expected:
    """Return what the quote must contain, and what the operator's settings compare it with."""
    values = frozenset(attestation.mr_td_of(one) for one in mr_td)
    chosen = settings.DRYDOCK
    try:
        folder = chosen.attestation_collateral
        collateral = attestation.load_folder(folder) if folder else attestation.Collateral()
        root = _root(chosen.attestation_root) if chosen.attestation_root else attestation.INTEL_ROOT
    except (AttestationError, OSError) as error:
        raise _unreadable(error) from None
    return Expected(
        nonce=nonce, context=attestation.lease_context(lease_id), mr_tds=values, root=root, collateral=collateral,
        tcb_statuses=frozenset(chosen.attestation_tcb),
    )  # fmt: skip


def _root(path: Path) -> str:
    with path.open("rb") as opened:
        return attestation.root_fingerprint(opened.read(_LARGEST_ROOT))


@checked
def evidence_of(who: Caller, lease_id: int) -> list[EvidenceInfo]:
    """Return the evidence that is kept with a lease, the newest first. Raises NotFound."""
    return newest(lease_of(who, lease_id))


def newest(lease: Lease) -> list[EvidenceInfo]:
    """Return the evidence of a lease without a check of the caller, the newest first."""
    return [_info(row) for row in LeaseEvidence.objects.filter(lease=lease).order_by("-pk")[:KEPT]]


def sentence(row: LeaseEvidence) -> str:
    """Return the verdict of stored evidence in a sentence."""
    return _verdict_of(row).sentence


def _verdict_of(row: LeaseEvidence) -> Verdict | TpmVerdict:
    if row.kind == LeaseEvidence.Kind.TPM:
        return from_json(TpmVerdict, row.verdict)
    return from_json(Verdict, row.verdict)


def _info(row: LeaseEvidence) -> EvidenceInfo:
    verdict = _verdict_of(row)
    about: dict[str, Any] = {
        "id": row.pk, "lease": row.lease_id, "collected_at": row.collected_at, "actor": row.actor, "nonce": row.nonce,
        "chosen": row.chosen, "provider": row.provider, "quote": base64.b64encode(bytes(row.quote)).decode(),
        "passed": row.passed, "message": verdict.sentence, "checks": verdict.checks, "root": row.root,
        "collateral": row.collateral, "kind": row.kind,
    }  # fmt: skip
    if isinstance(verdict, TpmVerdict):
        return EvidenceInfo(**about, mr_td="", debug=False, pcrs=dict(verdict.pcrs), ak=verdict.ak)
    return EvidenceInfo(
        **about, mr_td=verdict.mr_td, debug=verdict.debug, fmspc=verdict.fmspc, tcb_status=verdict.tcb_status,
        advisories=verdict.advisories,
    )  # fmt: skip
