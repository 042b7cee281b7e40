"""What must be true. `resting` and `emptied` become true in time; what `history` finds can never be mended."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from blueprints.fake.cloud import Cloud
from chaos.orders import Order
from chaos.provider import PROVIDER
from leases.engine.core.database import rows
from leases.engine.core.specs import key
from leases.models import LeaseGroup


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One promise: on how many things it was looked at, and where it was broken."""

    promise: str
    looked_at: int
    violations: tuple[str, ...] = ()


def finding(promise: str, looked_at: int, violations: Iterable[str]) -> Finding:
    """A finding with a bounded list of violations."""
    return Finding(promise=promise, looked_at=looked_at, violations=tuple(violations)[:20])


def resting() -> list[Finding]:
    """Every lease has ended or is served; the provider has what the rows say."""
    return [
        _ended_or_served(), _shares_of_holders(), _used_is_shares(), _trees(), _served_by_something(),
        _provider_agrees(),
    ]  # fmt: skip


def emptied() -> list[Finding]:
    """After all were released and all pools drained: nothing is left, in rows or at the provider."""
    cloud = Cloud(PROVIDER)
    left = [f"instance {one.key} is {one.state}" for one in cloud.instances()]
    left += [f"{one.what} of {one.lease} on {one.key}" for one in cloud.left()]
    for what, sql in _LEFT.items():
        left += [f"{what} {pk}" for (pk,) in rows(sql)]
    return [finding("nothing is left, in rows or at the provider", len(cloud.calls("create")), left)]


_LEFT = {
    "lease": "SELECT id || ' is ' || state || ' (' || reason || '): ' || message FROM leases_lease"
    " WHERE state NOT IN ('destroyed', 'broken')",
    "share of lease": "SELECT lease_id FROM leases_share",
    "resource": "SELECT id || ' is ' || state FROM leases_resource WHERE gone_at IS NULL",
    "run": "SELECT id || ' ' || phase || ' of resource ' || resource_id || ' at ' || step || ': ' || sentence"
    " FROM leases_run",
    "slot lock": "SELECT key FROM leases_slotlock",
    "deferred cleanup of resource": "SELECT resource_id || ' after lease ' || lease_id FROM leases_debt",
    "room still in use of resource": "SELECT id FROM leases_resource WHERE used_slots <> 0 OR used_ram_mib <> 0",
}


def _ended_or_served() -> Finding:
    found = rows(
        "SELECT l.id, l.type, l.state, l.reason, l.message, l.group_id, l.need FROM leases_lease l"
        " WHERE l.state IN ('pending', 'acquired', 'released')"
    )
    total = rows("SELECT count(*) FROM leases_lease")[0][0]
    said = [
        f"lease {pk} ({type_}{f', group {group}' if group else ''}{f', needed as {need}' if need else ''})"
        f" is still {state}: {reason}: {message}"
        for pk, type_, state, reason, message, group, need in found
    ]
    return finding("every lease has ended or is served", total, said)


def _shares_of_holders() -> Finding:
    found = rows(
        "SELECT l.id, l.state, s.lease_id IS NOT NULL FROM leases_lease l LEFT JOIN leases_share s ON s.lease_id = l.id"
        " WHERE (l.state IN ('acquired', 'active', 'released')) <> (s.lease_id IS NOT NULL)"
    )
    said = [f"lease {pk} is {state} and has {'a' if has else 'no'} share" for pk, state, has in found]
    return finding("a lease has a share exactly while it holds", rows("SELECT count(*) FROM leases_share")[0][0], said)


_CLASSES = ("slots", "cpu_millicores", "ram_mib", "disk_mib")


def _used_is_shares() -> Finding:
    sums = ", ".join(f"coalesce(sum(s.{name}), 0)" for name in _CLASSES)
    used = ", ".join(f"r.used_{name}" for name in _CLASSES)
    wrong = rows(
        f"SELECT r.id, ARRAY[{used}], ARRAY[{sums}] FROM leases_resource r LEFT JOIN leases_share s"  # noqa: S608
        f" ON s.resource_id = r.id GROUP BY r.id HAVING ARRAY[{used}]::numeric[] <> ARRAY[{sums}]::numeric[]"
    )
    further = rows(
        "SELECT c.resource_id, c.name, c.used, coalesce(sum((s.extra ->> c.name)::bigint), 0) FROM leases_capacity c"
        " LEFT JOIN leases_share s ON s.resource_id = c.resource_id AND s.extra ? c.name"
        " GROUP BY c.id HAVING c.used <> coalesce(sum((s.extra ->> c.name)::bigint), 0)"
    )
    said = [f"resource {pk}: used {used}, shares {shares}" for pk, used, shares in wrong]
    said += [f"resource {pk}: {used} of {name} used, shares {shares}" for pk, name, used, shares in further]
    return finding("used = sum of shares", rows("SELECT count(*) FROM leases_resource")[0][0], said)


_TREE = {
    "resource {} is held whole by lease {}, and lease {} of others holds resource {} below it": """
        SELECT r.id, r.whole_lease_id, s.lease_id, b.id
        FROM leases_resource r CROSS JOIN LATERAL drydock_below(r.id) b JOIN leases_share s ON s.resource_id = b.id
        WHERE r.whole_lease_id IS NOT NULL AND NOT drydock_permits(r.whole_lease_id, b.path, s.lease_id)""",
    "resource {} names lease {} as the holder of the whole, it has no share": """
        SELECT r.id, r.whole_lease_id FROM leases_resource r WHERE r.whole_lease_id IS NOT NULL
        AND NOT EXISTS (SELECT FROM leases_share s WHERE s.lease_id = r.whole_lease_id AND s.resource_id = r.id)""",
    "resource {} does not name lease {}, which holds it exclusively": """
        SELECT r.id, s.lease_id FROM leases_resource r JOIN leases_share s ON s.resource_id = r.id AND s.exclusive
        WHERE r.whole_lease_id IS DISTINCT FROM s.lease_id""",
    "resource {} counts {} obstacles below it, there are {}": """
        SELECT * FROM (SELECT r.id, r.busy_below,
            (SELECT count(s.lease_id) FROM drydock_below(r.id) b JOIN leases_share s ON s.resource_id = b.id)
            + (SELECT coalesce(sum(drydock_obstructs(d)), 0)
                FROM drydock_below(r.id) b JOIN leases_resource d ON d.id = b.id) AS there
            FROM leases_resource r) x WHERE x.busy_below <> x.there""",
    "resource {} counts {} parts, there are {}": """
        SELECT * FROM (SELECT r.id, r.child_count,
            (SELECT count(*) FROM leases_resource c WHERE c.part_of_id = r.id) AS there
            FROM leases_resource r) x WHERE x.child_count <> x.there""",
    "resource {} is closed by {}, it should be closed by {}": """
        SELECT * FROM (SELECT r.id, r.closed_by, ARRAY(SELECT a.id FROM drydock_above(r.id) u
            JOIN leases_resource a ON a.id = u.id WHERE drydock_closes_to(a, r.id || ARRAY(
                SELECT v.id FROM drydock_above(r.id) v WHERE v.n < u.n)) ORDER BY u.n) AS above
            FROM leases_resource r) x
        WHERE x.closed_by <> x.above AND NOT EXISTS (
            SELECT FROM drydock_above(x.id) u JOIN leases_resource a ON a.id = u.id WHERE a.tree_stale)""",
}


def tree_violations() -> list[str]:
    """Where a lease on a whole and one on its part do not exclude each other, or a resource knows its tree wrongly."""
    return [sentence.format(*found) for sentence, sql in _TREE.items() for found in rows(sql)]


def _trees() -> Finding:
    related = rows("SELECT count(*) FROM leases_resource WHERE part_of_id IS NOT NULL OR child_count > 0")
    return finding("wholes and their parts exclude each other", related[0][0], tree_violations())


def _served_by_something() -> Finding:
    """An active lease stands on an active resource, which runs, and has its account there where its kind makes one."""
    running = {one.key for one in Cloud(PROVIDER).instances("running")}
    accounts = {(one.key, one.lease) for one in Cloud(PROVIDER).left() if one.what == "account"}
    found = rows(
        "SELECT l.id, l.type, r.id, r.state FROM leases_lease l JOIN leases_resource r ON r.id = l.resource_id"
        " WHERE l.state = 'active'"
    )
    said = []
    for lease, type_, resource, state in found:
        if state != "active" or key("r", resource) not in running:
            said.append(f"lease {lease} is active on resource {resource}, which is {state} or does not run")
        elif type_ == "fake_activated" and (key("r", resource), key("l", lease)) not in accounts:
            said.append(f"lease {lease} is active without its account on resource {resource}")
    return finding("what is served is there", len(found), said)


def _provider_agrees() -> Finding:
    there = {one.key: one.state for one in Cloud(PROVIDER).instances()}
    wanted = {key("r", pk): state for pk, state in rows("SELECT id, state FROM leases_resource WHERE gone_at IS NULL")}
    said = [f"instance {name} is {there[name]} and has no resource" for name in sorted(there.keys() - wanted)]
    said += [f"resource {name} is {wanted[name]} and has no instance" for name in sorted(wanted.keys() - there)]
    said += [f"resource {name} is {state}" for name, state in sorted(wanted.items()) if state != "active"]
    return finding("the provider's instances equal the resources", len(wanted), said)


def history(orders: Sequence[Order]) -> list[Finding]:
    """What must have been so at every instant."""
    looks = (_once_each, _all_or_nothing, _never_too_much, _never_unclean, _no_event_missing, _in_time_order)
    return [look(orders) for look in looks]


def _once_each(orders: Sequence[Order]) -> Finding:
    """Every order became exactly what it asked for, however often it was asked."""
    single = dict(
        rows("SELECT idempotency_key, count(*) FROM leases_lease WHERE idempotency_key IS NOT NULL GROUP BY 1")
    )
    groups = dict(
        rows(
            "SELECT g.idempotency_key, count(l.id) FROM leases_leasegroup g"
            " LEFT JOIN leases_lease l ON l.group_id = g.id GROUP BY 1"
        )
    )
    said = []
    for order in orders:
        got = (groups if order.group else single).get(order.key, 0)
        too_late = order.lasts is not None and got == 0
        if got != len(order.requests) and not too_late:
            said.append(f"{order.key} asked for {len(order.requests)} and became {got}")
    return finding("every request became one lease, once", len(orders), said)


def _all_or_nothing(orders: Sequence[Order]) -> Finding:
    """All of a group were granted in one transaction, or none of it ever."""
    found = rows(
        "SELECT l.group_id, l.id, (SELECT j.transaction::text FROM chaos.states j WHERE j.what = 'lease'"
        " AND j.id = l.id AND j.to_state = 'acquired' ORDER BY j.n LIMIT 1) FROM leases_lease l"
        " WHERE l.group_id IS NOT NULL"
    )
    granted: dict[int, set[str | None]] = defaultdict(set)
    for group, _, transaction in found:
        granted[group].add(transaction)
    said = [f"group {group} was granted in parts: {len(seen)}" for group, seen in granted.items() if len(seen) > 1]
    return finding("groups are granted whole or not at all", LeaseGroup.objects.count(), said)


def _never_too_much(orders: Sequence[Order]) -> Finding:
    """The shares of each resource one after the other, as they came and went: at no instant more than there was."""
    found = rows(
        "SELECT resource, lease, sign, ARRAY[slots, cpu, ram, disk], extra,"
        " ARRAY[total_slots, total_cpu, total_ram, total_disk] FROM chaos.shares ORDER BY n"
    )
    further = {(pk, name): total for pk, name, total in rows("SELECT resource_id, name, total FROM leases_capacity")}
    said, used, open_ = [], defaultdict[tuple[int, Any], int](int), set[int]()
    for resource, lease, sign, amounts, extra, totals in found:
        further_asked = _json(extra)
        asked: dict[Any, int] = {**dict(zip(_CLASSES, amounts, strict=True)), **further_asked}
        limits: dict[Any, int] = {name: further.get((resource, name), 0) for name in further_asked}
        limits |= zip(_CLASSES, totals, strict=True)
        for name, amount in asked.items():
            used[resource, name] += sign * amount
            if not 0 <= used[resource, name] <= limits[name] and (sign > 0 or used[resource, name] < 0):
                said.append(
                    f"resource {resource}: {used[resource, name]} of {limits[name]} ({name}) with lease {lease}"
                )
        if (lease in open_) == (sign > 0):
            said.append(f"lease {lease} {'took a second' if sign > 0 else 'returned a missing'} share")
        (open_.add if sign > 0 else open_.discard)(lease)
    return finding("no capacity was given twice or lost, at any instant", len(found), said)


def _never_unclean(orders: Sequence[Order]) -> Finding:
    """No lease took a share of something that had to be cleaned first."""
    taken = rows("SELECT resource, lease FROM chaos.shares WHERE sign > 0 AND unclean ORDER BY n")
    said = [f"lease {lease} took a share of resource {resource} before it was clean" for resource, lease in taken]
    cleanings = rows("SELECT count(*) FROM leases_event WHERE kind = 'resource.owes'")[0][0]
    return finding("no lease is on something that must be cleaned first", cleanings, said)


def _json(value: Any) -> dict[str, int]:
    return dict(json.loads(value)) if isinstance(value, str) else dict(value)


def _no_event_missing(orders: Sequence[Order]) -> Finding:
    """Events of each row, one after the other, against what the journal saw: every change, from -> to, unbroken."""
    told: dict[tuple[str, int], list[tuple[str, str]]] = defaultdict(list)
    said: list[str] = []
    for kind, lease, resource, before, after, lasted in rows(
        "SELECT kind, lease_id, resource_id, from_state, to_state, duration FROM leases_event WHERE to_state <> ''"
        " ORDER BY id"
    ):
        what = kind.partition(".")[0]
        told[what, lease if what == "lease" else resource].append((before, after))
        if before and lasted is None:
            said.append(f"the event {kind} of {what} {lease or resource} does not say how long {before} lasted")
    seen: dict[tuple[str, int], list[tuple[str, str]]] = defaultdict(list)
    for what, pk, before, after in rows("SELECT what, id, from_state, to_state FROM chaos.states ORDER BY n"):
        seen[what, pk].append((before, after))
    said += [f"{what} {pk}: events tell {told[what, pk]}, it went {way}" for (what, pk), way in seen.items()
             if told[what, pk] != way]  # fmt: skip
    said += [f"{what} {pk}: its events are no chain: {way}" for (what, pk), way in told.items() if not _chain(way)]
    said += _last_differs(seen)
    return finding("no event is missing", sum(map(len, told.values())), said)


def _chain(way: list[tuple[str, str]]) -> bool:
    return way[0][0] == "" and all(one[1] == two[0] for one, two in pairwise(way))


def _last_differs(seen: dict[tuple[str, int], list[tuple[str, str]]]) -> list[str]:
    now: dict[tuple[str, int], str] = {("lease", pk): state for pk, state in rows("SELECT id, state FROM leases_lease")}
    now |= {("resource", pk): state for pk, state in rows("SELECT id, state FROM leases_resource")}
    return [
        f"{what} {pk} is {state}, its history ends with {seen[what, pk][-1:]}"
        for (what, pk), state in now.items()
        if not seen[what, pk] or seen[what, pk][-1][1] != state
    ]


def _in_time_order(orders: Sequence[Order]) -> Finding:
    """A worker whose clock is wrong writes no wrong times: one after the other, and near their events."""
    found = rows(
        "SELECT id, created_at, acquired_at, active_at, ended_at, since FROM leases_lease"
        " WHERE NOT (created_at <= coalesce(acquired_at, active_at, ended_at, since)"
        " AND coalesce(acquired_at, created_at) <= coalesce(active_at, ended_at, since)"
        " AND coalesce(active_at, created_at) <= coalesce(ended_at, since)"
        " AND (ended_at IS NULL OR ended_at BETWEEN since - interval '5 s' AND since + interval '5 s'))"
    )
    said = [
        f"lease {pk}: asked {asked:%T}, granted {got}, active {was}, ended {end}, its event {since:%T}"
        for pk, asked, got, was, end, since in found
    ]
    dying = rows(
        "SELECT r.id, r.created_at, r.dies_at, b.max_lifetime FROM leases_resource r"
        " JOIN blueprints_blueprint b ON b.id = r.blueprint_id WHERE b.max_lifetime IS NOT NULL AND (r.dies_at IS NULL"
        " OR abs(extract(epoch FROM r.dies_at - r.created_at - b.max_lifetime)) > 5)"
    )
    said += [f"resource {pk}, made {made:%T}, dies {dies}; it may live {life}" for pk, made, dies, life in dying]
    return finding("times are the database's", rows("SELECT count(*) FROM leases_lease")[0][0], said)
