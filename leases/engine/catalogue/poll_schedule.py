"""When the account of a provider is polled next, and what the last poll found."""

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
from leases import hints
from leases.engine.core import specs
from leases.engine.core.database import patient, rows, run, short, some

_PLACES_EVERY = 600.0
_READS_FOR = 120.0
"""Seconds for one reading: of a large region it has some dozen pages."""
_LONGEST = 300.0
"""Seconds between two tries of what fails."""
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
    """An account as the blueprints use it: all places, or some."""

    everywhere: bool = False
    places: set[str] = field(default_factory=set)

    def wants(self, place: Place) -> bool:
        return place.name == "" or (place.available and (self.everywhere or place.name in self.places))


def due() -> int:
    """Have a worker make every reading that is due; how many there are."""
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
    """The token of whoever may read now; None when it is not due or somebody reads."""
    token = uuid.uuid4()
    seconds = max(_READS_FOR, settings.DRYDOCK.step_token_seconds)
    return token if patient(run, _TAKE, (token, seconds, reading_id, token)) else None


def keeps(reading_id: int, token: uuid.UUID) -> bool:
    """Whoever reads still has the turn. Inside a transaction: nobody can take it over before its end."""
    return bool(rows("SELECT 1 FROM blueprints_reading WHERE id = %s AND token = %s FOR UPDATE", (reading_id, token)))


def done(reading: Reading, token: uuid.UUID, every: float, *, problem: str, found: int | None) -> None:
    """The reading is over. The next one follows a little sooner or later than `every` seconds, so that those of many
    accounts spread; after a failure later."""
    after = min(every * 3, max(every, _LONGEST)) if problem else every
    spread_ = after * (0.9 + secrets.randbelow(201) / 1000)
    patient(run, _DONE, (spread_, problem, problem, found, reading.pk, token))


def interval(reading: Reading, kind: Offers) -> float:
    """Seconds between two readings: as the operator says, else as the provider."""
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
    """The accounts that blueprints use, and where they build."""
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
"""Where something of ours stands, though no blueprint may name the place any more."""


def _offering() -> list[str]:
    kinds = [name for (name,) in rows("SELECT DISTINCT kind FROM blueprints_blueprint WHERE removed_at IS NULL")]
    return [name for name in kinds if reads(name)]


def reads(name: str) -> bool:
    """Whether a kind, if it is there, reads offers with its credential."""
    try:
        return isinstance(registry.kind(name), Offers)
    except DrydockError:
        return False


def _bounded(kind: str, used: _Used, names: list[str]) -> list[str]:
    """Where allowances are read: in each place, or where one stands for all in those that blueprints name."""
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
    """A reading of inventory and status for each place that a blueprint uses, and none for any other."""
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
