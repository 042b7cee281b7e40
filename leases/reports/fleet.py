"""The fleet: blueprints as backends, with their offers, resources, errors and orphans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from blueprints.models import Blueprint
from blueprints.offers import Sought
from leases.engine.catalogue.offers import condition
from leases.engine.core.database import rows
from leases.reports.cleaning import CLEANING, IS_CLEANED, OWED

TECHNOLOGIES = ("sev", "sev_snp", "tdx")
DRIFT = ("missing", "stopped", "power", "outdated", "quarantined", "failing", CLEANING, OWED)


@dataclass(kw_only=True)
class Offered:
    """A summary of a backend's offers, or of its machines if its kind has no offers."""

    regions: tuple[str, ...] = ()
    confidential: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    number: int = 0
    cpu_millicores: int = 0
    ram_mib: int = 0
    cheapest: float | None = None


@dataclass(kw_only=True)
class There:
    """Statistics on the existing machines of a backend."""

    states: dict[str, int] = field(default_factory=dict)
    drift: dict[str, int] = field(default_factory=dict)
    price: float = 0.0
    unpriced: int = 0
    known: Offered = field(default_factory=Offered)


_UNCLEAN = "EXISTS (SELECT FROM leases_debt d WHERE d.resource_id = r.id)"
_CLEANED = f"EXISTS (SELECT FROM leases_run n WHERE n.resource_id = r.id AND {IS_CLEANED})"
_THERE = f"""
    SELECT r.blueprint_id, r.state, count(*), coalesce(sum(r.price), 0), count(*) FILTER (WHERE r.price IS NULL),
        count(*) FILTER (WHERE r.missed > 0 AND r.state = 'active'),
        count(*) FILTER (WHERE r.state = 'active' AND r.observed IN ('stopped', 'stopping', 'terminated', 'failed')
            AND r.power_wanted <> 'off'),
        count(*) FILTER (WHERE r.state = 'active' AND r.power_wanted <> '' AND r.power <> r.power_wanted),
        count(*) FILTER (WHERE r.state = 'active' AND r.generation < b.generation),
        count(*) FILTER (WHERE r.quarantined), count(*) FILTER (WHERE r.check_failures > 0),
        count(*) FILTER (WHERE r.in_maintenance AND {_UNCLEAN} AND {_CLEANED}),
        count(*) FILTER (WHERE r.in_maintenance AND {_UNCLEAN} AND NOT {_CLEANED}),
        max(r.total_cpu_millicores), max(r.total_ram_mib),
        array_agg(DISTINCT r.attributes ->> 'region') FILTER (WHERE r.attributes ->> 'region' <> '')
    FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    WHERE r.gone_at IS NULL GROUP BY 1, 2"""
_TRAITS = """
    SELECT r.blueprint_id, array_agg(DISTINCT t.name) FROM leases_resource r CROSS JOIN LATERAL unnest(r.traits) t(name)
    WHERE r.gone_at IS NULL AND r.traits && %s::varchar[] AND t.name = ANY(%s) GROUP BY 1"""
_OFFERED = """
    (SELECT {number}, array_agg(DISTINCT o.location), count(*), max(o.vcpus), max(o.ram_mib), min(o.price),
        array_agg(DISTINCT o.gpu_model) FILTER (WHERE o.gpu_model <> ''),
        array_remove(ARRAY[{technologies}], NULL)
    FROM blueprints_listing o JOIN blueprints_credential c ON c.id = o.credential_id
    WHERE o.available AND c.name = %s AND o.kind = %s AND {wanted})"""
_TECHNOLOGY = "CASE WHEN bool_or('{0}' = ANY(o.confidential)) THEN '{0}' END"
_READINGS = """
    SELECT c.name, n.kind, n.what, CASE WHEN bool_and(n.seen_at IS NOT NULL) THEN
            statement_timestamp() - min(n.seen_at) END,
        array_agg(n.what || ' ' || n.place || ': ' || left(n.message, 300) ORDER BY n.place)
            FILTER (WHERE n.message <> '')
    FROM blueprints_reading n JOIN blueprints_credential c ON c.id = n.credential_id GROUP BY 1, 2, 3"""
_ERRORS = """
    SELECT e.blueprint_id, array_agg(trim(e.scope || ' ' || e.key) || ': ' || left(e.message, 300) ORDER BY e.id DESC)
    FROM blueprints_rememberederror e WHERE e.until IS NULL OR e.until > statement_timestamp() GROUP BY 1"""
_ORPHANS = """
    SELECT blueprint_id, count(*), coalesce(sum(price), 0) FROM leases_stray WHERE proof <> 'suspect' GROUP BY 1"""


def there() -> dict[int, There]:
    """Return the existing machines of each blueprint, by blueprint id. Uses two statements."""
    found: dict[int, There] = defaultdict(There)
    for pk, state, number, price, unpriced, *rest in rows(_THERE):
        one = found[pk]
        one.states[state] = number
        one.price, one.unpriced = one.price + price, one.unpriced + unpriced
        counts, (cpu, ram, regions) = rest[: len(DRIFT)], rest[len(DRIFT) :]
        for name, more in zip(DRIFT, counts, strict=True):
            if more:
                one.drift[name] = one.drift.get(name, 0) + more
        known = one.known
        known.cpu_millicores, known.ram_mib = max(known.cpu_millicores, cpu), max(known.ram_mib, ram)
        known.regions = tuple(sorted({*known.regions, *(regions or ())}))
    for pk, traits in rows(_TRAITS, (list(TECHNOLOGIES), list(TECHNOLOGIES))):
        found[pk].known.confidential = tuple(sorted(traits))
    return found


def offered(wanted: Sequence[tuple[int, str, Sought]]) -> dict[int, Offered]:
    """Return a summary of the offers that each blueprint allows, by blueprint id. Uses one statement.

    `wanted` has the id, kind and offer query of each blueprint.
    """
    if not wanted:
        return {}
    parts, params = [], []
    technologies = ", ".join(_TECHNOLOGY.format(name) for name in TECHNOLOGIES)
    for pk, kind, sought in wanted:
        allowed = condition(sought)
        parts.append(_OFFERED.format(number=int(pk), technologies=technologies, wanted=allowed.text))
        params += [sought.account, kind, *allowed.params]
    return {
        pk: Offered(
            regions=tuple(sorted(regions or ())), number=number, cpu_millicores=1000 * (vcpus or 0), ram_mib=ram or 0,
            cheapest=price, gpus=tuple(sorted(gpus or ())), confidential=tuple(technologies),
        )
        for pk, regions, number, vcpus, ram, price, gpus, technologies in rows(" UNION ALL ".join(parts), params)
    }  # fmt: skip


def readings() -> dict[tuple[str, str], list[tuple[str, Any, tuple[str, ...]]]]:
    """Return the types of polls of each (account, kind), each with the age of its oldest result and its errors.

    The age is None if one of these polls has never succeeded.
    """
    found: dict[tuple[str, str], list[tuple[str, Any, tuple[str, ...]]]] = defaultdict(list)
    for account, kind, what, age, failing in rows(_READINGS):
        found[account, kind].append((what, age, tuple(failing or ())))
    return found


def errors() -> dict[int, tuple[str, ...]]:
    """Return the remembered errors of each blueprint, by blueprint id, newest first."""
    return {pk: tuple(said) for pk, said in rows(_ERRORS)}


def orphans() -> dict[int, tuple[int, float]]:
    """Return the number and the hourly cost of the orphans of each blueprint, by blueprint id."""
    return {pk: (number, float(price)) for pk, number, price in rows(_ORPHANS)}


def backends() -> Iterable[Blueprint]:
    """Return all blueprints in the order in which they are tried."""
    return Blueprint.objects.filter(removed_at=None).order_by("order", "name", "id")
