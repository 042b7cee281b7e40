"""Poll a provider account: the status of its machines, its offers and its provider quotas.

A poll stores what has changed, and wakes the builds that wait for it. A poll never ends leases: a machine that is
reported as gone, or is missing in the answer, is only suspected (`suspects`).
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from blueprints import registry
from blueprints.contract import Allows, Offers
from blueprints.models import Reading
from blueprints.offers import Account
from blueprints.specs import Owned
from drydock.core.errors import DrydockError
from drydock.core.logging import about, hidden, redact
from leases.engine.catalogue import offers as catalogue
from leases.engine.catalogue import poll_schedule, provider_quotas
from leases.engine.catalogue.poll_schedule import keeps
from leases.engine.core import database, specs
from leases.engine.core.database import refuse_inside_transaction, rows, run, short
from leases.engine.core.installation import Proven, Standing, proven
from leases.engine.core.installation import current as standing
from leases.engine.placement.pending import read_json
from leases.engine.resources import remembered_errors
from leases.engine.resources.unreachable import DOUBTED
from leases.engine.sync import suspects
from leases.engine.sync.suspects import Doubt, Doubts
from leases.messaging import hints

_OURS = f"""
    SELECT r.id, r.state, coalesce(r.facts -> 'seen', '{{}}'), {suspects.UNDISTURBED},
        r.observed = ANY(%s) OR r.facts ? 'stopped',
        CASE WHEN r.origin = 'adopted' THEN r.identity END
    FROM leases_resource r
    JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    WHERE b.kind = %s AND b.config ->> 'credential' = (SELECT name FROM blueprints_credential WHERE id = %s)
        AND (%s = '' OR r.attributes ->> 'region' = %s) AND r.gone_at IS NULL"""
_WRITE = """
    UPDATE leases_resource r SET facts = r.facts || jsonb_build_object('seen', g.seen),
        observed = CASE WHEN r.observed = ANY(%s) THEN r.observed ELSE g.state END,
        observed_at = clock_timestamp(), power = CASE WHEN g.power <> '' AND NOT EXISTS (
            SELECT FROM leases_run n WHERE n.resource_id = r.id AND n.lease_id IS NULL) THEN g.power ELSE r.power END
    FROM jsonb_to_recordset(%s::jsonb) AS g(id bigint, seen jsonb, state text, power text)
    WHERE r.id = g.id AND r.gone_at IS NULL"""
_WAKE = """
    UPDATE leases_run SET due_at = clock_timestamp(), progress = '[]'
    WHERE resource_id = ANY(%s) AND token IS NULL AND waits_for = '' AND due_at > clock_timestamp() RETURNING id"""
_MISSED = """
    UPDATE leases_resource SET missed = CASE WHEN id = ANY(%s) THEN missed + 1 ELSE 0 END
    WHERE id = ANY(%s) OR (id = ANY(%s) AND missed > 0)"""
_LOCK = """
    SELECT 1 FROM leases_resource WHERE id = ANY(%s) OR (id = ANY(%s) AND missed > 0) ORDER BY id FOR NO KEY UPDATE"""
"""Locks the rows to write in the order of their ids. A plain UPDATE locks them in the order in which it finds them."""
NOT_LISTED = "The provider no longer lists it."


class _Known(NamedTuple):
    """A resource as it was before this poll."""

    id: int
    state: str
    before: dict[str, Any]
    expected: bool
    """True if the machine should be running: it is not off on request, and no run works on it."""
    doubted: bool


def apply(reading: Reading, token: uuid.UUID, found: Sequence[Owned]) -> Doubts | None:
    """Store the status of the machines that a poll found in one place.

    Return the machines that are suspected or no longer suspected, or None if another process has taken over the poll.
    """
    here = standing()
    ours = {one.key: (made, one) for one in found if (made := _made(one, here)) is not None}
    return _write(reading, token, ours, here)


def _made(owned: Owned, here: Standing) -> Proven | None:
    """Return the resource for which an object was provably created, or None if its tags prove nothing."""
    made = proven(owned.tags, here.short)
    return None if made is None or owned.key != specs.key_of(here, made) else made


def _seen(ours: Mapping[str, tuple[Proven, Owned]], adopted: Mapping[str, int], here: Standing) -> dict[int, Owned]:
    """Return the listed objects, each by the id of the resource that created or adopted it."""
    return {
        adopted.get(key, made.resource): one
        for key, (made, one) in ours.items()
        if key in adopted or here.epoch_of("r", made.resource) == made.epoch
    }


@short
def _write(
    reading: Reading, token: uuid.UUID, ours: Mapping[str, tuple[Proven, Owned]], here: Standing
) -> Doubts | None:
    if not keeps(reading.pk, token):
        return None
    account = (reading.kind, reading.credential_id, reading.place, reading.place)
    there = rows(_OURS, (list(DOUBTED), *account))
    known = [_Known(pk, state, read_json(before), *rest) for pk, state, before, *rest, _ in there]
    seen = _seen(ours, {adopted: pk for pk, *_, adopted in there if adopted}, here)
    changed = [one.id for one in known if one.id in seen and _facts(seen[one.id]) != one.before]
    unlisted = [one.id for one in known if one.state == "active" and one.id not in seen]
    rows(_LOCK, ([*changed, *unlisted], list(seen)))
    if changed:
        run(_WRITE, (list(DOUBTED), json.dumps([_row(pk, seen[pk]) for pk in changed])))
        for (run_id,) in rows(_WAKE, (changed,)):
            hints.after_commit("step", run_id)
    return _doubts([one for one in known if one.state == "active"], seen)


def _doubts(served: Sequence[_Known], seen: Mapping[int, Owned]) -> Doubts:
    """Return which machines must be read by their ids, and which are no longer suspected."""
    missing = [one.id for one in served if one.id not in seen]
    run(_MISSED, (missing, missing, list(seen)))
    found = Doubts(of=[Doubt(pk, NOT_LISTED) for pk in missing], empty=not seen)
    for one in served:
        if one.id in seen and one.expected and (said := _announced(one, seen[one.id])):
            found.leaving.append(Doubt(one.id, said))
        if one.id in seen and (why := _doubt(one, seen[one.id])):
            found.of.append(Doubt(one.id, why))
        elif one.id in seen and one.doubted:
            found.well.append(one.id)
    return found


def _announced(known: _Known, seen: Owned) -> str:
    """Return the provider's announcement that it will take a machine back, or an empty string if none is new."""
    return "" if known.before.get("leaving") else str(seen.facts.get("leaving") or "")


def _doubt(known: _Known, seen: Owned) -> str:
    """Return why, according to a listing, a machine may be lost, or an empty string if it is as expected."""
    if seen.lost:
        return f"A listing says: {seen.lost}"
    return "A listing says that it is off." if known.expected and seen.power == "off" else ""


def _facts(owned: Owned) -> dict[str, object]:
    return {**owned.facts, "state": owned.state}


def _row(pk: int, owned: Owned) -> dict[str, object]:
    return {"id": pk, "seen": _facts(owned), "state": owned.state[:32], "power": owned.power}


log = logging.getLogger(__name__)


def read(reading_id: int) -> bool:
    """Poll an account. Return False if no poll is due, or if another process is polling.

    If the poll fails, the results of the last successful poll are kept.
    """
    refuse_inside_transaction("read")
    reading = Reading.objects.select_related("credential").filter(pk=reading_id).first()
    token = poll_schedule.take(reading_id) if reading is not None else None
    if reading is None or token is None:
        return False
    try:
        kind = registry.kind(reading.kind)
    except DrydockError:
        return False
    assert isinstance(kind, Offers)
    with about(credential=reading.credential.name):
        found, problem = _polled(kind, reading, token)
    poll_schedule.done(reading, token, poll_schedule.interval(reading, kind), problem=problem, found=found)
    return True


def _polled(kind: Offers, reading: Reading, token: uuid.UUID) -> tuple[int | None, str]:
    """Return the number of entries found, or None, and the problem."""
    with ExitStack() as until_logged:
        try:
            account = Account(name=reading.credential.name, secrets=reading.credential.secrets)
            until_logged.enter_context(hidden(account.secrets))
            return _look(kind, account, reading, token)
        except Exception as error:
            if database.is_lost(error):
                raise
            log.warning("Reading the %s failed: %s", reading, error)
            return None, redact(f"{type(error).__name__}: {error}")[:2000]


def _look(kind: Offers, account: Account, reading: Reading, token: uuid.UUID) -> tuple[int, str]:
    match reading.what:
        case Reading.What.PLACES:
            places = list(kind.places(account))
            return poll_schedule.spread(reading, token, places), "" if places else "The account has no locations."
        case Reading.What.INVENTORY:
            offers = kind.inventory(account, reading.place)
            if catalogue.write(reading, token, offers) or reading.seen_at is None:
                hints.send("serve", kind.resource_type)  # type: ignore[attr-defined]
            return len(offers), ""
        case Reading.What.ALLOWANCES:
            bounds = kind.allowances(account, reading.place) if isinstance(kind, Allows) else ()
            if provider_quotas.write(reading, token, bounds):
                hints.send("serve", kind.resource_type)  # type: ignore[attr-defined]
            return len(bounds), ""
        case _:
            seen = kind.observe(account, reading.place, standing().short)
            remembered_errors.mended(reading.kind, account.name, kind.unauthenticated)
            doubts = apply(reading, token, seen)
            return len(seen), suspects.settle(kind, account, doubts) if doubts is not None else ""
