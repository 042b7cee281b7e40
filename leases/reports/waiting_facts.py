"""Read the facts that explain why leases are waiting, for any number of leases in a few statements.

The first statement reads the facts that do not depend on the request class: blueprints, quotas, budgets, groups, the
heads of the queues, and the installation. The second reads the resources of each blueprint for each request class, and
the places in the queue. It is repeated for every `_CLASSES` request classes of the leases.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model

from blueprints import registry
from blueprints.amounts import CLASSES
from drydock.core.errors import DrydockError
from leases.engine.catalogue import drafts
from leases.engine.core.database import rows
from leases.engine.placement import budgets, pending
from leases.engine.placement import quotas as quota_checks
from leases.engine.placement.claims import Obstacle
from leases.engine.placement.constraints import PlacementRequest, Sql, allowed, is_free, is_obstructed, suits, takes_all
from leases.models import Lease
from leases.reports.cleaning import IS_CLEANED

_CLASSES = 40
"""Number of request classes that one statement examines."""
_SUITABLE = 100
"""Number of suitable resources of a blueprint that are examined for one request class."""
_HOLDERS = 20
_BUILDS = 20


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A lease that holds room which a waiting lease could use."""

    id: int
    owner_id: int | None
    owner: str
    until: dt.datetime | None


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """The cleaning of a resource, without which it is not leased again. `failure` is the failure of the last attempt."""

    running: bool
    percent: int | None
    sentence: str
    failure: str


@dataclass(frozen=True, kw_only=True)
class Room:
    """The resources of a blueprint that could serve a request class, and how many of them cannot serve it now."""

    authorized: bool = True
    suitable: int = 0
    free: int = 0
    """Number of suitable resources that have room now, degraded ones included."""
    degraded: int = 0
    """Number of these that are degraded."""
    drained: int = 0
    quarantined: int = 0
    in_maintenance: int = 0
    unclean: int = 0
    """Number of suitable resources in maintenance that must be cleaned."""
    cleaning: Cleaning | None = None
    """The cleaning of the first of these."""
    reserved: int = 0
    silent: int = 0
    """Number of suitable resources that are in service and do not answer."""
    obstructed: int = 0
    """Number of suitable resources in service that cannot be leased now because of an ancestor or a part."""
    obstructed_name: str = ""
    obstacle: Obstacle | None = None
    """The obstacle of the first obstructed resource, `obstructed_name`."""
    cost: float | None = None
    """The lowest hourly cost of the lease on a resource with room, in US dollars. None if unknown."""
    name: str = ""
    id: int = 0
    note: str = ""
    """The name, id and note of the first suitable resource. If `suitable` is 1, it is the only one."""
    most_free: Mapping[str, int] = field(default_factory=dict)
    """The largest amount of each class that is free on any one suitable resource in service."""
    used: int = 0
    slots: int = 0
    """Total slots of the suitable resources; `used_slots` of them are in use."""
    largest: int = 0
    """Number of slots of the largest suitable resource."""
    more: bool = False
    """True if there are more suitable resources than were examined."""
    holders: tuple[Holder, ...] = ()
    """The leases on the suitable resources that end first. Leases without an end come last."""


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A blueprint of the requested type in its present state."""

    id: int
    name: str
    kind: str
    type: str
    enabled: bool
    drained: bool
    max_resources: int | None
    max_builds: int
    there: int
    building: int
    leaving: int
    errors: tuple[Mapping[str, Any], ...]
    requested: tuple[Mapping[str, Any], ...]
    """Pending requests for authorization: `id`, `user`, `created_at`."""
    budget: tuple[float, float] | None
    """The hourly budget of the blueprint, and the current cost of everything that it has built."""
    build_seconds: float | None
    """The average duration of the blueprint's latest builds, in seconds."""
    builds: bool = True
    """True if the kind of the blueprint can build."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """A quota of a user or a group: the maximum for each of `quotas.LIMITS`, and the amounts in use."""

    user: int | None
    group: int | None
    holder: str
    most: tuple[int | None, ...]
    used: tuple[int, ...]
    most_extra: Mapping[str, int] = field(default_factory=dict)
    used_extra: Mapping[str, int] = field(default_factory=dict)
    """The same for the additional classes that it limits."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member of a group of leases."""

    id: int
    group: int
    state: str
    reason: str
    type: str
    slots: int
    same: str
    """What the members of its group must share."""
    reserved: str
    """The name of the resource that is reserved for the lease, or that the lease has."""


@dataclass(frozen=True, kw_only=True)
class Queue:
    """The pending leases with the same request, which are served in order, and the lease at their head."""

    id: int
    owner_id: int | None
    owner: str
    verdicts: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts that explain why leases are waiting."""

    now: dt.datetime
    attempts: int
    """Number of times that a lease is tried before it breaks."""
    problem: str
    """The reason why the installation is suspended; empty if it is not."""
    unattended: frozenset[int]
    """Ids of leases that wait while no worker or sweep was seen recently."""
    backends: Mapping[int, Backend]
    quotas: tuple[Limits, ...]
    budgets: tuple[tuple[int | None, int | None, str, float, float], ...]
    """Budgets as (user, group, holder, maximum, used)."""
    groups: Mapping[int, tuple[Member, ...]]
    heads: Mapping[tuple[str, str], Queue]
    """The queue for each (type, request class), with its head."""
    rooms: Mapping[tuple[str, str], Mapping[int, Room]]
    """The room of each blueprint by its id, for each (type, request class)."""
    places: Mapping[int, int]
    """The place of each lease among those that could use the same blueprints. The first place is 1."""


def read(found: Sequence[Lease]) -> Facts:
    """Read the facts about waiting leases."""
    classes = {(one.type, one.shape): one for one in reversed(found)}
    standing = _standing(found, classes)
    heads = {(one["type"], one["shape"]): _head(one) for one in standing["heads"] or ()}
    backends = {one["id"]: _backend(one) for one in standing["blueprints"] or ()}
    rooms, places = _details(found, classes, heads, backends)
    return Facts(
        now=_moment(standing["now"]), attempts=settings.DRYDOCK.bounce_limit + 1, problem=standing["problem"] or "",
        unattended=frozenset(one.pk for one in found) if standing["unattended"] else frozenset(),
        backends=backends, quotas=tuple(map(_limits, standing["quotas"] or ())),
        budgets=tuple((b["user"], b["group"], b["holder"], b["most"], b["used"]) for b in standing["budgets"] or ()),
        groups=_grouped(standing["members"] or ()), heads=heads, rooms=rooms,
        places=places,
    )  # fmt: skip


def _moment(text: Any) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def _users() -> dict[str, Any]:
    """Return the name of the table of users, of its key column, and of the column with their names."""
    users = get_user_model()
    name = users._meta.get_field(users.USERNAME_FIELD).column  # type: ignore[union-attr]
    return {"users": users._meta.db_table, "key": users._meta.pk.column, "name": name}


def _head(one: Mapping[str, Any]) -> Queue:
    return Queue(id=one["id"], owner_id=one["owner_id"], owner=one["owner"], verdicts=tuple(one["verdicts"] or ()))


_HEADS = """
    SELECT json_agg(json_build_object('type', l.type, 'shape', l.shape, 'id', l.id, 'owner_id', l.owner_id,
        'owner', coalesce(u.{name}, ''), 'verdicts', l.verdicts))
    FROM unnest(%(of_types)s::varchar[], %(shapes)s::varchar[]) AS s(type, shape) CROSS JOIN LATERAL (
        SELECT * FROM leases_lease w WHERE w.state = 'pending' AND NOT w.parked AND w.group_id IS NULL
            AND w.type = s.type AND w.shape >= s.shape AND w.shape <= s.shape
            AND w.reason <> 'waiting_budget' ORDER BY w.shape, w.rank, w.id LIMIT 1) l
    LEFT JOIN {users} u ON u.{key} = l.owner_id"""
"""Skips leases that a budget of their owner stops, as the allocation of room does."""
_STANDING = """
    SELECT json_build_object('now', statement_timestamp(),
    'problem', (SELECT problem FROM leases_installation WHERE id = 1),
    'unattended', NOT EXISTS (SELECT FROM leases_worker WHERE seen_at > clock_timestamp() - %(lost)s * interval '1 s')
        AND NOT EXISTS (SELECT FROM leases_installation WHERE swept_at > clock_timestamp() - %(lost)s * interval '1 s'),
    'blueprints', (SELECT json_agg(json_build_object(
        'id', b.id, 'name', b.name, 'kind', b.kind, 'type', b.resource_type, 'enabled', b.enabled, 'drained', b.drained,
        'max_resources', b.max_resources, 'max_builds', b.max_builds,
        'there', (SELECT count(*) FROM (SELECT FROM leases_resource r WHERE r.blueprint_id = b.id
            AND r.gone_at IS NULL LIMIT coalesce(b.max_resources, 0)) x),
        'building', (SELECT count(*) FROM (SELECT FROM leases_resource r WHERE r.blueprint_id = b.id
            AND r.gone_at IS NULL AND r.state = 'pending' LIMIT b.max_builds) x),
        'leaving', (SELECT count(*) FROM (SELECT FROM leases_resource r WHERE r.blueprint_id = b.id
            AND r.gone_at IS NULL AND r.state IN ('released', 'broken') LIMIT 1000) x),
        'errors', (SELECT json_agg(json_build_object('scope', e.scope, 'key', e.key, 'message', e.message,
            'until', e.until)) FROM (SELECT * FROM blueprints_rememberederror e WHERE e.blueprint_id = b.id
            AND (e.until IS NULL OR e.until > clock_timestamp()) ORDER BY e.created_at DESC LIMIT 50) e),
        'requested', (SELECT json_agg(json_build_object('id', a.id, 'user', a.user_id, 'created_at', a.created_at))
            FROM leases_authorization a WHERE a.blueprint_id = b.id AND a.state = 'requested'
            AND a.user_id = ANY(%(owners)s)),
        'budget', (SELECT json_build_array(g.max_hourly, (SELECT coalesce(sum(r.price), 0) FROM leases_resource r
            WHERE r.blueprint_id = b.id AND r.gone_at IS NULL)) FROM leases_budget g WHERE g.blueprint_id = b.id),
        'build_seconds', (SELECT avg(extract(epoch FROM e.duration))::float8 FROM (
            SELECT id FROM leases_resource WHERE blueprint_id = b.id ORDER BY id DESC LIMIT {builds}) r
            JOIN leases_event e ON e.resource_id = r.id AND e.from_state = 'pending' AND e.to_state = 'active')
        )) FROM blueprints_blueprint b WHERE b.resource_type = ANY(%(types)s) AND b.removed_at IS NULL),
    'quotas', (SELECT json_agg(json_build_object('user', q.user_id, 'group', q.group_id,
        'holder', coalesce(u.{name}, g.name), 'most', json_build_array(
            q.max_leases, q.max_slots, q.max_cpu_millicores, q.max_ram_mib, q.max_disk_mib),
        'used', CASE WHEN q.user_id IS NOT NULL THEN (SELECT json_build_array(a, b, c, d, e)
                FROM ({used_user} q.user_id) x(a, b, c, d, e))
            ELSE (SELECT json_build_array(a, b, c, d, e) FROM ({used_group} q.group_id) x(a, b, c, d, e)) END,
        'most_extra', q.max_extra, 'used_extra', CASE WHEN q.max_extra = '{{}}' THEN '{{}}'::json
            WHEN q.user_id IS NOT NULL THEN (SELECT json_object_agg(n, v) FROM ({extra_user}) x(n, v))
            ELSE (SELECT json_object_agg(n, v) FROM ({extra_group}) x(n, v)) END))
        FROM leases_quota q LEFT JOIN {users} u ON u.{key} = q.user_id LEFT JOIN auth_group g ON g.id = q.group_id
        WHERE q.user_id = ANY(%(owners)s) OR q.group_id = ANY(%(groups)s)),
    'budgets', (SELECT json_agg(json_build_object('user', b.user_id, 'group', b.group_id,
        'holder', coalesce(u.{name}, g.name), 'most', b.max_hourly,
        'used', CASE WHEN b.user_id IS NOT NULL THEN ({spent_user} b.user_id) ELSE ({spent_group} b.group_id) END))
        FROM leases_budget b LEFT JOIN {users} u ON u.{key} = b.user_id LEFT JOIN auth_group g ON g.id = b.group_id
        WHERE b.user_id = ANY(%(owners)s) OR b.group_id = ANY(%(groups)s)),
    'heads', ({heads}),
    'members', (SELECT json_agg(json_build_object('id', l.id, 'group', l.group_id, 'state', l.state,
        'reason', l.reason, 'type', l.type, 'slots', l.slots, 'same', (
            SELECT g.same FROM leases_leasegroup g WHERE g.id = l.group_id), 'reserved', coalesce((SELECT min(r.name) FROM leases_resource r
            WHERE r.reserved_for_id = l.id OR r.id = l.resource_id), '')) ORDER BY l.id)
        FROM leases_lease l WHERE l.group_id = ANY(%(members)s)))"""


def _standing(found: Sequence[Lease], classes: Iterable[tuple[str, str]]) -> Any:
    used, extra, spent = quota_checks.USED, quota_checks.USED_EXTRA, budgets.USED
    types, shapes = zip(*classes, strict=True)
    sql = _STANDING.format(
        **_users(), heads=_HEADS.format(**_users()), builds=_BUILDS, used_user=used.format(whose="l.owner_id").removesuffix("%s"),
        used_group=used.format(whose="l.charged_group_id").removesuffix("%s"),
        extra_user=extra.format(whose="l.owner_id").replace("%s", "q.user_id"),
        extra_group=extra.format(whose="l.charged_group_id").replace("%s", "q.group_id"),
        spent_user=spent.format(whose="l.owner_id"), spent_group=spent.format(whose="l.charged_group_id"),
    )  # fmt: skip
    given = {
        "of_types": list(types), "shapes": list(shapes), "lost": settings.DRYDOCK.lost_worker_seconds, "types": sorted({one.type for one in found}),
        "owners": sorted({one.owner_id for one in found if one.owner_id is not None}),
        "groups": sorted({one.charged_group_id for one in found if one.charged_group_id is not None}),
        "members": sorted({one.group_id for one in found if one.group_id is not None}),
    }  # fmt: skip
    return pending.read_json(rows(sql, given)[0][0])


def _backend(one: Mapping[str, Any]) -> Backend:
    known: dict[str, Any] = dict(one)
    known |= {name: tuple(one[name] or ()) for name in ("errors", "requested")}
    known["builds"] = _builds(one["kind"])
    known["budget"] = None if one["budget"] is None else tuple(one["budget"])
    return Backend(**known)


def _builds(kind: str) -> bool:
    """Return whether a kind can build.

    A kind that is not installed here counts as one that can, as it may elsewhere.
    """
    try:
        return drafts.builds(registry.kind(kind))
    except DrydockError:
        return True


def _limits(one: Mapping[str, Any]) -> Limits:
    return Limits(
        user=one["user"], group=one["group"], holder=one["holder"], most=tuple(one["most"]),
        used=tuple(int(n) for n in one["used"]), most_extra=one["most_extra"] or {},
        used_extra={name: int(n) for name, n in (one["used_extra"] or {}).items()},
    )  # fmt: skip


def _grouped(found: Iterable[Mapping[str, Any]]) -> dict[int, tuple[Member, ...]]:
    grouped: dict[int, list[Member]] = {}
    for one in found:
        grouped.setdefault(one["group"], []).append(Member(**one))
    return {pk: tuple(members) for pk, members in grouped.items()}


def placement(row: Lease) -> PlacementRequest:
    """Return the placement request of a pending lease."""
    return pending.PendingLease(tuple(getattr(row, name) for name in pending.FIELDS)).placement


def _details(
    found: Sequence[Lease], classes: Mapping[tuple[str, str], Lease], heads: Mapping[tuple[str, str], Queue],
    backends: Mapping[int, Backend],
) -> tuple[dict[tuple[str, str], dict[int, Room]], dict[int, int]]:  # fmt: skip
    """Return the room of each blueprint for each request class, and the place of each lease in its queue."""
    rooms: dict[tuple[str, str], dict[int, Room]] = {key: {} for key in classes}
    keys, places = list(classes), dict[int, int]()
    queue, of = _places_sql(found, heads, backends)
    for start in range(0, len(keys), _CLASSES):
        some = keys[start : start + _CLASSES]
        pieces = [_room_sql(n, placement(classes[key])) for n, key in enumerate(some)] + ([] if start else [queue])
        sql = " UNION ALL ".join(f"({piece.text})" for piece in pieces)
        for n, pk, told in rows(sql, tuple(x for piece in pieces for x in piece.params)):
            if n < 0:
                places[pk] = max(1, int(pending.read_json(told)[of[pk]]))
            else:
                rooms[some[n]][pk] = _room(pending.read_json(told))
    return rooms, places


_CLEANING = f"""
    SELECT jsonb_build_object('running', n.id IS NOT NULL, 'percent', n.percent, 'sentence', coalesce(n.sentence, ''),
        'failure', d.message)
    FROM leases_debt d LEFT JOIN leases_run n ON n.resource_id = d.resource_id AND {IS_CLEANED}
    WHERE d.resource_id = r.id ORDER BY d.tries DESC, d.id LIMIT 1"""


def _room_sql(n: int, asked: PlacementRequest) -> Sql:
    """Return SQL for the room of each blueprint for one request class."""
    may, fit, free = allowed(asked), suits(asked), is_free(replace(asked, may_be_degraded=True))
    whole, obstructed = takes_all(asked), is_obstructed(asked)
    users = _users()
    part = "1.0" if asked.exclusive else f"least({asked.amounts.slots}::float8 / greatest(r.total_slots, 1), 1)"
    most = ", ".join(
        f"'{name}', max(r.total_{name} - r.used_{name}) FILTER (WHERE r.in_service)" for name in CLASSES
    )  # fmt: skip
    named = Sql("TRUE")
    if asked.allowed_blueprints is not None:
        named &= Sql("b.id = ANY(%s)", (list(asked.allowed_blueprints),))
    if asked.excluded_blueprints:
        named &= Sql("b.id <> ALL(%s)", (list(asked.excluded_blueprints),))
    suitable = f"""
        SELECT r.*, CASE WHEN r.in_maintenance THEN ({_CLEANING}) END AS cleaning, {free.text} AS has_room, {whole.text} AS takes_all, {obstructed.text} AS obstructed, NOT (r.drained OR r.quarantined OR r.in_maintenance OR r.suspect_since IS NOT NULL) AS in_service,
            CASE WHEN r.price IS NOT NULL THEN r.price * {part} WHEN r.offer = '' THEN 0 END AS cost
        FROM leases_resource r WHERE r.blueprint_id = b.id AND r.gone_at IS NULL
            AND r.state IN ('pending', 'active') AND {fit.text} ORDER BY r.id LIMIT {_SUITABLE}"""
    text = f"""
        SELECT {n}, b.id, jsonb_build_object('authorized', {may.text}, 'suitable', count(r.id),
            'free', count(*) FILTER (WHERE r.has_room),
            'degraded', count(*) FILTER (WHERE r.has_room AND r.health <> 'ok'), 'drained', count(*) FILTER (WHERE r.drained),
            'quarantined', count(*) FILTER (WHERE r.quarantined AND NOT r.drained),
            'in_maintenance', count(*) FILTER (WHERE r.in_maintenance AND NOT r.drained AND NOT r.quarantined),
            'unclean', count(r.cleaning) FILTER (WHERE NOT r.drained AND NOT r.quarantined),
            'cleaning', (array_agg(r.cleaning ORDER BY r.id) FILTER (WHERE r.cleaning IS NOT NULL))[1],
            'reserved', count(*) FILTER (WHERE r.in_service AND r.reserved_for_id IS NOT NULL AND NOT r.has_room),
            'silent', count(*) FILTER (WHERE r.suspect_since IS NOT NULL AND NOT r.drained AND NOT r.quarantined
                AND NOT r.in_maintenance),
            'obstructed', count(*) FILTER (WHERE r.in_service AND r.obstructed AND NOT r.has_room),
            'obstacle', (array_agg(json_build_array(r.name, r.id, r.takes_all) ORDER BY r.id)
                FILTER (WHERE r.in_service AND r.obstructed AND NOT r.has_room))[1],
            'cost', min(r.cost) FILTER (WHERE r.has_room), 'first', (array_agg(json_build_array(r.name, r.id, r.note)
                ORDER BY r.id) FILTER (WHERE r.id IS NOT NULL))[1],
            'most_free', json_build_object({most}), 'used', coalesce(sum(r.used_slots), 0),
            'slots', coalesce(sum(r.total_slots), 0), 'largest', coalesce(max(r.total_slots), 0), 'more',
            count(r.id) >= {_SUITABLE}, 'holders', (
                SELECT json_agg(h) FROM (SELECT h.id, h.owner_id, coalesce(u.{users["name"]}, '') AS owner, h.until
                    FROM leases_share s JOIN leases_lease h ON h.id = s.lease_id
                    LEFT JOIN {users["users"]} u ON u.{users["key"]} = h.owner_id
                    WHERE s.resource_id = ANY(array_agg(r.id)) ORDER BY h.until, h.id LIMIT {_HOLDERS}) h))
        FROM blueprints_blueprint b LEFT JOIN LATERAL ({suitable}) r ON TRUE
        WHERE b.resource_type = %s AND b.removed_at IS NULL AND {named.text} GROUP BY b.id"""
    named_obstacle = f"""
        SELECT n, id, (CASE WHEN said ->> 'obstacle' IS NULL THEN said ELSE said || jsonb_build_object(
            'obstructed_name', said -> 'obstacle' ->> 0, 'obstacle',
            drydock_obstacle((said -> 'obstacle' ->> 1)::bigint, (said -> 'obstacle' ->> 2)::boolean)) END)::json
        FROM ({text}) room(n, id, said)"""
    params = (*may.params, *free.params, *whole.params, *obstructed.params, *fit.params, asked.type, *named.params)
    return Sql(named_obstacle, params)


def _room(told: Mapping[str, Any]) -> Room:
    name, pk, note = told["first"] or ("", 0, "")
    same = ("authorized", "suitable", "free", "drained", "quarantined", "in_maintenance", "reserved", "silent", "cost", "used",
            "slots", "largest", "more", "obstructed", "degraded", "unclean")  # fmt: skip
    return Room(
        **{one: told[one] for one in same}, cleaning=Cleaning(**told["cleaning"]) if told["cleaning"] else None,
        obstacle=Obstacle.of(told["obstacle"]),
        obstructed_name=told.get("obstructed_name", ""), name=name, id=pk, note=note,
        most_free={name: n or 0 for name, n in told["most_free"].items()},
        holders=tuple(
            Holder(
                id=h["id"], owner_id=h["owner_id"], owner=h["owner"],
                until=None if h["until"] is None else _moment(h["until"]),
            )
            for h in told["holders"] or ()
        ),
    )  # fmt: skip


_PLACES = """
    WITH head AS (SELECT DISTINCT ON (type, shape) type, shape, ARRAY(SELECT v ->> 'blueprint'
            FROM jsonb_array_elements(verdicts) v WHERE v ->> 'answer' <> 'no') AS names,
            jsonb_array_length(verdicts) = 0 AS undecided, allowed_blueprints AS allowed
        FROM leases_lease w WHERE w.state = 'pending' AND w.type = ANY(%s)
        ORDER BY type, shape, jsonb_array_length(verdicts) = 0, w.rank, w.id),
    placed AS (SELECT w.id, w.type, {counts} FROM leases_lease w JOIN head h USING (type, shape)
        WHERE w.state = 'pending' AND w.type = ANY(%s) WINDOW before AS (PARTITION BY w.type ORDER BY w.rank, w.id))
    SELECT -1, id, json_build_array({chosen}) FROM placed p WHERE id = ANY(%s)"""
_COMPETES = """
    count(*) FILTER (WHERE (h.undecided AND (h.allowed IS NULL OR h.allowed && %s::bigint[]))
        OR (NOT h.undecided AND h.names && %s::text[])) OVER before AS n{n}"""


def serving(row: Lease, head: Queue | None, backends: Mapping[int, Backend]) -> frozenset[str]:
    """Return the names of the blueprints that may serve a lease, as far as is known."""
    said = tuple(row.verdicts or ()) or (head.verdicts if head is not None else ())
    if said:
        return frozenset(str(one["blueprint"]) for one in said if one.get("answer") != "no")
    return frozenset(one.name for one in backends.values() if one.type == row.type and pk_allowed(row, one.id))


def pk_allowed(row: Lease, blueprint: int) -> bool:
    """Return whether the request allows a blueprint: it names this blueprint or none, and does not exclude it."""
    listed = row.allowed_blueprints is None or blueprint in row.allowed_blueprints
    return listed and blueprint not in row.excluded_blueprints


def _places_sql(
    found: Sequence[Lease], heads: Mapping[tuple[str, str], Queue], backends: Mapping[int, Backend]
) -> tuple[Sql, dict[int, int]]:
    """Return SQL for the places in the queue, and the number of the set of blueprints of each lease.

    Places are counted among all leases that wait for the types, separately for each set of blueprints that one of
    the leases could use.
    """
    of = {one.pk: serving(one, heads.get((one.type, one.shape)), backends) for one in found}
    sets = sorted(set(of.values()), key=sorted)
    numbers = {one.name: one.id for one in backends.values()}
    counts = ", ".join(_COMPETES.replace("{n}", str(n)) for n in range(len(sets)))
    sql = _PLACES.format(counts=counts, chosen=", ".join(f"n{n}" for n in range(len(sets))))
    types = sorted({one.type for one in found})
    pairs = ([[numbers[name] for name in one if name in numbers], sorted(one)] for one in sets)
    at = {one: n for n, one in enumerate(sets)}
    params = (types, *(x for pair in pairs for x in pair), types, [one.pk for one in found])
    return Sql(sql, params), {pk: at[one] for pk, one in of.items()}
