"""Schedule the polls of provider accounts, and store how the last poll of each account ended."""

from __future__ import annotations

import secrets
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from blueprints import registry
from blueprints.contract import Allows, Offers
from blueprints.models import Allowance, Blueprint, Credential, Listing, Reading
from blueprints.offers import Place
from drydock.core.errors import DrydockError
from leases.engine.core import specs
from leases.engine.core.database import patient, rows, run, short, some
from leases.messaging import hints

_PLACES_EVERY = 600.0
_READS_FOR = 120.0
"""Time limit for one poll, in seconds. A poll of a large region reads a few dozen pages."""
_LONGEST = 300.0
"""The longest delay between two attempts of a failing poll, in seconds."""
_DUE = """
    SELECT id FROM blueprints_reading WHERE due_at <= statement_timestamp()
        AND (token IS NULL OR token_until < statement_timestamp()) ORDER BY due_at"""
_TAKE = """
    UPDATE blueprints_reading SET token = %s, token_until = clock_timestamp() + %s * interval '1 s'
    WHERE id = %s AND due_at <= clock_timestamp()
        AND (token IS NULL OR token_until < clock_timestamp() OR token = %s)"""
_DONE = """
    UPDATE blueprints_reading SET token = NULL, due_at = clock_timestamp() + %s * interval '1 s', message = %s,
        seen_at = CASE WHEN %s = '' THEN clock_timestamp() ELSE seen_at END, found = coalesce(%s, found)
    WHERE id = %s AND token = %s"""


@dataclass(kw_only=True)
class _Used:
    """The places where blueprints use an account: everywhere, or only the places in `places`."""

    everywhere: bool = False
    places: set[str] = field(default_factory=set)

    def wants(self, place: Place) -> bool:
        """Return whether this place must be polled, because blueprints or resources use it."""
        return place.name == "" or (place.available and (self.everywhere or place.name in self.places))


def due() -> int:
    """Queue a task for every poll that is due. Return the number of due polls."""
    known = set(Reading.objects.filter(what=Reading.What.PLACES).values_list("credential_id", "kind"))
    Reading.objects.bulk_create(
        [Reading(credential_id=pk, kind=kind, what=Reading.What.PLACES) for pk, kind in _used().keys() - known],
        ignore_conflicts=True,
    )
    found = some(_DUE)
    for (reading_id,) in found:
        hints.send("read", reading_id)
    return len(found)


def take(reading_id: int) -> uuid.UUID | None:
    """Claim a poll and return the claim's token, or None if the poll is not due or another process has claimed it."""
    token = uuid.uuid4()
    seconds = max(_READS_FOR, settings.DRYDOCK.step_token_seconds)
    return token if patient(run, _TAKE, (token, seconds, reading_id, token)) else None


def keeps(reading_id: int, token: uuid.UUID) -> bool:
    """Return whether this process still owns the poll. Inside a transaction, lock the poll until the transaction ends."""
    return bool(rows("SELECT 1 FROM blueprints_reading WHERE id = %s AND token = %s FOR UPDATE", (reading_id, token)))


def done(reading: Reading, token: uuid.UUID, every: float, *, problem: str, found: int | None) -> None:
    """Finish a poll, and schedule the next one.

    The next poll is due after about `every` seconds, or later if this poll failed. A random variation spreads the
    polls of many accounts.
    """
    after = min(every * 3, max(every, _LONGEST)) if problem else every
    spread_ = after * (0.9 + secrets.randbelow(201) / 1000)
    patient(run, _DONE, (spread_, problem, problem, found, reading.pk, token))


def interval(reading: Reading, kind: Offers) -> float:
    """Return the seconds between two polls: the operator's setting, or else the default of the kind."""
    said = settings.DRYDOCK
    match reading.what:
        case Reading.What.INVENTORY:
            return float(said.inventory_interval_seconds or kind.inventory_every)
        case Reading.What.STATUS:
            return float(said.status_interval_seconds or kind.status_every)
        case Reading.What.ALLOWANCES:
            return kind.allowances_every if isinstance(kind, Allows) else _PLACES_EVERY
        case _:
            return _PLACES_EVERY


def _used() -> dict[tuple[int, str], _Used]:
    """Return the accounts that blueprints use, each with the places where blueprints build."""
    known = dict(Credential.objects.values_list("name", "id"))
    found: dict[tuple[int, str], _Used] = defaultdict(_Used)
    for blueprint in Blueprint.objects.filter(kind__in=_offering()):
        kind = registry.kind(blueprint.kind)
        assert isinstance(kind, Offers)
        try:
            config = specs.config(blueprint.kind, blueprint.config)
        except DrydockError:
            continue
        if account := known.get(kind.sought(config, None).account):
            used, places = found[account, blueprint.kind], kind.located(config)
            used.everywhere |= not places
            used.places.update(places)
    return found


_STOOD_IN = """
    SELECT DISTINCT r.attributes ->> 'region' FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    WHERE b.kind = %s AND b.config ->> 'credential' = %s AND r.gone_at IS NULL"""
"""Selects places where a resource still exists, even if blueprints no longer name the place."""


def _offering() -> list[str]:
    kinds = [name for (name,) in rows("SELECT DISTINCT kind FROM blueprints_blueprint WHERE removed_at IS NULL")]
    return [name for name in kinds if reads(name)]


def reads(name: str) -> bool:
    """Return whether the kind is installed and can poll offers with its credential."""
    try:
        return isinstance(registry.kind(name), Offers)
    except DrydockError:
        return False


def _bounded(kind: str, used: _Used, names: list[str]) -> list[str]:
    """Return the names of the places for which provider quotas are read.

    These are all places. If a single entry without a name stands for all of them, they are the places that
    blueprints name.
    """
    if not isinstance(registry.kind(kind), Allows):
        return []
    return sorted(used.places) if names == [""] and used.places and not used.everywhere else names


def _spread_allowances(of_account: dict[str, Any], places: list[str]) -> None:
    of_them: dict[str, Any] = {**of_account, "what": Reading.What.ALLOWANCES}
    for place in places:
        Reading.objects.get_or_create(**of_them, place=place)
    if Reading.objects.filter(**of_them).exclude(place__in=places).delete()[0]:
        Allowance.objects.filter(**of_account).exclude(location__in=[*places, ""]).delete()


@short
def spread(reading: Reading, token: uuid.UUID, places: list[Place]) -> int:
    """Schedule offer and status polls for exactly the places that blueprints or resources use."""
    if not keeps(reading.pk, token):
        return 0
    used = _used().get((reading.credential_id, reading.kind), _Used())
    used.places.update(place for (place,) in rows(_STOOD_IN, (reading.kind, reading.credential.name)) if place)
    wanted = [place for place in places if used.wants(place)]
    of_account: dict[str, Any] = {"credential_id": reading.credential_id, "kind": reading.kind}
    for place in wanted:
        for what in (Reading.What.INVENTORY, Reading.What.STATUS):
            Reading.objects.update_or_create(
                **of_account, what=what, place=place.name, defaults={"country": place.country}
            )
    names = [place.name for place in wanted]
    kept = [Reading.What.PLACES, Reading.What.ALLOWANCES]
    Reading.objects.filter(**of_account).exclude(what__in=kept).exclude(place__in=names).delete()
    _spread_allowances(of_account, _bounded(reading.kind, used, names))
    if "" not in names:
        Listing.objects.filter(**of_account).exclude(location__in=names).delete()
    return len(wanted)
