"""Retire resources that are idle, outdated or out of service, and record which resources are lost or gone."""

from __future__ import annotations

from collections.abc import Sequence

from drydock.core.errors import Busy
from leases.engine.catalogue import generations
from leases.engine.core.database import rows, run, short
from leases.engine.core.runs import MAINTAINS, end_children, start, stop
from leases.engine.core.transitions import Holders, are_all_holders, lock_holders, move_resource, wake_relatives
from leases.engine.placement import quotas
from leases.engine.resources import eviction, failures
from leases.messaging import hints
from leases.reasons import Reason
from leases.states import ResourceState


def retire_idle(
    resource_id: int, *, reason: Reason, message: str, actor: str = "drydock", unwanted: bool = False
) -> bool:
    """Retire a resource on which there is no lease and no running act. Return whether the retirement was started.

    A resource that is only outdated is updated if its kind can do so; any other resource is destroyed. If `unwanted` is
    true, a resource that is still being built is retired only if the blueprint's minimum does not need it.

    A resource that Drydock did not build, and that is cleaned apart from its leases, is not handed back before it is
    clean.
    """
    try:
        return _retire(resource_id, reason, message, actor, unwanted)
    except Busy:
        return False


KEPT_UNTIL_CLEAN = """
    r.origin IN ('registered', 'discovered')
    AND EXISTS (SELECT FROM leases_debt d WHERE d.resource_id = r.id AND d.apart)"""
"""SQL that is true if resource `r` is not handed back before its deferred cleanup is done."""


@short
def _retire(resource_id: int, reason: str, message: str, actor: str, unwanted: bool) -> bool:
    rolled = may_roll(resource_id) if reason == Reason.OUTDATED else None
    found = rows(
        "SELECT r.state, b.min_ready FROM leases_resource r"
        " JOIN blueprints_blueprint b ON b.id = r.blueprint_id"
        " WHERE r.id = %s AND r.used_slots = 0 AND r.state IN ('pending', 'active') AND NOT EXISTS (SELECT"
        " FROM leases_run n WHERE n.resource_id = r.id AND n.phase = 'act')"
        f" AND NOT ({KEPT_UNTIL_CLEAN}) FOR NO KEY UPDATE OF r",
        (resource_id,),
    )
    if not found or (unwanted and found[0][1] > 0) or rolled is False:
        return False
    if rolled and generations.in_place(resource_id):
        return begin_update(resource_id)
    if not stop(resource_id=resource_id):
        return True
    begin_destroy(resource_id, ResourceState.RELEASED, reason=reason, message=message, actor=actor)
    return True


_NOT_KEPT = """
    SELECT r.drained OR b.drained, NOT b.enabled, coalesce(r.dies_at <= clock_timestamp(), FALSE),
        CASE WHEN r.drained THEN r.note ELSE '' END
    FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id WHERE r.id = %s"""


def why_not_kept(resource_id: int) -> tuple[Reason, str]:
    """Return why a built resource is not kept after its lease ends, as a reason and a sentence."""
    for drained, disabled, too_old, note in rows(_NOT_KEPT, (resource_id,)):
        if drained:
            return Reason.DRAINED, f"Drained: {note}" if note else "Drained."
        if disabled:
            return Reason.DRAINED, "The blueprint is disabled."
        if too_old:
            return Reason.TOO_OLD, "Older than the blueprint allows."
    return Reason.OUTDATED, "Built from an older blueprint."


def top_of(alias: str) -> str:
    """Return SQL for the id of the topmost resource that the resource of this table alias is part of, or its own."""
    return f"coalesce((SELECT a.id FROM drydock_above({alias}.id) a ORDER BY a.n DESC LIMIT 1), {alias}.id)"


UPDATING = "(n.phase = 'update' OR (o.state = 'released' AND o.reason = 'outdated'))"
"""SQL that is true if resource `o` with the run `n` is being updated or replaced because it is outdated."""
_ROLLING = f"""
    SELECT NOT (r.drained OR b.drained OR NOT b.enabled OR coalesce(r.dies_at <= clock_timestamp(), FALSE)),
        b.max_outdated > (
            SELECT count(DISTINCT t.id) FROM (
                SELECT {top_of("o")} AS id
                FROM leases_resource o LEFT JOIN leases_run n ON n.resource_id = o.id AND n.lease_id IS NULL
                WHERE o.blueprint_id = b.id AND o.gone_at IS NULL AND {UPDATING}) t
            WHERE t.id <> {top_of("r")})
    FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    WHERE r.id = %s AND r.generation < b.generation"""
"""Counts the other hosts in which resources are being updated: those of one host are updated together."""


def may_roll(resource_id: int) -> bool | None:
    """Return whether the blueprint allows one more resource to be updated or replaced now.

    Returns None if the resource has another reason for retirement than being outdated. Locks the blueprint, so that
    two processes never count at the same time. Resources of one host count as one.
    """
    lock = "SELECT 1 FROM blueprints_blueprint WHERE id = (SELECT blueprint_id FROM leases_resource WHERE id = %s)"
    rows(f"{lock} FOR NO KEY UPDATE", (resource_id,))
    for only_outdated, room in rows(_ROLLING, (resource_id,)):
        return bool(room) if only_outdated else None
    return None


_IN_USE = """
    SELECT FROM leases_share s WHERE s.resource_id IN (SELECT id FROM drydock_below(r.id))
    UNION ALL SELECT FROM leases_debt d WHERE d.apart AND d.resource_id IN (SELECT id FROM drydock_below(r.id))
    UNION ALL SELECT FROM leases_resource a WHERE a.whole_lease_id IS NOT NULL
        AND NOT drydock_keeps(a.whole_lease_id, ARRAY[r.id]) AND a.id IN (SELECT id FROM drydock_above(r.id))"""
"""Leases on parts of the resource `r`, parts that must be cleaned, and leases of others on the whole of something around
it."""


def begin_update(resource_id: int) -> bool:
    """Start an in-place update of an idle resource.

    Returns False if the resource is up to date, if the resource, or a resource above or below it, is leased, if the
    resource or a part of it awaits cleanup, or if the resource is not active or has a run. Call inside a transaction.
    """
    change = generations.pending(resource_id)
    if change is None:
        return False
    # Closed first: the statement after this one sees every lease that came before, and no lease comes after it.
    closed = rows("SELECT in_maintenance FROM leases_resource WHERE id = %s FOR NO KEY UPDATE", (resource_id,))
    run("UPDATE leases_resource SET in_maintenance = TRUE WHERE id = %s AND NOT in_maintenance", (resource_id,))
    taken = run(
        f"UPDATE leases_resource r SET in_maintenance = TRUE WHERE id = %s AND used_slots = 0 AND state = 'active'"
        f" AND NOT EXISTS ({_IN_USE})"
        " AND NOT EXISTS (SELECT FROM leases_debt d WHERE d.resource_id = r.id) AND NOT EXISTS (SELECT FROM leases_run n"
        f" WHERE (n.resource_id = r.id AND n.lease_id IS NULL) OR {MAINTAINS})",
        (resource_id,),
    )
    if not taken and closed and not closed[0][0]:
        run("UPDATE leases_resource SET in_maintenance = FALSE WHERE id = %s", (resource_id,))
    return bool(taken) and start(resource_id=resource_id, phase="update", wanted=change.wanted) is not None


def hand_back_parts(resource_id: int, identities: Sequence[str]) -> None:
    """Hand back discovered parts of a resource that a step has removed. Call inside a transaction.

    The step ran while no lease held the resource or its parts.
    """
    found = rows(
        "SELECT p.id FROM leases_resource p JOIN leases_resource r ON r.id = %s WHERE p.part_of_id = r.id"
        " AND p.blueprint_id = r.blueprint_id AND p.identity = ANY(%s) AND p.origin = 'discovered'"
        " AND p.gone_at IS NULL AND p.used_slots = 0 AND p.state IN ('pending', 'active')"
        " ORDER BY p.id FOR NO KEY UPDATE OF p",
        (resource_id, list(identities)),
    )
    for (part_id,) in found:
        if stop(resource_id=part_id):
            message = "Removed when the device that it was part of was reconfigured."
            begin_destroy(part_id, ResourceState.RELEASED, reason=Reason.RECONFIGURED, message=message, actor="drydock")


_SEARCH_AGAIN = """
    UPDATE leases_sync s SET due_at = clock_timestamp(), token = NULL, digest = '' FROM leases_finding f
    WHERE f.resource_id = %s AND f.sync_id = s.id AND s.source = 'read' RETURNING s.blueprint_id, s.place"""


def search_again(resource_id: int) -> None:
    """Start a new search of the place where a resource was discovered. Call inside a transaction.

    A search that is already running stores nothing more, because its results may be out of date.
    """
    for blueprint_id, place in rows(_SEARCH_AGAIN, (resource_id,)):
        hints.after_commit("discover", blueprint_id, place)


def begin_destroy(resource_id: int, to: ResourceState, *, reason: str, message: str, actor: str) -> None:
    """Move a resource without a run to state `to`, and start its destruction. Call inside a transaction."""
    move_resource(resource_id, to, reason=reason, message=message, actor=actor, reserved_for=None)
    start(resource_id=resource_id, phase="destroy")


def lose(resource_id: int, *, reason: Reason, message: str, actor: str = "drydock") -> bool:
    """Destroy a lost or failed resource. Its leases break or return to the queue.

    Returns False if the resource was already being destroyed. Raises Busy if every attempt to lock its leases fails
    because its shares change meanwhile.
    """
    for _ in range(8):
        done = _lose(resource_id, reason, message, actor)
        if done is not None:
            return done
    raise Busy


@short
def _lose(resource_id: int, reason: str, message: str, actor: str) -> bool | None:
    """Attempt `lose` once. Return None if a share was taken meanwhile, so that the caller tries again."""
    holders = lock_holders(resource_id)
    found = rows("SELECT state FROM leases_resource WHERE id = %s FOR NO KEY UPDATE", (resource_id,))
    if not found or found[0][0] not in (ResourceState.PENDING, ResourceState.ACTIVE):
        return False
    if not are_all_holders(resource_id, holders):
        return None
    take_out(resource_id, holders, reason=reason, message=message, actor=actor)
    return True


def take_out(
    resource_id: int,
    holders: Holders,
    *,
    reason: str,
    message: str,
    actor: str = "drydock",
    counts: bool = True,
) -> None:
    """Evict all leases from a resource and start its destruction. The leases and the resource must be locked."""
    eviction.evict_all(resource_id, holders, reason=reason, message=message, counts=counts)
    run("DELETE FROM leases_run WHERE resource_id = %s", (resource_id,))
    begin_destroy(resource_id, ResourceState.BROKEN, reason=reason, message=message, actor=actor)


def gone(resource_id: int, *, forced: str = "", actor: str = "drydock") -> None:
    """Record that a resource no longer exists, which a step or an operator has confirmed.

    Call inside a transaction.
    """
    state, resource_type = rows(
        "SELECT state, type FROM leases_resource WHERE id = %s FOR NO KEY UPDATE", (resource_id,)
    )[0]
    run("DELETE FROM leases_slotlock WHERE resource_id = %s", (resource_id,))
    run("DELETE FROM leases_debt WHERE resource_id = %s", (resource_id,))
    run("DELETE FROM leases_resourcecredential WHERE resource_id = %s", (resource_id,))
    failures.forget(resource_id)
    paying = rows("SELECT lease_id FROM leases_usage WHERE resource_id = %s AND ended_at IS NULL", (resource_id,))
    run(
        "UPDATE leases_resource SET gone_at = clock_timestamp(), credential_fields = '{}' WHERE id = %s", (resource_id,)
    )
    for (lease_id,) in paying:
        hints.once_committed(quotas.unpark, lease_id)
    if state == ResourceState.RELEASED:
        reason = Reason.FORCED if forced else Reason.GONE
        move_resource(resource_id, ResourceState.DESTROYED, reason=reason, message=forced, actor=actor)
    end_children(for_resource=resource_id)
    hints.after_commit("serve", resource_type)
    wake_relatives(resource_id)
