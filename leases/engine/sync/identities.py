"""Detect reported hardware that another resource already represents, and hardware that has moved to another host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db.models import Q

from blueprints.answers import Json
from blueprints.identities import Identity
from blueprints.specs import Draft
from leases.engine.core.database import rows, run, short
from leases.engine.core.transitions import are_all_holders, lock_holders, lock_resource, record_event
from leases.engine.resources import eviction, provision
from leases.models import Debt, Finding, Resource, ResourceIdentity, Run, Share, Sync
from leases.reasons import Reason
from leases.states import LeaseState

MOVED = "Moved to"
SAME = "The same thing as"
_DEEPEST = 8


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """A conflict: another resource already represents the hardware that a report describes."""

    identity: str
    resource: Resource
    message: str

    def as_json(self, since: str) -> Json:
        """Return the conflict as it is stored, in JSON. `since` is when the conflict was first seen."""
        return {"identity": self.identity, "resource": self.resource.pk, "message": self.message, "since": since}


@dataclass(frozen=True, kw_only=True)
class Owners:
    """The existing resources that share an identity with a draft of a report."""

    by_identity: Mapping[Identity, Resource]

    def of(self, draft: Draft, own: Resource | None) -> dict[Identity, Resource]:
        """Return the resources other than `own` that share an identity with the draft."""
        found = {one: self.by_identity[one] for one in draft.identities if one in self.by_identity}
        return {one: resource for one, resource in found.items() if own is None or resource.pk != own.pk}


def owners(drafts: Iterable[Draft]) -> Owners:
    """Return the existing resources that share an identity with one of the drafts."""
    wanted = {one for draft in drafts for one in draft.identities}
    if not wanted:
        return Owners(by_identity={})
    values = ResourceIdentity.objects.filter(value__in=[one.value for one in wanted])
    found = values.select_related("resource__blueprint", "resource__part_of", "resource__finding__sync")
    named = {Identity(namespace=row.namespace, value=row.value): row.resource for row in found}
    return Owners(by_identity={one: named[one] for one in wanted if one in named})


def conflict(
    sync: Sync, draft: Draft, own: Resource | None, rivals: Mapping[Identity, Resource], listed: set[str]
) -> Conflict | None:
    """Return the conflict that forbids creating or changing a resource from a draft, or None if there is no conflict.

    `own` is the resource that the draft describes, or None. `rivals` are other resources that share an identity with
    the draft. `listed` contains the `identity` of every draft in the report.
    """
    if own is not None and (stays := _why_it_stays(sync, draft, own)) is not None:
        return stays
    for one, other in rivals.items():
        thing = f"{draft.name or draft.identity} ({one}), found by blueprint {sync.blueprint.name},"
        there = f"resource {other.pk} ({other}) of blueprint {other.blueprint.name}"
        if other.blueprint_id != sync.blueprint_id:
            return Conflict(identity=draft.identity, resource=other, message=f"{thing} is already {there}.")
        several = own is not None or len({rival.pk for rival in rivals.values()}) > 1
        if several or other.identity in listed or other.origin != Resource.Origin.DISCOVERED:
            message = f"{thing} has an identity of {there}."
            return Conflict(identity=draft.identity, resource=other, message=message)
    moved = next(iter(rivals.values()), None) if own is None else None
    return None if moved is None else _why_it_stays(sync, draft, moved)


def _why_it_stays(sync: Sync, draft: Draft, before: Resource) -> Conflict | None:
    """Return why a report must not change a resource that is elsewhere; None if it may."""
    if sync.source == Sync.Source.SENT and before.origin != Resource.Origin.DISCOVERED:
        message = f"{draft.name or draft.identity} is resource {before.pk} ({before}), which was not discovered."
        return Conflict(identity=draft.identity, resource=before, message=message)
    if not _is_still_listed(sync, before):
        return None
    where = before.finding.sync.place
    message = (
        f"{draft.name or draft.identity} is reported in {sync.place or sync.blueprint.name} and in {where}."
        f" Resource {before.pk} moves once a complete report about {where} omits it."
    )
    return Conflict(identity=draft.identity, resource=before, message=message)


def _is_still_listed(sync: Sync, resource: Resource) -> bool:
    """Return whether the last complete report of another place contains the resource."""
    finding: Finding | None = getattr(resource, "finding", None)
    if finding is None or resource.missed:
        return False
    return _is_elsewhere(sync, finding) and finding.sync.source != Sync.Source.DROPPED


def _is_elsewhere(sync: Sync, finding: Finding | None) -> bool:
    return finding is not None and finding.sync.place not in ("", sync.place)


def withhold(resource: Resource, found: Conflict) -> None:
    """Quarantine a resource, because another resource already represents the same thing."""
    note = f"{SAME} resource {found.resource.pk}: {found.message}"[:2000]
    changed = Resource.objects.filter(~Q(pk=found.resource.pk), pk=resource.pk, quarantined=False)
    if changed.update(quarantined=True, note=note):
        record_event("resource.quarantined", note, resource_id=resource.pk)


def leave(sync: Sync, resource: Resource, draft: Draft) -> bool:
    """End the leases of a resource that was found in another host. Return whether the resource can be moved there now.

    Until the resource is moved, it serves no new leases.
    """
    finding: Finding | None = getattr(resource, "finding", None)
    elsewhere = _is_elsewhere(sync, finding)
    before = finding.draft if finding is not None else {}
    same = (before.get("part_of", ""), before.get("host")) == (draft.part_of, draft.host)
    if finding is not None and not elsewhere and same:
        return True
    whole = provision.whole(sync.blueprint, draft)
    former, new = _host(resource.part_of_id), _host(None if whole is None else whole.pk)
    moved = former[0] != new[0] if former and new else elsewhere
    if not moved:
        return True
    was = former[1] if former else finding.sync.place if finding is not None else ""
    now = new[1] if new else sync.place
    message = f"{draft.name or draft.identity} was in {was} and was found in {now}."
    return _leave(resource.pk, message, f"{MOVED} {now}.")


@short
def _leave(resource_id: int, message: str, note: str) -> bool:
    holders = lock_holders(resource_id)
    lock_resource(resource_id)
    if not are_all_holders(resource_id, holders):
        return False
    ending = [one for one in holders if one[1] in (LeaseState.ACQUIRED, LeaseState.ACTIVE)]
    run(
        "UPDATE leases_resource SET note = %s, quarantined = TRUE WHERE id = %s AND NOT quarantined",
        (note[:2000], resource_id),
    )
    eviction.evict_all(resource_id, ending, reason=Reason.MOVED, message=message, stays=True)
    if ending:
        record_event("resource.moved", message, resource_id=resource_id, reason=Reason.MOVED)
    held = Share.objects.filter(resource=resource_id).exists() or Debt.objects.filter(resource=resource_id).exists()
    return not held and not Run.objects.filter(resource=resource_id).exists()


_HOST = """
    WITH RECURSIVE up AS (
        SELECT id, part_of_id, name, identity, 0 AS depth FROM leases_resource WHERE id = %s
        UNION ALL SELECT r.id, r.part_of_id, r.name, r.identity, up.depth + 1
        FROM leases_resource r JOIN up ON r.id = up.part_of_id WHERE up.depth < %s)
    SELECT id, coalesce(nullif(name, ''), identity, id::text) FROM up ORDER BY depth DESC LIMIT 1"""


def _host(resource_id: int | None) -> tuple[int, str] | None:
    """Return the id and the name of the topmost resource that this one is part of, or of itself if it is topmost."""
    found = rows(_HOST, (resource_id, _DEEPEST)) if resource_id is not None else []
    return (int(found[0][0]), str(found[0][1])) if found else None


def remember(sync: Sync, found: Iterable[Conflict]) -> list[Json]:
    """Return the conflicts of a report as JSON, in the form in which they are stored.

    A conflict that is already stored keeps the time at which it was first seen.
    """
    since = {(one["identity"], one["resource"]): one["since"] for one in sync.conflicts}
    now = rows("SELECT clock_timestamp()")[0][0].isoformat()
    return [one.as_json(since.get((one.identity, one.resource.pk), now)) for one in found]
