"""Delete ended leases, events, usage records, erasure records and sensor reports after their retention.

Each sweep deletes a few small batches, each in its own transaction. A sweep locks only rows that no process uses any
more, and skips rows that are already locked. A row that other rows refer to is kept until those rows are deleted.

Ids grow with time, so old rows are found by walking along the primary key. This needs no additional index, which would
add a cost to the end of every lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db.models import Model

from drydock.core import clock
from leases.engine.core.database import rows, run, short
from leases.models import (
    Capacity,
    Console,
    ConsoleAttachment,
    ConsoleInput,
    ConsoleOutput,
    Failure,
    Job,
    Lease,
    LeaseEvidence,
    LeaseGroup,
    Part,
    Resource,
    SensorReport,
)
from leases.models.job import KeptOutput, Watch

_BATCH = 1000
_BATCHES = 5
"""Number of batches that one sweep deletes from a table."""
_REST = 60.0
"""Time in seconds until this process searches a table again in which it found no old rows."""


@dataclass
class Rest:
    """A pause during which this process does not search a table for old rows."""

    until: float = 0.0

    def begin(self) -> None:
        """Start the pause now."""
        self.until = clock.monotonic() + _REST

    def lasts(self) -> bool:
        """Return whether the pause is still going on."""
        return clock.monotonic() < self.until


EVENTS = Rest()


def prune_events() -> int:
    """Delete the oldest events after their retention. Return the number deleted. The next sweep continues."""
    gone = 0
    for _ in range(_BATCHES):
        if EVENTS.lasts():
            break
        found = _prune_events()
        gone += found
        if found < _BATCH:
            EVENTS.begin()
    return gone


@short
def _prune_events() -> int:
    return run(
        "DELETE FROM leases_event WHERE id IN (SELECT e.id FROM leases_event e"
        " WHERE e.id IN (SELECT id FROM leases_event ORDER BY id LIMIT %s)"
        " AND e.at < statement_timestamp() - %s * interval '1 day' FOR UPDATE SKIP LOCKED)",
        (_BATCH, settings.DRYDOCK.event_retention_days),
    )


USAGE = Rest()


def prune_usage() -> int:
    """Delete the oldest usage records after their retention. Return the number deleted."""
    gone = 0
    for _ in range(_BATCHES):
        if USAGE.lasts():
            break
        found = _prune_usage()
        gone += found
        if found < _BATCH:
            USAGE.begin()
    return gone


@short
def _prune_usage() -> int:
    return run(
        "DELETE FROM leases_usage WHERE id IN (SELECT id FROM leases_usage"
        " WHERE ended_at < statement_timestamp() - %s * interval '1 day' ORDER BY ended_at LIMIT %s"
        " FOR UPDATE SKIP LOCKED)",
        (settings.DRYDOCK.usage_retention_days, _BATCH),
    )


ERASURES = Rest()


def prune_erasures() -> int:
    """Delete the oldest erasure records after their retention, if there is one. Return the number deleted."""
    days = settings.DRYDOCK.erasure_retention_days
    if not days or ERASURES.lasts():
        return 0
    found = _prune_erasures(days)
    if found < _BATCH:
        ERASURES.begin()
    return found


@short
def _prune_erasures(days: int) -> int:
    return run(
        "DELETE FROM leases_erasurerecord WHERE id IN (SELECT id FROM leases_erasurerecord"
        " WHERE recorded_at < statement_timestamp() - %s * interval '1 day' ORDER BY recorded_at LIMIT %s"
        " FOR UPDATE SKIP LOCKED)",
        (days, _BATCH),
    )


SENSORS = Rest()


def prune_sensors() -> int:
    """Delete what sensors measured after its retention. Return the number of reports deleted."""
    gone = 0
    for _ in range(_BATCHES):
        if SENSORS.lasts():
            break
        found = _prune_sensors()
        gone += found
        if found < _BATCH:
            SENSORS.begin()
    return gone


@short
def _prune_sensors() -> int:
    return run(
        "DELETE FROM leases_sensorreport WHERE id IN (SELECT id FROM leases_sensorreport"
        " WHERE at < statement_timestamp() - %s * interval '1 hour' ORDER BY at LIMIT %s FOR UPDATE SKIP LOCKED)",
        (settings.DRYDOCK.sensor_retention_hours, _BATCH),
    )


CONSOLES = Rest()


def prune_consoles() -> int:
    """Delete what was printed and typed at the consoles of leases that have ended. Return the number of records.

    The process that holds the line of a console does so at the end of the lease, unless it died before.
    """
    if CONSOLES.lasts():
        return 0
    over = ConsoleOutput.objects.filter(lease__state__in=("destroyed", "broken"))
    found = list(over.values_list("lease_id", flat=True).distinct()[:_BATCH])
    for model in (ConsoleOutput, ConsoleInput, ConsoleAttachment) if found else ():
        model.objects.filter(lease_id__in=found).delete()
    CONSOLES.begin()
    return len(found)


@dataclass(kw_only=True)
class Walk:
    """The position of this process in a table from which it deletes old rows.

    `over` is the SQL condition for rows that may be deleted. `with_it` contains the models whose rows are deleted
    together with the rows of the table.
    """

    model: type[Model]
    over: str
    with_it: tuple[type[Model], ...] = ()
    column: str = ""
    """The column by which dependent rows refer to the table."""
    place: int = 0
    rest: Rest = field(default_factory=Rest)

    def go_on(self) -> int:
        """Delete the next few batches of old rows. Return the number of rows deleted."""
        gone = 0
        for _ in range(_BATCHES):
            if self.rest.lasts():
                break
            gone += self._batch()
        return gone

    def _batch(self) -> int:
        found = rows(_WINDOW.format(table=self.table, over=self.over), (_days(), self.place, _BATCH))
        last, over = found[0]
        if last is None:  # no older rows are left
            self.place = 0
            self.rest.begin()
            return 0
        self.place = last
        return forget(self, over) if over else 0

    @property
    def table(self) -> str:
        """The name of the database table."""
        return self.model._meta.db_table


_WINDOW = """
    WITH at AS (SELECT statement_timestamp() - %s * interval '1 day' AS before)
    SELECT max(w.id) FILTER (WHERE w.created_at < at.before), array_agg(w.id) FILTER (WHERE w.over)
    FROM at LEFT JOIN LATERAL (SELECT t.id, t.created_at, {over} AS over FROM {table} t WHERE t.id > %s
        ORDER BY t.id LIMIT %s) w ON TRUE"""
_FREE = """
    SELECT t.id FROM {table} t, (SELECT statement_timestamp() - %s * interval '1 day' AS before) at
    WHERE t.id = ANY(%s) AND {over}{unreferenced} ORDER BY t.id FOR UPDATE OF t SKIP LOCKED"""


@short
def forget(walk: Walk, ids: Sequence[int]) -> int:
    """Delete the rows with these `ids`, and their dependent rows. Return the number of rows deleted.

    Rows that may not be deleted yet, or that other rows refer to, are kept.
    """
    free = [
        pk for (pk,) in rows(
            _FREE.format(table=walk.table, over=walk.over, unreferenced=_unreferenced(walk)), (_days(), list(ids))
        )
    ]  # fmt: skip
    for model in walk.with_it:
        run(f"DELETE FROM {model._meta.db_table} WHERE {walk.column} = ANY(%s)", (free,))
    return run(f"DELETE FROM {walk.table} WHERE id = ANY(%s)", (free,)) if free else 0


def _unreferenced(walk: Walk) -> str:
    """Return SQL that is true for rows to which no other rows refer, apart from dependent rows.

    The SQL is derived from the models, so that no reference is missed.
    """
    others: list[Any] = [one for one in walk.model._meta.get_fields(include_hidden=True) if one.auto_created]
    return "".join(
        f" AND NOT EXISTS (SELECT FROM {one.related_model._meta.db_table} x WHERE x.{one.field.column} = t.id)"
        for one in others
        if not one.concrete and one.field.db_constraint and one.related_model not in walk.with_it
    )


def _days() -> int:
    return int(settings.DRYDOCK.lease_retention_days)


WALKS = (
    Walk(
        model=Lease, over="(t.state IN ('destroyed', 'broken') AND t.ended_at < at.before)",
        with_it=(
            KeptOutput, Watch, Job, LeaseEvidence, ConsoleOutput, ConsoleInput, ConsoleAttachment, Console,
        ),
        column="lease_id",
    ),
    Walk(model=LeaseGroup, over="(t.created_at < at.before)"),
    Walk(model=Resource, over="(t.gone_at < at.before)", with_it=(Capacity, Part, Failure, SensorReport), column="resource_id"),
)  # fmt: skip


def prune_ended() -> int:
    """Delete ended leases, and resources that no longer exist, after their retention. Return the number deleted."""
    return sum(walk.go_on() for walk in WALKS)
