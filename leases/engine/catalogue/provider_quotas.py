"""Provider quotas: the limits of accounts at their providers, and how much of each limit is left."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from blueprints.models import Reading
from blueprints.offers import Allowance, Offer, Sought
from leases.engine.catalogue import offers as catalogue
from leases.engine.catalogue.poll_schedule import keeps
from leases.engine.core.database import rows, run, short
from leases.engine.placement.constraints import Sql

_FRESH = 600.0
"""Age of a poll in seconds beyond which its quotas refuse no offer."""
_KEY = ("location", "name", "family", "market")
_GIVEN = """jsonb_to_recordset(%s::jsonb) AS g(location text, name text, family text, market text, unit text,
    "limit" float8, used float8)"""
_WRITE = f"""
    INSERT INTO blueprints_allowance AS q (credential_id, kind, location, name, family, market, unit, "limit", used)
    SELECT %s, %s, g.location, g.name, g.family, g.market, g.unit, g."limit", g.used FROM {_GIVEN}
    ON CONFLICT (credential_id, kind, location, name, family, market) DO UPDATE
        SET unit = excluded.unit, "limit" = excluded."limit", used = excluded.used, read_at = clock_timestamp()"""
_MORE = f"""
    SELECT 1 FROM blueprints_allowance q JOIN {_GIVEN} ON {" AND ".join(f"g.{name} = q.{name}" for name in _KEY)}
    WHERE q.credential_id = %s AND q.kind = %s AND g."limit" - g.used > q."limit" - q.used LIMIT 1"""
_GONE = f"""
    DELETE FROM blueprints_allowance q WHERE q.credential_id = %s AND q.kind = %s AND (%s = '' OR q.location = %s)
        AND NOT EXISTS (SELECT FROM {_GIVEN} WHERE {" AND ".join(f"g.{name} = q.{name}" for name in _KEY)})"""
_KNOWN = f"""
    SELECT {", ".join(f"q.{name}" for name in _KEY)}, q.unit, q."limit", q.used, q.read_at
    FROM blueprints_allowance q JOIN blueprints_credential c ON c.id = q.credential_id
    WHERE c.name = %s AND q.kind = %s AND q.read_at > clock_timestamp() - %s * interval '1 s' ORDER BY q.id"""
_ON_ITS_WAY = """
    SELECT r.offer, r.created_at, r.state <> 'pending' OR r.facts ? 'instance_id' FROM leases_resource r
    JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    WHERE b.kind = %s AND b.config ->> 'credential' = %s AND r.gone_at IS NULL AND r.offer <> ''
        AND (r.state = 'pending' OR r.created_at > clock_timestamp() - %s * interval '1 s')"""


@dataclass(frozen=True, kw_only=True)
class Left:
    """A provider quota, and its usage by new machines that are missing in the usage that the provider reports."""

    of: Allowance
    ours: float = 0.0

    @property
    def room(self) -> float:
        """The amount that may still be used, in the unit of the provider quota."""
        return self.of.limit - self.of.used - self.ours


@short
def write(reading: Reading, token: uuid.UUID, found: Sequence[Allowance]) -> bool:
    """Store the provider quotas that a poll read from one place. Return whether they allow more than before."""
    if not keeps(reading.pk, token):
        return False
    given = json.dumps([asdict(one) for one in {_key(one): one for one in found}.values()])
    account = (reading.credential_id, reading.kind)
    grown = bool(rows(_MORE, (given, *account)))
    run(_WRITE, (*account, given))
    return bool(run(_GONE, (*account, reading.place, reading.place, given))) or grown


def _key(one: Allowance) -> tuple[str, ...]:
    return tuple(getattr(one, name) for name in _KEY)


def left(account: str, kind: str) -> list[Left]:
    """Return how much of each provider quota of an account is left, according to the last polls."""
    known = rows(_KNOWN, (account, kind, _FRESH))
    if not known:
        return []
    coming = rows(_ON_ITS_WAY, (kind, account, _FRESH))
    offers = catalogue.named(account, kind, sorted({name for name, _, _ in coming})) if coming else {}
    return [_left(row, coming, offers) for row in known]


def _left(row: tuple[Any, ...], coming: Sequence[tuple[Any, ...]], offers: dict[str, Offer]) -> Left:
    """Return the quota, and how much of it is used by machines that the provider does not count yet.

    These are machines that have no instance yet or are newer than the poll.
    """
    allowance = Allowance(**dict(zip((*_KEY, "unit", "limit", "used"), row, strict=False)))
    read_at = row[-1]
    uncounted = [offers[name] for name, at, made in coming if name in offers and (not made or at > read_at)]
    return Left(of=allowance, ours=sum(allowance.takes(one, addresses=1) for one in uncounted))


def refusal(known: Sequence[Left], sought: Sought, offer: Offer) -> str:
    """Return why the account's provider quotas do not allow an offer, or an empty string if they do.

    The reason includes the provider's figures.
    """
    for one in known:
        if (wanted := one.of.takes(offer, addresses=sought.addresses)) > 0 and wanted > one.room:
            where = f" in {one.of.location}" if one.of.location else ""
            ours = f" and {one.ours:g} being created" if one.ours else ""
            return (
                f"quota {one.of.name}{where} is exhausted: {one.of.used:g} of {one.of.limit:g} {one.of.unit} in "
                f"use{ours}, {wanted:g} more needed"
            )
    return ""


_ROOM = """NOT EXISTS (SELECT FROM jsonb_to_recordset(%s::jsonb) AS q(location text, family text, market text,
        unit text, room float8)
    WHERE q.location IN ('', o.location) AND q.market IN ('', o.market)
        AND (q.family = '' OR q.family = ANY(string_to_array(o.family, ' ')))
        AND CASE q.unit WHEN 'vcpus' THEN o.vcpus WHEN 'gpus' THEN o.gpu_count WHEN 'instances' THEN 1 ELSE %s END
            > greatest(q.room, 0))"""
_LARGEST = 4096
"""More than one machine uses of any quota. A quota with this much left needs no check."""


def room(known: Sequence[Left], sought: Sought) -> Sql | None:
    """Return an SQL condition that is true if the provider quotas allow the offer in row `o` (see `refusal`).

    Returns None if no provider quota is nearly exhausted.
    """
    tight = [
        {"location": one.of.location, "family": one.of.family, "market": one.of.market, "unit": one.of.unit,
         "room": one.room} for one in known if one.room < _LARGEST
    ]  # fmt: skip
    return Sql(_ROOM, (json.dumps(tight), sought.addresses)) if tight else None
