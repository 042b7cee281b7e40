"""Place a group in one host: choose a host that can serve all members, by itself or with the resources below it.

With `same: whole`, a member can also be served by a carrier in the host, on which a resource is then built for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from django.conf import settings

from blueprints.localities import LEVELS
from leases.engine.core.database import rows, run
from leases.engine.placement.assignment import (
    Option,
    Rule,
    Vicinity,
    assign,
    distance_between,
    fitting,
    nearest,
    options_for,
    vicinities,
)
from leases.engine.placement.claims import Obstacle
from leases.engine.placement.constraints import PlacementRequest
from leases.engine.scheduling.place import RESERVE

_PAGES = (1, 16, 256)
"""The sizes of the searches for hosts, in candidate limits. The next one runs only if the one before found no host."""
_LISTED = 20
"""The maximum number of hosts whose prospects are listed."""
_SHOWN = 3
"""Up to this many hosts are named to a group that waits."""


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """Why no host can serve a group now, and which hosts could do so later."""

    hosts: tuple[int, ...]
    """The hosts that could serve the group if nothing in them were leased."""
    message: str


@dataclass(frozen=True, kw_only=True)
class _Host:
    """A host with the resources in it that could serve each member. Members that ask for the same share one list."""

    id: int
    options: list[list[Option]]

    def has_enough(self, requests: list[PlacementRequest]) -> bool:
        """Return whether each distinct request has enough resources, if the other requests use none of these."""
        wanted = Counter(map(id, self.options))
        distinct = {id(one): (request, one) for request, one in zip(requests, self.options, strict=True)}
        return all(fitting(request, one) >= wanted[key] for key, (request, one) in distinct.items())


def choose(requests: list[PlacementRequest], rule: Rule) -> list[Option] | None:
    """Return resources for all members in one host, or None if no host can serve them all.

    If the members should be near one another, compares the first suitable hosts and chooses the one whose resources have
    the shortest distance.
    """
    for hosts in _found(requests, rule, when_empty=False):
        if (choice := _best(hosts, requests, rule)) is not None:
            return choice
    return None


def _best(hosts: list[_Host], requests: list[PlacementRequest], rule: Rule) -> list[Option] | None:
    able = [host for host in hosts if host.has_enough(requests)]
    if rule.near:
        return _nearest(able, requests, rule)
    return next((found for host in able if (found := assign(host.options, requests, rule)) is not None), None)


def _nearest(hosts: list[_Host], requests: list[PlacementRequest], rule: Rule) -> list[Option] | None:
    """Return the nearest resources. Hosts that cannot have nearer ones than those already found are left out."""
    best, farness = None, LEVELS + 1
    shared = [(host, vicinities(host.options, requests, rule)) for host in hosts]
    for host, narrow in sorted(shared, key=lambda one: _bound(one[1])):
        if farness <= _bound(narrow):
            break
        found = nearest(host.options, requests, rule, narrow)
        if found is not None and (far := _farness(found, rule)) < farness:
            best, farness = found, far
    return best


def _bound(shared: Sequence[Vicinity]) -> int:
    return shared[0].farness if shared else LEVELS


def _farness(chosen: Sequence[Option], rule: Rule) -> int:
    apart = distance_between(chosen, rule)
    return apart.farness if apart is not None else -1


def _found(requests: list[PlacementRequest], rule: Rule, *, when_empty: bool) -> Iterator[list[_Host]]:
    """Yield hosts in which each member finds a resource, page by page."""
    kinds, kind_of = _kinds(requests)
    if rule.held:
        yield _hosts([rule.held[0].resource_id], kinds, kind_of, rule, when_empty=when_empty)
        return

    def options(kind: PlacementRequest, limit: int | None = None) -> list[Option]:
        existing = options_for(kind, limit=limit, when_empty=when_empty)
        return [*existing, *rule.carriers_of(kind, when_empty=when_empty)[:limit]]

    firsts = [options(kind) for kind in kinds]
    if not all(firsts):
        return
    rarest = min(range(len(kinds)), key=lambda n: (len(firsts[n]), not kinds[n].exclusive))
    limit, tried = settings.DRYDOCK.candidate_limit, set[int]()
    for page in _PAGES:
        seeds = firsts[rarest] if page == 1 else options(kinds[rarest], page * limit)
        new = [one.resource_id for one in seeds if one.resource_id not in tried]
        tried.update(new)
        yield _hosts(new, kinds, kind_of, rule, when_empty=when_empty)
        if len(seeds) < page * limit:
            return


def _kinds(requests: Sequence[PlacementRequest]) -> tuple[list[PlacementRequest], list[int]]:
    """Return the distinct requests, and the index of that of each member."""
    kinds: list[PlacementRequest] = []
    kind_of = []
    for request in requests:
        kind = replace(request, lease_id=None, avoided=(), beside_idle=True)
        if kind not in kinds:
            kinds.append(kind)
        kind_of.append(kinds.index(kind))
    return kinds, kind_of


_TREES = """
    SELECT h.id, b.id FROM (
        SELECT coalesce((SELECT a.id FROM drydock_above(s.id) a ORDER BY a.n DESC LIMIT 1), s.id) AS id, min(s.n) AS n
        FROM unnest(%s::bigint[]) WITH ORDINALITY s(id, n) GROUP BY 1) h
    CROSS JOIN LATERAL (SELECT h.id UNION ALL SELECT x.id FROM drydock_below(h.id) x) b
    ORDER BY h.n, b.id"""


def _hosts(
    seeds: Sequence[int], kinds: Sequence[PlacementRequest], kind_of: Sequence[int], rule: Rule, *, when_empty: bool,
    partly: bool = False,
) -> list[_Host]:  # fmt: skip
    """Return the hosts that contain the given resources, with the resources in them that could serve each member.

    A carrier on which such a resource already stands is left out, because it serves only once. Hosts without a resource
    for each member are left out unless `partly` is true.
    """
    host_of = {below: host for host, below in rows(_TREES, (list(seeds),))} if seeds else {}
    inside = tuple(host_of)
    there: dict[int, list[list[Option]]] = {host: [[] for _ in kinds] for host in host_of.values()}
    for n, kind in enumerate(kinds if inside else ()):
        for option in options_for(replace(kind, only_resources=inside), limit=len(inside), when_empty=when_empty):
            there[host_of[option.resource_id]][n].append(option)
        for option in rule.carriers_of(kind, when_empty=when_empty):
            found = there[host_of[option.resource_id]][n] if option.resource_id in host_of else None
            if found is not None and option.resource_id not in {one.parent_id for one in found}:
                found.append(option)
    return [
        _Host(id=host, options=[options[n] for n in kind_of])
        for host, options in there.items()
        if partly or all(options)
    ]  # fmt: skip


def shortage(requests: list[PlacementRequest], rule: Rule) -> Shortage:
    """Return which hosts could serve the group if nothing were leased, and what the most suitable host lacks."""
    if rule.near != "require":
        rule = replace(rule, near="")
    kinds, kind_of = _kinds(requests)
    able: dict[int, list[Option]] = {}
    for hosts in _found(requests, rule, when_empty=True):
        able = {host.id: found for host in hosts if (found := _best([host], requests, rule)) is not None}
        if able:
            break
    if able:
        seeds = list(able)[:_SHOWN]
    elif rule.held:
        seeds = [rule.held[0].resource_id]
    else:
        seeds = _anywhere(kinds, rule)
    hosts = _hosts(seeds, kinds, kind_of, rule, when_empty=not able, partly=True)
    far = {pk: _farness(chosen, rule) for pk, chosen in able.items() if rule.near}
    closest = min(hosts, key=lambda host: (sum(_lacks(host, requests)), far.get(host.id, 0)), default=None)
    clause = "" if closest is None else _clause(closest, kinds, kind_of, able=bool(able), near=bool(rule.near))
    near = ", with devices near one another" if rule.near else ""
    message = f"The {len(requests)} leases of the group are granted together in one host{near}. "
    if closest is not None and (apart := distance_between(able.get(closest.id, ()), rule)) is not None and rule.near:
        message += f"{_named(closest.id)} comes closest: its devices would be {apart}, but {clause}."
    elif able:
        message += f"{clause}."
    elif clause:
        message += f"No host has everything that they request; {clause}."
    else:
        message += "No host has anything that they request."
    return Shortage(hosts=tuple(able), message=message)


def _anywhere(kinds: Sequence[PlacementRequest], rule: Rule) -> list[int]:
    """Return the resources that could serve a member, or carry what is built for it, if nothing were leased."""
    able = ((*options_for(kind, when_empty=True), *rule.carriers_of(kind, when_empty=True)) for kind in kinds)
    return list(dict.fromkeys(one.resource_id for found in able for one in found))


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """Whether a host can serve a group.

    The answer is `granted` if it can now, `build` once something is built in it, `wait` if it could once nothing in it
    were leased, or `no`.
    """

    host: str
    answer: str
    sentence: str


def prospects(requests: list[PlacementRequest], rule: Rule) -> list[Prospect]:
    """Return the prospects of a group in the hosts that have something that it requests, the best ones first."""
    kinds, kind_of = _kinds(requests)
    seeds = _anywhere(kinds, rule)
    empty = {host.id: host for host in _hosts(seeds, kinds, kind_of, rule, when_empty=True, partly=True)}
    found: list[tuple[tuple[bool, bool, float, int], int, Prospect]] = []
    for host in _hosts(seeds, kinds, kind_of, rule, when_empty=False, partly=True):
        now = _best([host], requests, rule)
        later = now or _best([empty[host.id]], requests, rule)
        apart = how_near(later or (), rule)
        lacking = host if later else empty[host.id]
        order = (now is None, later is None, sum(_lacks(lacking, requests)), _farness(later or (), rule))
        why = "" if now else _clause(lacking, kinds, kind_of, able=later is not None, near=bool(rule.near))
        found.append((order, len(found), _prospect(host, now, later, why=why, apart=apart)))
    return [one for *_, one in sorted(found, key=lambda one: one[:2])][:_LISTED]


def how_near(chosen: Sequence[Option], rule: Rule) -> str:
    """Return how near the devices of a group would be, after "would"; empty if it has fewer than two devices."""
    apart = str(distance_between(chosen, rule) or "")
    return apart and ("have " if apart.startswith("no ") else "be ") + apart


def _prospect(
    host: _Host, now: Sequence[Option] | None, later: Sequence[Option] | None, *, why: str, apart: str
) -> Prospect:  # fmt: skip
    name = _named(host.id)
    if carriers := sorted({_named(one.resource_id) for one in now or () if one.is_carrier}):
        built = f"once resources are built on {', '.join(carriers)}"
        return Prospect(host=name, answer="build", sentence=f"{name} has room for all of them {built}.")
    if now is not None:
        sentence = f"{name} has room for all of them" + (f"; their devices would {apart}." if apart else ".")
        return Prospect(host=name, answer="granted", sentence=sentence)
    if later is not None:
        sentence = f"{why}." + (f" Once nothing is leased there, their devices would {apart}." if apart else "")
        return Prospect(host=name, answer="wait", sentence=sentence)
    return Prospect(host=name, answer="no", sentence=f"{why}.")


def _lacks(host: _Host, requests: Sequence[PlacementRequest]) -> list[float]:
    """Return for each member the part of the members with the same request that find no resource in the host."""
    found = []
    for request, options in zip(requests, host.options, strict=True):
        alike = sum(one is options for one in host.options)
        found.append(max(0, alike - fitting(request, options)) / alike)
    return found


def _clause(
    host: _Host, kinds: Sequence[PlacementRequest], kind_of: Sequence[int], *, able: bool, near: bool
) -> str:  # fmt: skip
    """Return a clause that says what the host lacks."""
    name = _named(host.id)
    lacks, why = [], ""
    for n, kind in enumerate(kinds):
        alike = kind_of.count(n)
        has = min(alike, fitting(kind, host.options[kind_of.index(n)]))
        if has < alike:
            lacks.append(f"{has} of {alike} {_words(kind)}")
            why = why or _obstacle(host, kind)
    if lacks:
        return f"{name} has only {', '.join(lacks)}{f' free{why}' if able else ''}"
    if near and assign(host.options, [kinds[n] for n in kind_of], Rule(same="host")) is not None:
        return f"{name} has room for all of them only in devices with no place in common"
    return f"{name} has room for each of them, but not for all"


def _words(kind: PlacementRequest) -> str:
    details = [f"{name}={value}" for name, value in sorted(kind.requirements.items()) if value is not None]
    details += kind.traits
    details += ["exclusive"] if kind.exclusive else []
    details += [f"{kind.amounts.slots} slots"] if kind.amounts.slots > 1 else []
    return f"{kind.type} ({', '.join(details)})" if details else kind.type


def _obstacle(host: _Host, kind: PlacementRequest) -> str:
    """Return, after a colon, what keeps the host itself from being leased as a whole; or an empty string."""
    if not kind.exclusive:
        return ""
    found = rows("SELECT drydock_obstacle(id, TRUE) FROM leases_resource WHERE id = %s AND type = %s",
                 (host.id, kind.type))  # fmt: skip
    obstacle = Obstacle.of(found[0][0]) if found else None
    return f": {obstacle.sentence()}" if obstacle is not None else ""


def _named(host: int) -> str:
    ((name,),) = rows("SELECT name FROM leases_resource WHERE id = %s", (host,))
    return name or f"resource {host}"


def host_of(resource_id: int) -> int:
    """Return the id of the topmost resource that a resource is part of, or its own."""
    sql = "SELECT coalesce((SELECT id FROM drydock_above(%s) ORDER BY n DESC LIMIT 1), %s)"
    return int(rows(sql, (resource_id, resource_id))[0][0])


def reserve(lease_id: int, hosts: Sequence[int]) -> bool:
    """Reserve a host, with everything below it, for the group of a lease. Return whether a host was reserved."""
    return bool(run(RESERVE.format(suits="r.id = ANY(%s)"), (lease_id, list(hosts))))


_LOCK = """
    WITH RECURSIVE up AS (
        SELECT id, part_of_id FROM leases_resource WHERE id = ANY(%s)
        UNION SELECT r.id, r.part_of_id FROM up JOIN leases_resource r ON r.id = up.part_of_id),
    deep AS MATERIALIZED (
        SELECT u.id, (SELECT count(*) FROM drydock_above(u.id)) AS depth FROM up u)
    SELECT 1 FROM leases_resource r JOIN deep d ON d.id = r.id ORDER BY d.depth DESC, r.id FOR NO KEY UPDATE OF r"""


def lock(resource_ids: Sequence[int]) -> None:
    """Lock the resources and what they are part of: parts before wholes, as the triggers do, then by id."""
    rows(_LOCK, (list(resource_ids),))
