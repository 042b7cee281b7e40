"""The metrics of the installation for `/metrics`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import transaction

from leases.engine.core import installation
from leases.engine.core.database import rows, run
from leases.engine.resources import failures
from leases.reports.cleaning import IS_CLEANED

Label = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A metric: its help text, the names of its labels, and the statement that returns label values and a number."""

    name: str
    says: str
    labels: Label
    sql: str | Callable[[], list[tuple[Any, ...]]]
    given: tuple[str, ...] = ()
    """The names of the settings that the statement takes as parameters, in order."""


RECENT = "5 minutes"
"""The time span from which latencies and transitions are reported."""
_CLASSES = ("slots", "cpu_millicores", "ram_mib", "disk_mib")
_RECENT = f"at > clock_timestamp() - interval '{RECENT}'"
_LATENCY = """
    SELECT {label} q.share::text, percentile_disc(q.share) WITHIN GROUP (ORDER BY extract(epoch FROM e.duration))
    FROM leases_event e {join} CROSS JOIN (VALUES (0.5), (0.95), (1.0)) AS q(share)
    WHERE e.{recent} AND e.kind = '{kind}' AND e.from_state = '{before}' AND e.duration IS NOT NULL
    GROUP BY {group} q.share"""


def _latency(name: str, says: str, kind: str, before: str, *, blueprint: bool = False) -> Figure:
    label = "b.name," if blueprint else ""
    sql = _LATENCY.format(
        label=label, group=label, kind=kind, before=before, recent=_RECENT,
        join="JOIN blueprints_blueprint b ON b.id = e.blueprint_id" if blueprint else "",
    )  # fmt: skip
    return Figure(
        name=name, says=f"{says}, in the last {RECENT}.", labels=(*(["blueprint"] if blueprint else []), "quantile"),
        sql=sql,
    )  # fmt: skip


def _capacity(column: str) -> str:
    own = " UNION ALL ".join(
        f"SELECT blueprint_id, '{name}' AS class, sum({column}_{name}) AS n FROM there GROUP BY 1" for name in _CLASSES
    )
    return f"""
        WITH there AS (SELECT * FROM leases_resource WHERE gone_at IS NULL AND state IN ('pending', 'active')),
        amounts AS ({own} UNION ALL SELECT t.blueprint_id, c.name, sum(c.{column}) FROM leases_capacity c
            JOIN there t ON t.id = c.resource_id GROUP BY 1, 2)
        SELECT b.name, a.class, a.n FROM amounts a JOIN blueprints_blueprint b ON b.id = a.blueprint_id
        WHERE a.n > 0 OR a.class = 'slots'"""


_UNDESTROYED = f"""
    FROM leases_failure f JOIN leases_resource r ON r.id = f.resource_id AND r.gone_at IS NULL
    JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    WHERE {failures.REPORTED}"""
FIGURES = (
    Figure(
        name="leases", says="Leases that have not ended, by type and state.", labels=("type", "state"),
        # Two halves, because each has its own index.
        sql="SELECT type, state, count(*) FROM leases_lease WHERE state IN ('pending', 'acquired', 'active') GROUP BY 1, 2"
        " UNION ALL SELECT type, state, count(*) FROM leases_lease WHERE state = 'released' GROUP BY 1, 2",
    ),
    Figure(
        name="waiting_leases", says="Pending leases, by type and reason.", labels=("type", "reason"),
        sql="SELECT type, reason, count(*) FROM leases_lease WHERE state = 'pending' GROUP BY 1, 2",
    ),
    Figure(
        name="queue_age_seconds", says="Age in seconds of the oldest pending lease of a type.", labels=("type",),
        sql="SELECT type, extract(epoch FROM clock_timestamp() - min(created_at)) FROM leases_lease"
        " WHERE state = 'pending' GROUP BY 1",
    ),
    _latency("claim_seconds", "Seconds from the request of a lease until it is acquired", "lease.acquired", "pending"),
    _latency("activation_seconds", "Seconds from acquiring a lease until it is active", "lease.active", "acquired"),
    _latency("build_seconds", "Seconds from the start of a build until the resource is active", "resource.active", "pending", blueprint=True),
    Figure(
        name="transitions", says=f"State changes in the last {RECENT}, by object (lease or resource), new state and reason.",
        labels=("of", "to", "reason"),
        sql="SELECT split_part(kind, '.', 1), to_state, reason, count(*) FROM leases_event"
        f" WHERE {_RECENT} AND to_state <> '' GROUP BY 1, 2, 3",
    ),
    Figure(
        name="failed_steps", says=f"Steps that failed in the last {RECENT}, by the provider's error code.",
        labels=("code",),
        sql="SELECT coalesce(nullif(details ->> 'code', ''), 'unknown'), count(*) FROM leases_event"
        f" WHERE {_RECENT} AND kind = 'step.failed' GROUP BY 1",
    ),
    Figure(
        name="resources", says="Resources that exist, by blueprint and state.", labels=("blueprint", "state"),
        sql="SELECT b.name, r.state, count(*) FROM leases_resource r JOIN blueprints_blueprint b"
        " ON b.id = r.blueprint_id WHERE r.gone_at IS NULL GROUP BY 1, 2",
    ),
    Figure(
        name="resources_apart", says="Resources that accept no new leases, by blueprint and cause.", labels=("blueprint", "why"),
        sql="SELECT b.name, w.why, count(*) FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id"
        " CROSS JOIN LATERAL (VALUES ('drained', r.drained), ('quarantined', r.quarantined),"
        " ('maintenance', r.in_maintenance), ('failing', r.check_failures > 0)) AS w(why, so)"
        " WHERE r.gone_at IS NULL AND w.so GROUP BY 1, 2",
    ),
    Figure(
        name="unclean_resources",
        says="Resources that must be cleaned before they are leased again, by blueprint and stage"
        " (running, owed, or failing: owed after a failed attempt).",
        labels=("blueprint", "stage"),
        sql="SELECT b.name, d.stage, count(*) FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id"
        " CROSS JOIN LATERAL (SELECT CASE WHEN EXISTS (SELECT FROM leases_run n WHERE n.resource_id = r.id"
        f" AND {IS_CLEANED}) THEN 'running' WHEN max(d.tries) > 0 THEN 'failing' ELSE 'owed' END AS stage"
        " FROM leases_debt d WHERE d.resource_id = r.id HAVING count(*) > 0) d WHERE r.in_maintenance GROUP BY 1, 2",
    ),
    Figure(
        name="unhealthy_resources", says="Resources that are degraded or failed, by blueprint and health.",
        labels=("blueprint", "health"),
        sql="SELECT b.name, r.health, count(*) FROM leases_resource r JOIN blueprints_blueprint b"
        " ON b.id = r.blueprint_id WHERE r.health <> 'ok' AND r.gone_at IS NULL GROUP BY 1, 2",
    ),
    Figure(
        name="undestroyed",
        says="Resources that still exist although their destruction failed twice or exceeded its deadline.",
        labels=("blueprint",),
        sql=f"SELECT b.name, count(*) {_UNDESTROYED} GROUP BY 1",
    ),
    Figure(
        name="undestroyed_dollars", says="Hourly cost in US dollars of resources that could not be destroyed.", labels=("blueprint",),
        sql=f"SELECT b.name, coalesce(sum(r.price), 0) {_UNDESTROYED} GROUP BY 1",
    ),
    Figure(
        name="put_aside", says="Files of ended leases that could not be removed and were moved aside.", labels=("blueprint",),
        sql="SELECT b.name, sum(jsonb_array_length(r.facts -> 'aside')) FROM leases_resource r"
        " JOIN blueprints_blueprint b ON b.id = r.blueprint_id"
        " WHERE r.gone_at IS NULL AND r.facts ? 'aside' GROUP BY 1",
    ),
    Figure(
        name="failed_acts", says="Machines whose last stop, start, reboot or change failed, by action.",
        labels=("blueprint", "act"),
        sql="SELECT b.name, f.act, count(*) FROM leases_failure f JOIN leases_resource r ON r.id = f.resource_id"
        " JOIN blueprints_blueprint b ON b.id = r.blueprint_id WHERE r.state = 'active' AND f.act <> 'destroy'"
        " GROUP BY 1, 2",
    ),
    Figure(
        name="resource_dollars",
        says="Hourly cost of resources in US dollars, by use: held by leases, idle, or being destroyed.",
        labels=("blueprint", "use"),
        sql="SELECT b.name, CASE WHEN r.used_slots > 0 THEN 'held' WHEN r.state IN ('pending', 'active') THEN 'idle'"
        " ELSE 'ending' END, sum(r.price) FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id"
        " WHERE r.gone_at IS NULL AND r.price > 0 GROUP BY 1, 2",
    ),
    Figure(
        name="resources_doubted", labels=("blueprint", "why"),
        says="Machines in service that may be gone (suspected), disappeared together with everything else in "
            "their account (vanished), or were switched off outside Drydock (stopped).",
        sql="SELECT b.name, r.observed, count(*) FROM leases_resource r JOIN blueprints_blueprint b"
        " ON b.id = r.blueprint_id WHERE r.state = 'active' AND (r.observed IN ('suspected', 'vanished')"
        " OR r.observed = 'stopped' AND r.facts ? 'stopped') GROUP BY 1, 2",
    ),
    Figure(
        name="capacity_total", says="Capacity of resources that are active or being built, by blueprint and class.",
        labels=("blueprint", "class"), sql=_capacity("total"),
    ),
    Figure(
        name="capacity_used", says="Capacity that leases hold, by blueprint and class.", labels=("blueprint", "class"),
        sql=_capacity("used"),
    ),
    Figure(
        name="remembered_errors", says="Remembered errors in force, by blueprint and scope (offer, zone, ...).",
        labels=("blueprint", "scope"),
        sql="SELECT b.name, e.scope, count(*) FROM blueprints_rememberederror e JOIN blueprints_blueprint b"
        " ON b.id = e.blueprint_id WHERE e.until IS NULL OR e.until > clock_timestamp() GROUP BY 1, 2",
    ),
    Figure(
        name="runs", says="Runs in progress, by phase and what they wait for (empty: nothing).",
        labels=("phase", "waits_for"), sql="SELECT phase, waits_for, count(*) FROM leases_run GROUP BY 1, 2",
    ),
    Figure(
        name="oldest_due_seconds", says="Seconds by which the oldest due item (step, expiry or discovery) is overdue.", labels=("what",),
        sql="SELECT w.what, greatest(0, coalesce(extract(epoch FROM clock_timestamp() - w.due), 0)) FROM ("
        " SELECT 'step' AS what, min(due_at) AS due FROM leases_run WHERE token IS NULL OR token_until < clock_timestamp()"
        " UNION ALL SELECT 'expiry', min(until) FROM leases_lease WHERE state IN ('pending', 'acquired', 'active')"
        " UNION ALL SELECT 'discovery', min(s.due_at) FROM leases_sync s JOIN blueprints_blueprint b"
        " ON b.id = s.blueprint_id AND b.enabled WHERE s.source = 'read') w",
    ),
    Figure(
        name="sweep_lag_seconds", says="Seconds since the last completed sweep.", labels=(),
        sql="SELECT extract(epoch FROM clock_timestamp() - coalesce(swept_at, created_at)) FROM leases_installation",
    ),
    Figure(
        name="suspended", says=("1 while the installation is suspended, so that nothing outside the database is changed until "
            "an operator confirms it; otherwise 0."), labels=(),
        sql=lambda: [(int(bool(installation.current().problem)),)],
    ),
    Figure(
        name="dropped_messages", says="Broker messages that were dropped because they were not Drydock's.", labels=(),
        sql="SELECT dropped_messages FROM leases_installation",
    ),
    Figure(
        name="strays", says="Orphans: provider objects that carry this installation's tag but belong to no resource.", labels=("blueprint",),
        sql="SELECT b.name, count(*) FROM leases_stray s JOIN blueprints_blueprint b ON b.id = s.blueprint_id"
        " GROUP BY 1",
    ),
    Figure(
        name="agents", labels=("blueprint", "state"),
        says="Agents by blueprint and state: reporting, joined (no report yet), expected (not joined yet), silent.",
        sql="SELECT b.name, CASE WHEN a.silent_since IS NOT NULL THEN 'silent' WHEN a.joined_at IS NULL THEN 'expected'"
        " WHEN a.reported_at IS NULL THEN 'joined' ELSE 'reporting' END, count(*) FROM leases_agent a"
        " JOIN blueprints_blueprint b ON b.id = a.blueprint_id WHERE a.revoked_at IS NULL AND b.removed_at IS NULL"
        " GROUP BY 1, 2",
    ),
    Figure(
        name="agents_troubled", labels=("blueprint", "why"),
        says="Agents that are silent, whose clock is wrong, that are older than the server, or whose last report was "
            "refused.",
        sql="SELECT b.name, w.why, count(*) FROM leases_agent a JOIN blueprints_blueprint b ON b.id = a.blueprint_id"
        " CROSS JOIN LATERAL (VALUES ('silent', a.silent_since IS NOT NULL), ('clock', a.clock_off_since IS NOT NULL),"
        " ('outdated', a.outdated_since IS NOT NULL), ('refused', a.problem <> '')) AS w(why, so)"
        " WHERE a.revoked_at IS NULL AND b.removed_at IS NULL AND w.so GROUP BY 1, 2",
    ),
    Figure(
        name="watches", labels=("kind", "state"),
        says="Watches of places at providers by kind and state: working, failing, or without a worker (unwatched).",
        sql="SELECT kind, CASE WHEN failing_since IS NOT NULL THEN 'failing'"
        " WHEN coalesce(token_until, '-infinity') < clock_timestamp() THEN 'unwatched' ELSE 'working' END, count(*)"
        " FROM leases_providerwatch GROUP BY 1, 2",
    ),
    Figure(
        name="workers", says="Workers that are alive.", labels=(), given=("lost_worker_seconds",),
        sql="SELECT count(*) FROM leases_worker WHERE seen_at > clock_timestamp() - %s * interval '1 s'",
    ),
    Figure(
        name="worker_age_seconds", says="Seconds since the last heartbeat of each worker.", labels=("worker",),
        sql="SELECT name, extract(epoch FROM clock_timestamp() - seen_at) FROM leases_worker",
    ),
)  # fmt: skip


@transaction.atomic
def measure(seconds: float) -> list[tuple[Figure, list[tuple[Any, ...]]]]:
    """Return all metrics, each with its rows of label values and a number.

    Each statement may take at most `seconds` seconds.
    """
    run("SELECT set_config('statement_timeout', %s, TRUE)", (str(int(seconds * 1000)),))
    return [(figure, _rows(figure)) for figure in FIGURES]


def _rows(figure: Figure) -> list[tuple[Any, ...]]:
    if callable(figure.sql):
        return figure.sql()
    return rows(figure.sql, [getattr(settings.DRYDOCK, name) for name in figure.given] or None)
