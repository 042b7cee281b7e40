"""Status: one listing of a place tells how all our resources there are, and what is no longer there.

It writes what changed, wakes the builds that wait for it, and takes out what the provider has ended.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from blueprints.models import Reading
from blueprints.specs import Owned
from drydock.core.errors import DrydockError
from leases import hints
from leases.engine import retiring, views
from leases.engine.installation import Standing
from leases.engine.installation import current as standing
from leases.engine.proof import Proven, proven
from leases.engine.readings import keeps
from leases.engine.transaction import rows, run, short
from leases.engine.waiting import read_json
from leases.reasons import Reason

_OURS = """
    SELECT r.id, r.state, coalesce(r.facts -> 'seen', '{}'), r.power_wanted = '' AND NOT r.in_maintenance
        AND NOT EXISTS (SELECT FROM leases_run n WHERE n.resource_id = r.id AND n.lease_id IS NULL),
        CASE WHEN r.origin = 'adopted' THEN r.identity END
    FROM leases_resource r
    JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    WHERE b.kind = %s AND b.config ->> 'credential' = (SELECT name FROM blueprints_credential WHERE id = %s)
        AND (%s = '' OR r.attributes ->> 'region' = %s) AND r.gone_at IS NULL"""
_WRITE = """
    UPDATE leases_resource r SET facts = r.facts || jsonb_build_object('seen', g.seen), observed = g.state,
        observed_at = clock_timestamp(), power = CASE WHEN g.power <> '' AND NOT EXISTS (
            SELECT FROM leases_run n WHERE n.resource_id = r.id AND n.lease_id IS NULL) THEN g.power ELSE r.power END
    FROM jsonb_to_recordset(%s::jsonb) AS g(id bigint, seen jsonb, state text, power text)
    WHERE r.id = g.id AND r.gone_at IS NULL"""
_WAKE = """
    UPDATE leases_run SET due_at = clock_timestamp()
    WHERE resource_id = ANY(%s) AND token IS NULL AND waits_for = '' AND due_at > clock_timestamp() RETURNING id"""
_SEEN = "UPDATE leases_resource SET missed = 0 WHERE id = ANY(%s) AND missed > 0"
_MISS = """
    UPDATE leases_resource SET missed = missed + 1, observed = 'missing', observed_at = clock_timestamp()
    WHERE id = ANY(%s) AND state = 'active' RETURNING id, missed"""
LOST_AFTER = 2
"""So many listings in a row must miss a resource before it counts as lost."""
_MANY = 3


class _Known(NamedTuple):
    """One of our resources, as it was before this listing."""

    id: int
    state: str
    before: dict[str, Any]
    expected: bool
    """It should be running: nobody wants it off, and nothing is being done to it."""


class NothingListed(DrydockError):
    """A listing misses every resource at once: sooner a wrong credential than as many accidents."""

    code = "nothing_listed"


def apply(reading: Reading, token: uuid.UUID, found: Sequence[Owned]) -> bool:
    """Write what a listing of one place tells; False when another has taken the reading over."""
    here = standing()
    ours = {one.key: (made, one) for one in found if (made := _made(one, here)) is not None}
    lost = _write(reading, token, ours, here)
    if lost is None:
        return False
    for resource_id, why in lost:
        retiring.lose(resource_id, reason=Reason.LOST, message=why, actor="status")
    return True


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
) -> list[tuple[int, str]] | None:
    """Write what changed; those that are lost for good, and why."""
    if not keeps(reading.pk, token):
        return None
    there = rows(_OURS, (reading.kind, reading.credential_id, reading.place, reading.place))
    known = [_Known(pk, state, read_json(before), expected) for pk, state, before, expected, _ in there]
    seen = _seen(ours, {adopted: pk for pk, *_, adopted in there if adopted}, here)
    changed = [one.id for one in known if one.id in seen and _facts(seen[one.id]) != one.before]
    if changed:
        run(_WRITE, (json.dumps([_row(pk, seen[pk]) for pk in changed]),))
        for (run_id,) in rows(_WAKE, (changed,)):
            hints.after_commit("step", run_id)
    served = [one for one in known if one.state == "active" and one.before]
    ended = [(one.id, why) for one in served if one.id in seen and (why := _ended(one, seen[one.id]))]
    return ended + _missed([one.id for one in served if one.id not in seen], seen)


def _ended(known: _Known, seen: Owned) -> str:
    """Why it serves nobody any more, or an empty string."""
    if seen.lost or not known.expected or seen.power != "off":
        return seen.lost
    return f"It was stopped, and not by us. {seen.facts.get('reason') or ''}".strip()


def _missed(missing: list[int], seen: dict[int, Owned]) -> list[tuple[int, str]]:
    """Once is nothing; those that were missed twice are lost. Raises NothingListed."""
    if len(missing) >= _MANY and not seen:
        raise NothingListed(
            f"None of {len(missing)} resources that should be there was listed; nothing is given up on that alone.",
            hint="Is the credential that of the account they were made in?",
        )
    run(_SEEN, (list(seen),))
    found = rows(_MISS, (missing,)) if missing else []
    return [(pk, f"Not listed {missed} times in a row.") for pk, missed in found if missed >= LOST_AFTER]


def _facts(owned: Owned) -> dict[str, object]:
    return {**owned.facts, "state": owned.state}


def _row(pk: int, owned: Owned) -> dict[str, object]:
    return {"id": pk, "seen": _facts(owned), "state": owned.state[:32], "power": owned.power}
