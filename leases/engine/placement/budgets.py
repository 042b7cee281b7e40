"""Budgets: what owners and blueprints may spend, in US dollars per hour, and how much of that is spent.

The cost of an owner's leases is the sum over their shares: the price of the resource times the fraction that the share
takes. If a machine is destroyed with its lease, the ended lease still has a cost until the machine is gone. Shares are
inserted while the budget's row is locked, so that two claims cannot spend the same dollar. The resources of a blueprint
cost their whole price as long as they exist, leased or not. Builds are decided while the blueprint's row is locked.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models.functions import Now

from blueprints.specs import Draft
from leases.engine.core.database import rows
from leases.engine.core.transitions import explain
from leases.engine.placement import claims, pending
from leases.engine.placement.budget_check import UNBOUNDED, BudgetCheck, BudgetState, price_of
from leases.engine.placement.constraints import TINY, PlacementRequest
from leases.models import Budget
from leases.reasons import Reason

PART = "CASE WHEN s.exclusive THEN 1 ELSE least(s.slots::float8 / greatest(r.total_slots, 1), 1) END"
"""SQL for the fraction of resource `r` that share `s` takes."""
_OF = """
    SELECT b.id, b.user_id, b.group_id, coalesce(u.{name}, g.name), b.max_hourly, l.id
    FROM leases_budget b JOIN leases_lease l ON l.id = ANY(%s) AND l.for_resource_id IS NULL
        AND (b.user_id = l.owner_id OR b.group_id = l.charged_group_id)
    LEFT JOIN {users} u ON u.{key} = b.user_id LEFT JOIN auth_group g ON g.id = b.group_id
    ORDER BY b.id, l.id {locking}"""
USED = f"""
    SELECT coalesce(sum(l.cost), 0) FROM (
        SELECT r.price * {PART} AS cost, l.owner_id, l.charged_group_id
        FROM leases_lease l JOIN leases_share s ON s.lease_id = l.id
        JOIN leases_resource r ON r.id = s.resource_id AND r.price > 0
        WHERE l.state IN ('acquired', 'active', 'released') AND l.for_resource_id IS NULL
        UNION ALL SELECT u.price * u.part, u.owner_id, u.group_id
        FROM leases_usage u JOIN leases_lease x ON x.id = u.lease_id AND x.state IN ('destroyed', 'broken')
        WHERE u.ended_at IS NULL AND x.for_resource_id IS NULL) l
    WHERE {{whose}} = """
"""SQL for the hourly cost of held resources, and of ended leases whose machines are not gone yet."""
_GATHERED = """
    SELECT coalesce(sum(price), 0) FROM leases_resource WHERE reserved_for_id = ANY(%s) AND state IN ('pending', 'active')"""
_OF_BLUEPRINT = """
    SELECT b.max_hourly, (SELECT coalesce(sum(r.price), 0) FROM leases_resource r
        WHERE r.blueprint_id = b.blueprint_id AND r.gone_at IS NULL)
    FROM leases_budget b WHERE b.blueprint_id = %s"""


@dataclass(frozen=True, kw_only=True)
class Budgets:
    """The budgets of several leases, and the leases that are charged to each budget."""

    found: Sequence[tuple[BudgetState, frozenset[int]]] = ()

    def of(self, lease_id: int, placement: PlacementRequest) -> BudgetCheck:
        """Return the budgets of one lease."""
        budgets = tuple(budget for budget, charged in self.found if lease_id in charged)
        if not budgets:
            return UNBOUNDED
        return BudgetCheck(budgets=budgets, slots=placement.amounts.slots, exclusive=placement.exclusive)

    def against(self, costs: Mapping[int, float]) -> str:
        """Return why budgets do not allow the total cost of these leases, or an empty string if they do.

        `costs` contains the hourly cost of each lease by id.
        """
        for budget, charged in self.found:
            cost = sum(costs.get(lease_id, 0.0) for lease_id in charged)
            if not budget.affords(cost):
                return budget.sentence("this", cost)
        return ""


def lock(lease_ids: Sequence[int]) -> Budgets:
    """Lock and return the budgets that these leases are charged to. The locks last until the transaction ends."""
    return _read(lease_ids, "FOR NO KEY UPDATE OF b")


def look(lease_ids: Sequence[int]) -> Budgets:
    """Return the budgets that these leases are charged to, without locking them."""
    return _read(lease_ids, "")


def _read(lease_ids: Sequence[int], locking: str) -> Budgets:
    users = get_user_model()
    sql = _OF.format(
        users=users._meta.db_table, key=users._meta.pk.column, locking=locking,
        name=users._meta.get_field(users.USERNAME_FIELD).column,  # type: ignore[union-attr]
    )  # fmt: skip
    found: dict[int, tuple[tuple[Any, ...], set[int]]] = {}
    for *row, lease_id in rows(sql, (list(lease_ids),)):
        found.setdefault(row[0], (tuple(row[1:]), set()))[1].add(lease_id)
    return Budgets(found=[(_state(*row), frozenset(charged)) for row, charged in found.values()])


def _state(user: int | None, group: int | None, holder: str, maximum: float) -> BudgetState:
    return BudgetState(holder=holder, maximum=maximum, used=spent(user, group))


def spent(user: int | None, group: int | None) -> float:
    """Return the hourly cost of a user's leases, or of the leases charged to a group."""
    whose = "l.owner_id" if user is not None else "l.charged_group_id"
    return float(rows(USED.format(whose=whose) + "%s", (user if user is not None else group,))[0][0])


def overspent(lease_id: int) -> str:
    """Return why a lease may not be extended, or an empty string if budgets do not forbid it.

    A lease that costs money cannot be extended while its owner or charged group exceeds a budget.
    """
    costs = "SELECT 1 FROM leases_usage WHERE lease_id = %s AND ended_at IS NULL AND price > 0"
    if not rows(costs, (lease_id,)):
        return ""
    over = (budget for budget, _ in lock([lease_id]).found if budget.used > budget.maximum + TINY)
    return next((budget.standing for budget in over), "")


_STANDING = f"""
    SELECT b.id, CASE WHEN b.blueprint_id IS NOT NULL THEN (SELECT coalesce(sum(r.price), 0) FROM leases_resource r
            WHERE r.blueprint_id = b.blueprint_id AND r.gone_at IS NULL)
        WHEN b.user_id IS NOT NULL THEN ({USED.format(whose="l.owner_id")} b.user_id)
        ELSE ({USED.format(whose="l.charged_group_id")} b.group_id) END,
        (SELECT count(*) FROM leases_lease l WHERE l.state = 'pending' AND l.reason = 'waiting_budget'
            AND (l.owner_id = b.user_id OR l.charged_group_id = b.group_id
                OR l.message LIKE '%%the budget of blueprint ' || p.name || ' is %%'))
    FROM leases_budget b LEFT JOIN blueprints_blueprint p ON p.id = b.blueprint_id WHERE b.id = ANY(%s)"""


def standing(budget_ids: Sequence[int]) -> dict[int, tuple[float, int]]:
    """Return a mapping from budget id to the amount spent and the number of leases that wait for the budget."""
    return {pk: (float(used), waiting) for pk, used, waiting in rows(_STANDING, (list(budget_ids),))}


_SHORT_SINCE = """
    SELECT b.id, coalesce(
        (SELECT min(l.since) FROM leases_lease l WHERE l.state = 'pending' AND l.reason = 'waiting_budget'
            AND (l.owner_id = b.user_id OR l.charged_group_id = b.group_id
                OR l.message LIKE '%%the budget of blueprint ' || p.name || ' is %%')),
        CASE WHEN b.blueprint_id IS NOT NULL THEN (SELECT max(r.created_at) FROM leases_resource r
            WHERE r.blueprint_id = b.blueprint_id AND r.gone_at IS NULL AND r.price > 0)
        ELSE (SELECT max(u.started_at) FROM leases_usage u WHERE u.ended_at IS NULL AND u.price > 0
            AND (u.owner_id = b.user_id OR u.group_id = b.group_id)) END)
    FROM leases_budget b LEFT JOIN blueprints_blueprint p ON p.id = b.blueprint_id WHERE b.id = ANY(%s)"""


def short_since(budget_ids: Sequence[int]) -> dict[int, dt.datetime | None]:
    """Return a mapping from budget id to the time at which the budget became exhausted.

    That time is when the first waiting lease began to wait for the budget or, if no lease waits, when the latest cost
    began. It is None for a budget without costs.
    """
    return dict(rows(_SHORT_SINCE, (list(budget_ids),)))


def holder(budget_id: int) -> str:
    """Return the name of the user, group or blueprint to which the budget belongs."""
    row = Budget.objects.select_related("user", "group", "blueprint").get(pk=budget_id)
    return f"blueprint {row.blueprint.name}" if row.blueprint is not None else str(row.user or row.group)


def spending(lease_id: int, placement: PlacementRequest) -> BudgetCheck:
    """Return the budgets that limit a pending lease. Resources reserved for the lease's group count as spent."""
    found = look([lease_id]).of(lease_id, placement)
    if not (found.budgets and placement.group):
        return found
    gathered = float(rows(_GATHERED, (list(placement.group),))[0][0])
    budgets = [BudgetState(holder=p.holder, maximum=p.maximum, used=p.used + gathered) for p in found.budgets]
    return BudgetCheck(budgets=budgets, slots=found.slots, exclusive=found.exclusive)


def blueprint_affords(blueprint_id: int, draft: Draft) -> bool:
    """Return whether the blueprint's budget allows a resource at the draft's price.

    Call this with the blueprint locked.
    """
    if draft.price == 0 or (draft.price is None and not draft.offer):
        return True
    found = rows(_OF_BLUEPRINT, (blueprint_id,))
    return not found or BudgetState(holder="", maximum=found[0][0], used=float(found[0][1])).affords(price_of(draft))


_HELD = f"""
    SELECT s.lease_id, ({PART})::float8 FROM leases_share s JOIN leases_resource r ON r.id = s.resource_id
    WHERE r.id = %s ORDER BY 1"""


def against_rise(resource_id: int, rise: float) -> str:
    """Return why budgets do not allow a resource's hourly price to rise by `rise`, or an empty string if they do.

    Checks the budgets of the leases on the resource, and the budget of its blueprint. These budgets remain locked until
    the transaction ends.
    """
    held = {lease_id: part * rise for lease_id, part in rows(_HELD, (resource_id,))}
    if said := lock(list(held)).against(held):
        return said
    blueprint_id, name = rows(
        "SELECT b.id, b.name FROM blueprints_blueprint b JOIN leases_resource r ON r.blueprint_id = b.id WHERE r.id = %s"
        " FOR NO KEY UPDATE OF b", (resource_id,),
    )[0]  # fmt: skip
    budgets = (
        BudgetState(holder=f"blueprint {name}", maximum=m, used=float(u))
        for m, u in rows(_OF_BLUEPRINT, (blueprint_id,))
    )
    return next((budget.sentence("this", rise) for budget in budgets if not budget.affords(rise)), "")


def costs(places: Mapping[int, int], requests: Mapping[int, PlacementRequest]) -> dict[int, float]:
    """Return a mapping from lease id to the hourly cost of the lease on the resource that `places` assigns to it."""
    sql = "SELECT id, coalesce(price, 0), greatest(total_slots, 1) FROM leases_resource WHERE id = ANY(%s)"
    known = {pk: (of, slots) for pk, of, slots in rows(sql, (sorted(set(places.values())),))}
    return {
        lease_id: known[place][0] * (1.0 if one.exclusive else one.amounts.slots / known[place][1])
        for lease_id, place in places.items()
        if (one := requests[lease_id]) and place in known
    }


def park(lease_ids: Sequence[int], sentence: str, verdicts: Any = None) -> None:
    """Take leases out of the queue until their next attempt is due, or their owner's spending or budget changes.

    Call inside a transaction with the leases locked.
    """
    said = {} if verdicts is None else {"verdicts": verdicts}
    for lease_id in lease_ids:
        claims.unreserve(lease_id)
        due = Now() + pending.look_again()
        explain(lease_id, Reason.WAITING_BUDGET, sentence, parked=True, due_at=due, **said)
