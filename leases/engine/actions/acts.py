"""Start and cancel the acts that kinds declare, and record how each act ended.

An act is a run of its own phase on a resource. Unless the kind declares that the act may run beside leases, the
resource is in maintenance until the act has ended. The first step of such an act is called only when no other lease
holds the resource, a resource below it, or a resource above it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from blueprints import registry
from blueprints.answers import Failed
from blueprints.contract import Checks, DeclaredAct, acts_of
from drydock.core.errors import Conflict, NotFound
from leases.engine.actions import machines
from leases.engine.actions.machines import Now
from leases.engine.core.database import rows, run, short
from leases.engine.core.runs import start
from leases.engine.core.transitions import record_event
from leases.engine.placement.pending import read_json
from leases.engine.resources import failures, maintenance
from leases.engine.resources.maintenance import TreeHolder
from leases.messaging import hints
from leases.models import Run


@dataclass(frozen=True, kw_only=True)
class ActWish:
    """A requested act on a resource and, if an owner requested it through a lease, that lease."""

    resource_id: int
    act: DeclaredAct
    arguments: dict[str, Any] = field(default_factory=dict)
    actor: str
    lease_id: int | None = None

    @property
    def wanted(self) -> dict[str, Any]:
        """The arguments that are stored with the act's run."""
        return {"act": self.act.name, "arguments": self.arguments, "lease": self.lease_id}


@short
def begin(wish: ActWish) -> bool:
    """Request an act, which a worker carries out. Return False if the same act is already running.

    Raises Conflict with a message about what prevents the act. The check comes after the resource is closed to new
    leases, and in the transaction that starts the run, so that no lease can come in between.
    """
    if wish.lease_id is not None:
        _lock_lease(wish.lease_id)
    now = machines.locked(wish.resource_id)
    if now.phase == Run.Phase.ACT and read_json(now.wanted) == wish.wanted:
        return False
    closes = wish.act.holders != "keep"
    machines.refuse_busy(now)
    machines.drop_check(now)
    if closes:
        run("UPDATE leases_resource SET in_maintenance = TRUE WHERE id = %s", (wish.resource_id,))
    holders = maintenance.tree_holders(wish.resource_id, wish.lease_id)
    refuse(wish.act, now, holders, named=wish.lease_id is None)
    run_id = start(resource_id=wish.resource_id, phase=Run.Phase.ACT, wanted=wish.wanted)
    message = f"{wish.act.name} was requested."
    if run_id is not None and closes and holders:
        message += f" It waits until {_others(holders, wish.lease_id is None)} has ended."
        _wait(run_id, wish, message, holders)
    _record("asked", message, wish.resource_id, wish.wanted, wish.actor)
    return True


def _lock_lease(lease_id: int) -> None:
    sql = "SELECT 1 FROM leases_lease WHERE id = %s AND state = 'active' AND release_wanted = '' FOR NO KEY UPDATE"
    if not rows(sql, (lease_id,)):
        raise Conflict(f"Lease {lease_id} has ended.")


def _wait(run_id: int, wish: ActWish, message: str, holders: list[TreeHolder]) -> None:
    """Let the run wait until the resource has no other holders, and notify these."""
    asked = {
        "resource": wish.resource_id,
        "relation": maintenance.SELF,
        "action": "alone",
        "holders": "wait",
        "granted": False,
    }
    columns: dict[str, Any] = {"due_at": None, "waits_for": "maintenance", "maintenance": asked, "sentence": message}
    Run.objects.filter(pk=run_id).update(**columns)
    maintenance.tell_holders([one.lease_id for one in holders], wish.resource_id, f"{wish.act.name} was requested")
    hints.after_commit("sweep")


def situation(resource_id: int, lease_id: int | None) -> tuple[Now, list[TreeHolder]]:
    """Return what an act's start depends on: the state of the resource, and the other leases in its tree."""
    return machines.state_of(resource_id), maintenance.tree_holders(resource_id, lease_id)


def refuse(act: DeclaredAct, now: Now, holders: list[TreeHolder], *, named: bool) -> None:
    """Raise Conflict if an act cannot be started: the resource is busy, has the wrong power state, or is leased.

    Names the leases that are in the way only if `named` is true, because owners must not learn about leases of others.
    """
    machines.refuse_busy(now)
    if act.power != "any" and now.power and now.power != act.power:
        raise Conflict(f"{now.name} is {now.power}; {act.name} requires it to be {act.power}.",
                       hint=f"Switch it {act.power} first.")  # fmt: skip
    if act.holders == "refuse" and holders:
        raise Conflict(
            f"{_others(holders, named)} holds {holders[0].resource}; {act.name} requires that no other lease does.",
            hint="Try again when that lease has ended.",
        )


def _others(holders: list[TreeHolder], named: bool) -> str:
    if not named:
        return "Another lease"
    more = f" and {len(holders) - 1} more" if len(holders) > 1 else ""
    return f"Lease {holders[0].lease_id}{more}"


def why_not(act: DeclaredAct, now: Now, holders: list[TreeHolder], *, named: bool) -> str:
    """Return why an act cannot be started now, or an empty string if it can."""
    try:
        refuse(act, now, holders, named=named)
    except Conflict as error:
        return f"{error.message} {error.hint}".strip()
    return ""


_CANCEL = """
    UPDATE leases_run SET cancel_wanted = TRUE,
        due_at = CASE WHEN uninterruptible THEN due_at ELSE clock_timestamp() END
    WHERE phase = 'act' AND {which} RETURNING id, resource_id, wanted, uninterruptible"""


@short
def cancel(resource_id: int, name: str, *, actor: str) -> None:
    """Cancel a running act: at once, or after a step that cannot be interrupted. Raises NotFound."""
    which = "lease_id IS NULL AND resource_id = %s AND wanted ->> 'act' = %s"
    found = rows(_CANCEL.format(which=which), (resource_id, name))
    if not found:
        raise NotFound(f"Resource {resource_id} has no running act {name!r}.", field="act")
    _cancelling(found, actor)


def cancel_of_lease(lease_id: int) -> bool:
    """Cancel the acts that were started through a lease. Return True if one is still running.

    The lease is not cleaned before these acts have ended. Call inside a transaction.
    """
    found = rows(_CANCEL.format(which="wanted ->> 'lease' = %s AND NOT cancel_wanted"), (str(lease_id),))
    _cancelling(found, "drydock")
    return bool(found) or bool(
        rows("SELECT 1 FROM leases_run WHERE phase = 'act' AND wanted ->> 'lease' = %s", (str(lease_id),))
    )


def _cancelling(found: list[tuple[Any, ...]], actor: str) -> None:
    for run_id, resource_id, wanted, uninterruptible in found:
        given = read_json(wanted)
        later = " It takes effect after the current step, which cannot be interrupted." if uninterruptible else ""
        _record("cancelling", f"The cancellation of {given['act']} was requested.{later}", resource_id, given, actor)
        hints.after_commit("step", run_id)


def done(current: Run) -> None:
    """Record that an act has succeeded."""
    _ended(current, "done", f"{current.wanted['act']} is done.")


def failed(current: Run, answer: Failed) -> None:
    """Record that an act has failed. Quarantine the resource if the act's declaration requires that."""
    failures.record(current, answer)
    _ended(current, "failed", answer.message)


def cancelled(current: Run) -> None:
    """Record that an act was cancelled.

    If a step has begun, quarantine the resource if the act's declaration requires that.
    """
    _ended(current, "cancelled", f"{current.wanted['act']} was cancelled.")


def _ended(current: Run, outcome: str, message: str) -> None:
    resource_id, name, lease_id = current.resource_id, current.wanted["act"], current.wanted.get("lease")
    _record(outcome, message, resource_id, current.wanted, "drydock")
    if outcome != "done" and _quarantines(current, outcome):
        said = f"The act {name} was {outcome}: {message}" if outcome == "failed" else f"The act {name} was cancelled."
        run("UPDATE leases_resource SET quarantined = TRUE, note = %s WHERE id = %s", (said[:2000], resource_id))
        record_event("resource.quarantined", said, resource_id=resource_id)
    if isinstance(registry.kind(current.resource.blueprint.kind), Checks):
        run("UPDATE leases_resource SET check_at = clock_timestamp() WHERE id = %s", (resource_id,))
    maintenance.lift_unless_needed(resource_id)
    if lease_id is not None and rows("SELECT 1 FROM leases_lease WHERE id = %s AND state = 'released'", (lease_id,)):
        hints.after_commit("end", lease_id)


def _quarantines(current: Run, outcome: str) -> bool:
    """Return whether the resource may not work any more after its act has failed or was cancelled."""
    act = acts_of(registry.kind(current.resource.blueprint.kind)).get(current.wanted["act"])
    begun = outcome == "failed" or current.position > 0 or current.in_call or bool(current.step or current.memo)
    return begun and act is not None and act.quarantines


def _record(outcome: str, message: str, resource_id: int, wanted: dict[str, Any], actor: str) -> None:
    """Record what was requested or has happened, with the arguments of the act."""
    record_event(
        f"act.{outcome}", message, actor=actor, resource_id=resource_id, lease_id=wanted.get("lease"),
        details={"act": wanted["act"], "arguments": wanted["arguments"]},
    )  # fmt: skip


_HOLDING = """
    SELECT l.id FROM (SELECT %s::bigint AS id, 0 AS n UNION ALL SELECT id, n FROM drydock_above(%s)) t
    JOIN leases_resource r ON r.id = t.id JOIN leases_lease l ON l.id = r.whole_lease_id
    WHERE l.owner_id = %s AND l.state = 'active' AND l.release_wanted = '' ORDER BY t.n LIMIT 1"""


def holding_lease(resource_id: int, owner_id: int) -> int | None:
    """Return the id of the owner's active lease that holds the resource whole, or a resource above it; else None."""
    found = rows(_HOLDING, (resource_id, resource_id, owner_id))
    return int(found[0][0]) if found else None
