"""Renew leases without an end hour by hour, within the budgets of their owners.

If a budget was lowered, the leases held longest are kept: a lease is renewed if the budget covers the lease together
with the leases held for longer and the leases that have an end. Otherwise the lease ends after a notice.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.conf import settings

from leases.engine.core.database import each, rows, short, some
from leases.engine.core.transitions import explain
from leases.engine.lifecycle import release
from leases.engine.placement import budgets
from leases.engine.placement.budget_check import BudgetState
from leases.reasons import Reason

_RESERVED = "coalesce(u.reserved_until, u.started_at + %s * interval '1 s')"
_OPEN_ENDED = "l.state = 'active' AND l.until IS NULL AND l.root_id IS NULL AND l.for_resource_id IS NULL"
_DUE = f"""
    SELECT DISTINCT l.id FROM leases_budget b JOIN leases_usage u ON u.ended_at IS NULL AND u.price > 0
        AND (b.user_id = u.owner_id OR b.group_id = u.group_id OR b.blueprint_id = u.blueprint_id)
    JOIN leases_lease l ON l.id = u.lease_id AND {_OPEN_ENDED} AND l.release_wanted = ''
    WHERE {_RESERVED} <= statement_timestamp() + %s * interval '1 s'"""
_LOCK = f"""
    SELECT l.owner_id, l.charged_group_id, l.resource_id, l.reason, r.price * {budgets.PART}, r.price
    FROM leases_lease l JOIN leases_share s ON s.lease_id = l.id JOIN leases_resource r ON r.id = s.resource_id
    WHERE l.id = %s AND {_OPEN_ENDED} AND l.release_wanted = '' AND r.price IS NOT NULL FOR NO KEY UPDATE OF l"""
_BUDGETS = """
    SELECT b.user_id, b.group_id, b.blueprint_id, b.id, b.max_hourly FROM leases_budget b
    WHERE b.user_id = %s OR b.group_id = %s
        OR b.blueprint_id = (SELECT blueprint_id FROM leases_resource WHERE id = %s) ORDER BY b.id"""
_BEFORE = f"""
    SELECT coalesce(sum(r.price * {budgets.PART}), 0) FROM leases_lease l JOIN leases_share s ON s.lease_id = l.id
    JOIN leases_resource r ON r.id = s.resource_id AND r.price > 0
    LEFT JOIN leases_usage u ON u.lease_id = l.id AND u.ended_at IS NULL
    WHERE l.state IN ('acquired', 'active', 'released') AND l.for_resource_id IS NULL AND {{whose}} = %s AND l.id <> %s
        AND NOT ({_OPEN_ENDED} AND (l.id > %s OR u.ends_at IS NOT NULL))"""
_BUILT_BEFORE = """
    SELECT coalesce(sum(r.price), 0) FROM leases_resource r
    WHERE r.blueprint_id = %s AND r.gone_at IS NULL AND r.id < %s AND (r.used_slots > 0 OR r.state = 'pending')
        AND NOT EXISTS (SELECT FROM leases_usage u WHERE u.resource_id = r.id AND u.ended_at IS NULL
            AND u.ends_at IS NOT NULL)"""
_RENEW = f"""
    UPDATE leases_usage u SET ends_at = NULL,
        reserved_until = greatest({_RESERVED}, clock_timestamp()) + %s * interval '1 s'
    WHERE u.lease_id = %s AND u.ended_at IS NULL RETURNING 1"""
_REFUSE = f"""
    UPDATE leases_usage u SET
        ends_at = coalesce(u.ends_at, greatest({_RESERVED}, clock_timestamp() + %s * interval '1 s'))
    WHERE u.lease_id = %s AND u.ended_at IS NULL RETURNING u.ends_at, u.ends_at <= clock_timestamp()"""


def renew() -> int:
    """Renew leases without an end whose reserved hour is about to end. End the leases that could not be renewed.

    Return the number of leases that were due.
    """
    policy = settings.DRYDOCK
    due = some(_DUE, (policy.budget_hour_seconds, policy.budget_notice_seconds))
    return each(_look_at, due)


def _look_at(lease_id: int) -> bool:
    over = _renew(lease_id)
    if over:
        release.end(lease_id, reason=Reason.OVER_BUDGET, message=over)
    return True


@short
def _renew(lease_id: int) -> str:
    """Renew a lease for another hour, or give notice.

    Return why the lease ends if the notice period is over, or an empty string if it continues.
    """
    found = rows(_LOCK, (lease_id,))
    if not found:
        return ""
    owner, group, resource, reason, cost, price = found[0]
    against = _against(lease_id, owner, group, resource, cost, price)
    hour = settings.DRYDOCK.budget_hour_seconds
    if not against:
        rows(_RENEW, (hour, hour, lease_id))
        if reason == Reason.BUDGET_ENDS:
            explain(lease_id, Reason.READY, "The budget covers the lease again.")
        return ""
    ends_at, over = rows(_REFUSE, (hour, settings.DRYDOCK.budget_notice_seconds, lease_id))[0]
    said = _said(against, ends_at)
    explain(lease_id, Reason.BUDGET_ENDS, said)
    return against[:1].upper() + against[1:] + "." if over else ""


def _said(against: str, ends_at: dt.datetime) -> str:
    moment = f"{ends_at.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"
    return f"The lease ends at {moment} unless the budget covers its renewal: {against}."


def _against(lease_id: int, owner: Any, group: Any, resource: int, cost: float, price: float) -> str:
    """Return why a budget does not allow another hour of the lease, or an empty string if all budgets do."""
    for user_id, group_id, blueprint_id, budget_id, maximum in rows(_BUDGETS, (owner, group, resource)):
        if blueprint_id is not None:
            used, needs = rows(_BUILT_BEFORE, (blueprint_id, resource))[0][0], price
        else:
            whose, key = ("l.owner_id", user_id) if user_id is not None else ("l.charged_group_id", group_id)
            used, needs = rows(_BEFORE.format(whose=whose), (key, lease_id, lease_id))[0][0], cost
        budget = BudgetState(holder=budgets.holder(budget_id), maximum=maximum, used=float(used))
        if not budget.affords(float(needs)):
            return budget.sentence("this", float(needs))
    return ""
