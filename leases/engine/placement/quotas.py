"""Quotas: limits on the amount of each class that an owner may hold at once. Leases beyond a quota are parked.

Only leases that owners requested themselves (root leases) are charged, not the leases that root leases depend on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from django.contrib.auth import get_user_model
from django.db.models.functions import Now

from blueprints.amounts import CLASSES, Amounts, amount
from leases.engine.core.database import leases_by_id, rows
from leases.engine.core.transitions import explain
from leases.engine.placement import claims, pending
from leases.engine.placement.constraints import PlacementRequest
from leases.messaging import hints
from leases.reasons import Reason

LIMITS = ("leases", *CLASSES)


@dataclass(frozen=True, kw_only=True)
class Excess:
    """The first limit of a quota that a lease would exceed, with the amounts for the message."""

    holder: str
    limit: str
    maximum: int
    used: int
    asked: int

    @property
    def sentence(self) -> str:
        """A sentence that states the quota, the amount held and the amount requested."""
        held, more = (amount(self.limit, number, bare=True) for number in (self.used, self.asked))
        never = " This quota can never allow the request." if self.asked > self.maximum else ""
        return (
            f"{self.holder}'s quota is {amount(self.limit, self.maximum)}: {held} held, {more} more requested.{never}"
        )


_LOCK = """
    SELECT q.id, q.user_id, q.group_id, coalesce(u.username, g.name),
        q.max_leases, q.max_slots, q.max_cpu_millicores, q.max_ram_mib, q.max_disk_mib, q.max_extra, l.id
    FROM leases_quota q JOIN leases_lease l ON l.id = ANY(%s) AND l.root_id IS NULL AND l.for_resource_id IS NULL
        AND (q.user_id = l.owner_id OR q.group_id = l.charged_group_id)
    LEFT JOIN {users} u ON u.id = q.user_id LEFT JOIN auth_group g ON g.id = q.group_id
    ORDER BY q.id, l.id FOR NO KEY UPDATE OF q"""
USED = """
    SELECT count(*), coalesce(sum(s.slots), 0), coalesce(sum(s.cpu_millicores), 0), coalesce(sum(s.ram_mib), 0),
        coalesce(sum(s.disk_mib), 0)
    FROM leases_lease l JOIN leases_share s ON s.lease_id = l.id
    WHERE l.state IN ('acquired', 'active', 'released') AND l.root_id IS NULL AND l.for_resource_id IS NULL
        AND {whose} = %s"""

USED_EXTRA = """
    SELECT x.name, sum(x.n::bigint)
    FROM leases_lease l JOIN leases_share s ON s.lease_id = l.id CROSS JOIN LATERAL jsonb_each_text(s.extra) x(name, n)
    WHERE l.state IN ('acquired', 'active', 'released') AND l.root_id IS NULL AND l.for_resource_id IS NULL
        AND {whose} = %s
    GROUP BY x.name"""
"""SQL for the amounts held of the additional classes, used only for quotas that limit such classes."""


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """The result of comparing leases with quotas: the first limit that is exceeded, and the amounts left."""

    excess: Excess | None = None
    left: Amounts | None = None
    """The amounts that the leases may still take; None if no quota limits the leases."""

    def bounding(self, placement: PlacementRequest) -> PlacementRequest:
        """Return the request; if it is exclusive, restrict it to resources that are no larger than the quotas allow."""
        if self.left is None or not placement.exclusive:
            return placement
        return replace(placement, at_most=self.left)


_ENDLESS = 1 << 62


def allowance(wanted: Mapping[int, Amounts]) -> Allowance:
    """Lock the quotas that these leases are charged to, and compare these quotas with what the leases request in total.

    Call inside a transaction.
    """
    found = rows(_LOCK.format(users=get_user_model()._meta.db_table), (list(wanted),))
    left = dict.fromkeys(CLASSES, _ENDLESS)
    further: dict[str, int] = {}
    for (_, user, group, holder, *maxima, most_extra), charged in groupby(found, key=lambda row: row[:-1]):
        amounts = [wanted[row[-1]] for row in charged]
        whose = "l.owner_id" if user is not None else "l.charged_group_id"
        used = rows(USED.format(whose=whose), (user if user is not None else group,))[0]
        asked = (len(amounts), *(sum(getattr(one, name) for one in amounts) for name in CLASSES))
        for limit, maximum, has, wants in zip(LIMITS, maxima, used, asked, strict=True):
            if maximum is not None and has + wants > maximum:
                excess = Excess(holder=holder, limit=limit, maximum=maximum, used=int(has), asked=wants)
                return Allowance(excess=excess)
            if maximum is not None and limit in left:
                left[limit] = min(left[limit], maximum - int(has))
        for name, (maximum, has) in _further(most_extra, whose, user if user is not None else group).items():
            wants = sum(one.extra.get(name, 0) for one in amounts)
            if has + wants > maximum:
                return Allowance(excess=Excess(holder=holder, limit=name, maximum=maximum, used=has, asked=wants))
            further[name] = min(further.get(name, _ENDLESS), maximum - has)
    amounts_left = Amounts(
        slots=left["slots"], cpu_millicores=left["cpu_millicores"], ram_mib=left["ram_mib"], disk_mib=left["disk_mib"],
        extra=further,
    )  # fmt: skip
    return Allowance(left=amounts_left if found else None)


def _further(limits: object, whose: str, holder: int) -> dict[str, tuple[int, int]]:
    """Return (maximum, amount held) for each additional class that a quota limits."""
    maxima: Mapping[str, int] = pending.read_json(limits)
    if not maxima:
        return {}
    held = {name: int(n) for name, n in rows(USED_EXTRA.format(whose=whose), (holder,))}
    return {name: (maximum, held.get(name, 0)) for name, maximum in sorted(maxima.items())}


def exceeded(lease_id: int) -> Excess | None:
    """Return the first quota limit that the owner or charged group exceeds because of this lease, or None.

    The quotas remain locked until the transaction ends.
    """
    for _, user, group, holder, *maxima, most_extra, _ in rows(
        _LOCK.format(users=get_user_model()._meta.db_table), ([lease_id],)
    ):
        whose = "l.owner_id" if user is not None else "l.charged_group_id"
        used = rows(USED.format(whose=whose), (user if user is not None else group,))[0]
        own = rows(
            "SELECT 1, slots, cpu_millicores, ram_mib, disk_mib FROM leases_share WHERE lease_id = %s", (lease_id,)
        )
        for limit, maximum, has, wants in zip(LIMITS, maxima, used, own[0], strict=True):
            if maximum is not None and has > maximum:
                return Excess(holder=holder, limit=limit, maximum=maximum, used=int(has) - wants, asked=wants)
        for name, (maximum, held) in _further(most_extra, whose, user if user is not None else group).items():
            ((taken,),) = rows(
                "SELECT coalesce(sum((extra ->> %s)::bigint), 0)::bigint FROM leases_share WHERE lease_id = %s",
                (name, lease_id),
            )
            if held > maximum:
                return Excess(holder=holder, limit=name, maximum=maximum, used=held - taken, asked=taken)
    return None


def park(lease_ids: Sequence[int], excess: Excess) -> None:
    """Take leases out of the queue until their owner holds less, or until their next attempt is due.

    Releases the reservations for the leases.
    """
    for lease_id in lease_ids:
        claims.unreserve(lease_id)
        due = Now() + pending.look_again()
        explain(lease_id, Reason.WAITING_QUOTA, excess.sentence, parked=True, due_at=due)


_FIRST = f"""
    parked AND state = 'pending' AND id IN (
        SELECT p.id FROM leases_lease l CROSS JOIN LATERAL (({pending.parked_with("owner_id")} LIMIT 20)
            UNION ({pending.parked_with("charged_group_id")} LIMIT 20)) p WHERE l.id = %s
        ORDER BY p.rank, p.id LIMIT 20)"""


def unpark(lease_id: int) -> None:
    """Put the first parked leases that share a quota or budget with this lease back into the queue.

    The sweep puts back the others. Leases whose next attempt is already scheduled stay parked.
    """
    found = rows(f"UPDATE leases_lease SET parked = FALSE WHERE {leases_by_id(_FIRST)} RETURNING type", (lease_id,))
    for resource_type in sorted({row[0] for row in found}):
        hints.send("serve", resource_type)
