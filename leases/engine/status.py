"""Status: one listing of a place tells how all our resources there are, and which of them to ask for by their ids.

It writes what changed and wakes the builds that wait for it. It ends nothing: what it says to be over, and what it
leaves out, is only doubted (`suspects`).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from blueprints.models import Reading
from blueprints.specs import Owned
from leases import hints
from leases.engine import stops, views
from leases.engine.installation import Standing
from leases.engine.installation import current as standing
from leases.engine.proof import Proven, proven
from leases.engine.readings import keeps
from leases.engine.suspects import Doubt, Doubts
from leases.engine.suspicion import DOUBTED
from leases.engine.transaction import rows, run, short
from leases.engine.waiting import read_json

_OURS = f"""
    SELECT r.id, r.state, coalesce(r.facts -> 'seen', '{{}}'), {stops.UNDISTURBED},
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
    UPDATE leases_run SET due_at = clock_timestamp()
    WHERE resource_id = ANY(%s) AND token IS NULL AND waits_for = '' AND due_at > clock_timestamp() RETURNING id"""
_MISSED = """
    UPDATE leases_resource SET missed = CASE WHEN id = ANY(%s) THEN missed + 1 ELSE 0 END
    WHERE id = ANY(%s) OR (id = ANY(%s) AND missed > 0)"""
_LOCK = """
    SELECT 1 FROM leases_resource WHERE id = ANY(%s) OR (id = ANY(%s) AND missed > 0) ORDER BY id FOR NO KEY UPDATE"""
"""What is about to be written, by id: a plain UPDATE of several locks them in the order in which it finds them."""
NOT_LISTED = "Its provider does not list it any more."


class _Known(NamedTuple):
    """One of our resources, as it was before this listing."""

    id: int
    state: str
    before: dict[str, Any]
    expected: bool
    """It should be running: nobody here wants it off, and nothing is being done to it."""
    doubted: bool


def apply(reading: Reading, token: uuid.UUID, found: Sequence[Owned]) -> Doubts | None:
    """Write what a listing of one place tells; what it gives reason to doubt. None when another has taken the reading
    over."""
    here = standing()
    ours = {one.key: (made, one) for one in found if (made := _made(one, here)) is not None}
    return _write(reading, token, ours, here)


def _made(owned: Owned, here: Standing) -> Proven | None:
    """For which resource something there was provably made."""
    made = proven(owned.tags, here.short)
    return None if made is None or owned.key != views.key_of(here, made) else made


def _seen(ours: Mapping[str, tuple[Proven, Owned]], adopted: Mapping[str, int], here: Standing) -> dict[int, Owned]:
    """By the id of the resource that each is: the one for which it was made, or the one that has adopted it."""
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
    """What to ask for by its id, and what is well again."""
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
    """How its provider says that it takes it back soon, where it did not say so before."""
    return "" if known.before.get("leaving") else str(seen.facts.get("leaving") or "")


def _doubt(known: _Known, seen: Owned) -> str:
    """Why a machine may not serve any more, going by a listing, or an empty string."""
    if seen.lost:
        return f"A listing says: {seen.lost}"
    return "A listing says that it is off." if known.expected and seen.power == "off" else ""


def _facts(owned: Owned) -> dict[str, object]:
    return {**owned.facts, "state": owned.state}


def _row(pk: int, owned: Owned) -> dict[str, object]:
    return {"id": pk, "seen": _facts(owned), "state": owned.state[:32], "power": owned.power}
