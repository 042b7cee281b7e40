"""Store the resources of a report. Mark a resource as lost if two complete reports in a row do not mention it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from blueprints.amounts import CLASSES
from blueprints.answers import Json
from blueprints.models import Blueprint
from blueprints.reports import Rejected, as_json, in_order
from blueprints.specs import Draft, Identity
from drydock.core.errors import NotFound
from leases.engine.catalogue import generations
from leases.engine.core.database import run, short
from leases.engine.core.transitions import record_event
from leases.engine.resources import provision, retirement
from leases.engine.sync import identities
from leases.engine.sync.identities import Conflict
from leases.messaging import hints
from leases.models import Capacity, Finding, Resource, Sync
from leases.reasons import Reason

log = logging.getLogger(__name__)

_NOT_SEEN = "Not seen"
_NOT_READY = "Not ready:"
_ENDS_WHEN_STORED = (_NOT_SEEN, _NOT_READY, provision.FAILED, identities.MOVED, identities.SAME)
"""Beginnings of quarantine notes. A quarantine with such a note ends once a report about the resource can be stored."""
LOST_AFTER = 2
"""The number of complete reports in a row that must omit a resource before it is considered lost."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The result of storing a report."""

    rejected: Sequence[Rejected]
    conflicts: Sequence[Conflict]
    settled: bool
    """False if storing the same report again later could complete something that was not possible now."""


def store(
    sync: Sync, found: Sequence[Draft], *, complete: bool, keep: Callable[[], bool], fresh: bool = False
) -> Stored | None:
    """Store each resource of a report independently. Stop and return None as soon as `keep` returns False.

    If the report is complete, resources that it omits count as missing. `fresh` says that `keep` returned True a moment
    ago.
    """
    drafts, rejected = in_order(found)
    settled, conflicts = True, []
    waiting: set[int] = set()
    listed = {draft.identity for draft in found}
    known, omitted = _known(sync, [draft.identity for draft in drafts], listed)
    stale = [draft for draft in drafts if not _is_current(sync, known.get(draft.identity), draft)]
    owners = identities.owners(stale)
    for number, draft in enumerate(stale):
        if (number or not fresh) and not keep():
            return None
        resource = known.get(draft.identity)
        rivals = owners.of(draft, resource)
        if (conflict := identities.conflict(sync, draft, resource, rivals, listed)) is not None:
            conflicts.append(conflict)
            if resource is not None:
                identities.withhold(resource, conflict)
            continue
        problem, final = _take_up(sync, resource or next(iter(rivals.values()), None), draft)
        rejected += problem
        settled &= final
        if resource is None and rivals:
            waiting.update(one.pk for one in rivals.values())
    missing = [one for one in omitted if one.pk not in waiting] if complete else []
    if missing and not keep():
        return None
    for resource in missing:
        _miss(resource)
    settled &= not rejected and not missing and not conflicts
    return Stored(rejected=rejected, conflicts=conflicts, settled=settled)


def _known(sync: Sync, wanted: Sequence[str], listed: set[str]) -> tuple[dict[str, Resource], list[Resource]]:
    """Return the resources that a report describes, by identity, and those of its place that it does not list.

    One statement reads both. In most reports nothing has changed, and then it is almost all that is done.
    """
    there = Resource.objects.filter(gone_at=None)
    described = there.filter(blueprint=sync.blueprint_id, identity__in=wanted).values("pk")
    own = there.filter(origin=Resource.Origin.DISCOVERED, finding__sync=sync).values("pk")
    both = Resource.objects.filter(pk__in=described.union(own)).order_by("pk")
    known, omitted, names = {}, [], set(wanted)
    for one in both.select_related("finding__sync", "part_of", "blueprint"):
        if one.blueprint_id == sync.blueprint_id and one.identity in names:
            known[one.identity] = one
        finding = getattr(one, "finding", None)
        if one.identity not in listed and finding is not None and finding.sync_id == sync.pk:
            omitted.append(one)
    return known, omitted


def _is_current(sync: Sync, resource: Resource | None, draft: Draft) -> bool:
    """Return whether the last report said the same about a resource, and all of it is stored."""
    finding = getattr(resource, "finding", None)
    try:
        same = finding is not None and finding.sync_id == sync.pk and finding.draft == as_json(draft)
    except (TypeError, ValueError):
        return False
    return same and resource is not None and not resource.missed and _is_placed(resource, draft)


def _is_placed(resource: Resource, draft: Draft) -> bool:
    """Return whether the resource that this one is part of is known, if there is one."""
    whole = resource.part_of
    if not draft.part_of and draft.host is None:
        return True
    if whole is None or whole.gone_at is not None:
        return False
    return draft.host is None or draft.part_of in ("", whole.identity)


def _take_up(sync: Sync, resource: Resource | None, draft: Draft) -> tuple[list[Rejected], bool]:
    """Store one draft. Return the problem if it could not be stored, and whether nothing is left to do.

    A bad draft does not affect the others.
    """
    try:
        said = as_json(draft)
        if resource is None:
            final = _meet(sync, draft, said)
        else:
            final = identities.leave(sync, resource, draft) and _see(sync, resource, draft, said)
    except Exception as error:
        log.warning("%s could not register %.100s: %s", sync, draft.identity, error)
        return [Rejected(identity=draft.identity, message=f"{type(error).__name__}: {error}")], False
    return [], final


@short
def _meet(sync: Sync, draft: Draft, said: Json) -> bool:
    """Register a resource that was not found before, if it can be used. Return whether nothing is left to do."""
    if draft.refused:
        return True
    if draft.host is not None and provision.whole(sync.blueprint, draft) is None:
        raise NotFound(f"Host {draft.host} does not exist.")
    blueprint = provision.lock_blueprint(sync.blueprint_id)
    if blueprint is None or _there(blueprint, draft).exists():
        return False
    provision.insert(blueprint, draft, actor="discovery", message="Discovered.", origin=Resource.Origin.DISCOVERED)
    made = _there(blueprint, draft).select_related("part_of").get()
    Finding.objects.create(resource=made, sync=sync, draft=said)
    return _is_placed(made, draft)


def _there(blueprint: Blueprint, draft: Draft) -> Any:
    return Resource.objects.filter(blueprint=blueprint, identity=draft.identity, gone_at=None)


@short
def _see(sync: Sync, known: Resource, draft: Draft, said: Json) -> bool:
    """Store the changes of a known resource, and reset its missed count. Return whether nothing is left to do.

    `known` was read before, with its finding, which nobody else changes, and with the resource that it is part of.
    """
    resource_id, finding = known.pk, getattr(known, "finding", None)
    resource = Resource.objects.select_for_update(no_key=True).get(pk=resource_id)
    resource.blueprint = sync.blueprint
    before = finding.draft if finding is not None else {}
    wanted = _wanted(resource, draft, said, before)
    same_place = (before.get("part_of", ""), before.get("host")) == (draft.part_of, draft.host)
    if not same_place or not _is_placed(known, draft):
        wanted |= _part_of(resource, draft)
    wanted |= _quarantine(resource, draft)
    if draft.health is not None and said.get("health") != before.get("health"):
        wanted |= provision.set_health(resource, draft.health)
    if draft.outdated and draft.outdated != before.get("outdated"):
        wanted |= {"generation": 0, **({"in_maintenance": True} if generations.closes(sync.blueprint) else {})}
        record_event("resource.outdated", draft.outdated, resource_id=resource_id)
        hints.after_commit("sweep")
    changed = {name: value for name, value in wanted.items() if getattr(resource, name) != value}
    if "note" in changed and wanted["quarantined"]:
        record_event("resource.quarantined", wanted["note"], resource_id=resource_id)
    if resource.missed >= LOST_AFTER:
        changed["observed"] = "ok"
        record_event("resource.found", "The resource was found again.", resource_id=resource_id)
    if changed or resource.missed:
        Resource.objects.filter(pk=resource_id).update(missed=0, **changed)
    if finding is None:
        Finding.objects.create(resource=resource, sync=sync, draft=said)
    elif (finding.sync_id, finding.draft) != (sync.pk, said):
        Finding.objects.filter(resource=resource).update(sync=sync, draft=said)
    if said.get("identities") != before.get("identities"):
        earlier = [Identity(**one) for one in before.get("identities", [])]
        provision.set_identities(resource_id, draft.identities, before=earlier)
    if _set_amounts(resource_id, draft, said, before) or changed:
        hints.after_commit("serve", resource.type)
    return "part_of_id" in wanted or _is_placed(known, draft)


def _quarantine(resource: Resource, draft: Draft) -> dict[str, Any]:
    """Return the columns of a quarantine that begins or ends with this report. An operator's quarantine stays."""
    ours = resource.note.startswith(_ENDS_WHEN_STORED)
    note = f"{_NOT_READY} {draft.refused}"[:2000] if draft.refused else ""
    if not note and draft.health is not None and draft.health.state == "failed":
        note = provision.failed_note(draft.health)
    if note and (ours or not resource.quarantined):
        return {"quarantined": True, "note": note}
    return {"quarantined": False, "note": ""} if ours else {}


def _set_amounts(resource_id: int, draft: Draft, said: Json, before: Json) -> bool:
    """Store further capacities and parts if the report changes them. Return whether a part became available again."""
    resized = said.get("capacity") != before.get("capacity")
    if resized:
        provision.set_further(resource_id, draft.capacity)
        omitted = set(before.get("capacity", {}).get("extra", {})) - set(draft.capacity.extra)
        if omitted:
            Capacity.objects.filter(resource=resource_id, name__in=omitted).update(total=0)
    parts = said.get("parts", [])
    if not resized and parts == before.get("parts", []):
        return False
    return provision.set_parts(resource_id, draft.parts, whole=bool(draft.parts or before.get("parts")))


def _wanted(resource: Resource, draft: Draft, said: Json, before: Json) -> dict[str, Any]:
    """Return the column values that a report implies, given what the report `before` it said about the resource.

    Attributes, traits and capacities that the report no longer contains are removed, and what steps found out since is
    kept. Facts are never removed. An empty zone or an empty parent in the draft leaves the column unchanged, and so
    does a name that an operator gave.
    """
    wanted: dict[str, Any] = {"identity": draft.identity} | ({"zone": draft.zone} if draft.zone else {})
    if draft.name and resource.origin == Resource.Origin.DISCOVERED:
        wanted["name"] = draft.name
    wanted["attributes"] = _merged(resource.attributes, said.get("attributes", {}), before.get("attributes", {}))
    wanted["facts"] = resource.facts | _news(said.get("facts", {}), before.get("facts", {}))
    if said.get("traits") != before.get("traits") or not before:
        kept = set(resource.traits) - set(before.get("traits", [])) if before else set()
        wanted["traits"] = sorted(kept | draft.traits)
    if said.get("locality") != before.get("locality"):
        wanted["locality"] = list(draft.locality)
    if said.get("capacity") != before.get("capacity"):
        wanted |= {f"total_{name}": getattr(draft.capacity, name) for name in CLASSES}
    return wanted


def _part_of(resource: Resource, draft: Draft) -> dict[str, Any]:
    whole = provision.whole(resource.blueprint, draft)
    return {} if whole is None or whole.pk == resource.pk else {"part_of_id": whole.pk}


def _merged(stored: Mapping[str, Any], said: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Apply the difference between two reports to the stored values."""
    kept = {name: value for name, value in stored.items() if name in said or name not in before}
    return kept | _news(said, before)


def _news(said: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if name not in before or before[name] != value}


def set_places(root: Sync, names: Iterable[str]) -> None:
    """Schedule discoveries of exactly the places that the kind names. Mark resources of other places as missing."""
    wanted = set(names)
    if root.place not in wanted:
        _miss_all(root)
    wanted -= {root.place}
    known = {one.place: one for one in Sync.objects.filter(blueprint=root.blueprint).exclude(place="")}
    Sync.objects.bulk_create(
        [Sync(blueprint=root.blueprint, place=name) for name in sorted(wanted - known.keys())], ignore_conflicts=True
    )
    for name, sync in known.items():
        if sync.source == Sync.Source.SENT:
            continue
        source = Sync.Source.READ if name in wanted else Sync.Source.DROPPED
        if source != sync.source:
            Sync.objects.filter(pk=sync.pk).update(source=source, digest="", message="")
        if source == Sync.Source.DROPPED and not _miss_all(sync):
            sync.delete()


def _missing(sync: Sync, seen: set[str]) -> list[Resource]:
    """Return the discovered resources of a place that a complete report omits."""
    discovered = Resource.objects.filter(origin=Resource.Origin.DISCOVERED, gone_at=None, finding__sync=sync)
    return list(discovered.filter(~Q(identity__in=seen)))


def _miss_all(sync: Sync) -> int:
    """Count all resources of a place as missing. Return their number."""
    found = _missing(sync, set())
    for resource in found:
        _miss(resource)
    return len(found)


def _miss(resource: Resource) -> None:
    """Count a resource that was not found. Once it was missed `LOST_AFTER` times, mark it as lost and quarantine it."""
    missed = resource.missed + 1
    run("UPDATE leases_resource SET missed = %s WHERE id = %s", (missed, resource.pk))
    if missed < LOST_AFTER:
        return
    message = f"{_NOT_SEEN} by {missed} discoveries in a row."
    if missed == LOST_AFTER:
        run(
            "UPDATE leases_resource SET observed = 'lost', note = CASE WHEN quarantined THEN note ELSE %s END,"
            " quarantined = TRUE WHERE id = %s",
            (message, resource.pk),
        )
        record_event("resource.lost", message, resource_id=resource.pk)
    retirement.retire_idle(resource.pk, reason=Reason.LOST, message=message)
