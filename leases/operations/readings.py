"""How the readings of accounts go, and having one made at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db import transaction
from django.db.models.functions import Now

from blueprints import registry
from blueprints.cloud.client import capabilities
from blueprints.cloud.faults import SdkNotInstalled
from blueprints.cloud.kind import CloudHost
from blueprints.models import Credential, Reading
from drydock.core import clock
from drydock.core.errors import Conflict
from leases import hints
from leases.client.values import ReaderInfo, ReadingInfo
from leases.engine.catalogue.poll_schedule import reads as reads
from leases.engine.core.transitions import record_event
from leases.operations.callers import Caller, operator_only


def of(accounts: Sequence[Credential]) -> dict[int, tuple[ReadingInfo, ...]]:
    """Credential -> what is read with it, by kind, place and what."""
    found: dict[int, list[ReadingInfo]] = {}
    for row in Reading.objects.filter(credential__in=accounts).order_by("kind", "place", "what"):
        found.setdefault(row.credential_id, []).append(_info(row))
    return {pk: tuple(those) for pk, those in found.items()}


def _info(row: Reading) -> ReadingInfo:
    return ReadingInfo(
        kind=row.kind, what=row.what, place=row.place, seen_at=row.seen_at,
        age=None if row.seen_at is None else clock.now() - row.seen_at, due_at=row.due_at, found=row.found,
        message=row.message,
    )  # fmt: skip


def readers(kinds: Iterable[str], *, able: bool) -> tuple[ReaderInfo, ...]:
    """Those kinds that read offers. `able`: also what their clouds can do, for which the clouds' clients are loaded."""
    return tuple(_reader(name, able) for name in sorted(set(kinds)) if reads(name))


def _reader(name: str, able: bool) -> ReaderInfo:
    kind = registry.kind(name)
    if not able or not isinstance(kind, CloudHost):
        return ReaderInfo(kind=name)
    try:
        return ReaderInfo(kind=name, capabilities=tuple(sorted(capabilities(kind.client_class()))))
    except SdkNotInstalled as error:
        return ReaderInfo(kind=name, problem=error.message)


def make_due(who: Caller, account: Credential, kinds: Iterable[str]) -> int:
    """Everything that is read with an account is due now, and a worker is told; how much that is. Raises Conflict
    where nothing reads with it, NotAllowed."""
    operator_only(who, "have an account read")
    reading = [kind for kind in sorted(set(kinds)) if reads(kind)]
    if not reading:
        raise Conflict(
            f"Nothing is read with {account.name!r}: no blueprint of a kind that offers anything names it.",
            hint="`drydock credentials` shows which blueprints name it.",
        )
    with transaction.atomic():
        for kind in reading:
            Reading.objects.get_or_create(credential=account, kind=kind, what=Reading.What.PLACES, place="")
        found = Reading.objects.filter(credential=account, kind__in=reading)
        # By id, as the reading of the locations, which may delete others, is the first.
        locked = list(found.select_for_update(no_key=True).order_by("id").values_list("id", flat=True))
        Reading.objects.filter(pk__in=locked).update(due_at=Now())
        ids = list(found.order_by("what", "id").values_list("id", flat=True))
        record_event("credential.read", f"Credential {account.name}: {len(ids)} readings are due.", actor=who.actor)
        for pk in ids:
            hints.after_commit("read", pk)
    return len(ids)
