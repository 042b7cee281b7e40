"""Explain what would happen to a group of leases now, without carrying it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from leases.engine.placement import budgets, quotas
from leases.engine.placement.assignment import rule_of
from leases.engine.placement.pending import PendingLease, members_of
from leases.engine.queue import carriers, colocation
from leases.engine.queue.colocation import Prospect
from leases.engine.queue.groups import choose, costs_of
from leases.engine.scheduling import allocate
from leases.engine.scheduling.decision import Decision
from leases.reasons import Reason


@dataclass(frozen=True, kw_only=True)
class GroupOpinion:
    """Explain a group: `decisions` are those about single members, if no existing host can serve the group."""

    granted: bool
    message: str
    reason: str = ""
    hosts: Sequence[Prospect] = ()
    decisions: Sequence[Decision] = ()


def opinion(group_id: int) -> GroupOpinion:
    """Return what would happen to a pending group now, without carrying it out."""
    found, rule = members_of(group_id), rule_of(group_id)
    excess = quotas.allowance({member.id: member.placement.amounts for member in found}).excess
    charged = budgets.look([member.id for member in found])
    for member in found:
        member.placement = charged.of(member.id, member.placement).bounding(member.placement)
    outlook = carriers.look(found) if rule.same == "whole" else carriers.Outlook()
    requests = outlook.requests(found)
    searches = list(carriers.searches(outlook, rule, [member.id for member in found]))
    hosts = colocation.prospects(requests, searches[0].rule) if rule.is_in_one_host else []
    if excess is not None:
        return GroupOpinion(granted=False, reason=Reason.WAITING_QUOTA, message=excess.sentence, hosts=hosts)
    must_be_built = rule.same == "whole"
    chosen = choose([replace(one.placement, must_be_built=must_be_built) for one in found], rule)
    if chosen is not None:
        if dear := charged.against(costs_of(found, chosen)):
            message = dear[:1].upper() + dear[1:]
            return GroupOpinion(granted=False, reason=Reason.WAITING_BUDGET, message=message, hosts=hosts)
        apart = colocation.how_near(chosen, rule) if rule.is_in_one_host else ""
        message = f"Granted at once: there is room for all {len(found)} leases of the group"
        message += f"; their devices would {apart}." if apart else "."
        return GroupOpinion(granted=True, message=message, hosts=hosts)
    message = f"There is no room for all {len(found)} leases of the group at once."
    if rule.is_in_one_host:
        message = colocation.shortage(requests, searches[0].rule).message
    if outlook.constructions and any(one.answer == "build" for one in hosts):
        built = [one.decision for one in outlook.constructions]
        message = f"The {len(found)} leases of the group are granted together once everything is built in one host."
        return GroupOpinion(
            granted=False, reason=Reason.WAITING_GROUP, message=message, hosts=hosts, decisions=built
        )  # fmt: skip
    able = any(one.answer == "wait" for one in hosts)
    decisions = [] if able else [allocate.opinion(member) for member in _distinct(found)]
    return GroupOpinion(
        granted=False, reason=Reason.WAITING_GROUP, message=message, hosts=hosts, decisions=decisions
    )  # fmt: skip


def _distinct(found: Sequence[PendingLease]) -> list[PendingLease]:
    """Return the first of the members that request the same."""
    first: dict[str, PendingLease] = {}
    for member in found:
        first.setdefault(repr(replace(member.placement, lease_id=None)), member)
    return list(first.values())
