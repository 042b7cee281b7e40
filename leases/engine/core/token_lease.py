"""Tokens that let only one process at a time carry out a periodic task of a blueprint.

Unlike PostgreSQL's advisory locks, these tokens work through connection poolers.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.conf import settings

from blueprints import registry
from leases.engine.core.database import patient, rows, run
from leases.messaging import hints

_BEGIN = """
    INSERT INTO {table} (blueprint_id) SELECT id FROM blueprints_blueprint b
        WHERE b.kind = ANY(%s) AND b.removed_at IS NULL AND {which}
        AND NOT EXISTS (SELECT FROM {table} s WHERE s.blueprint_id = b.id AND {tasks}) ON CONFLICT DO NOTHING"""
_DUE = """
    SELECT {columns} FROM {table} s JOIN blueprints_blueprint b ON b.id = s.blueprint_id
    WHERE b.kind = ANY(%s) AND b.removed_at IS NULL AND {which} AND {tasks} AND s.due_at <= statement_timestamp()
        AND (s.token IS NULL OR s.token_until < statement_timestamp()) LIMIT 200"""
_TAKE = """
    UPDATE {table} SET token = %s, token_until = clock_timestamp() + %s * interval '1 s'
    WHERE {key} AND (due_at <= clock_timestamp() OR %s)
        AND (token IS NULL OR token_until < clock_timestamp() OR token = %s)"""
_KEEP = """
    UPDATE {table} SET token_until = clock_timestamp() + %s * interval '1 s' WHERE {key} AND token = %s"""
_DONE = """
    UPDATE {table} SET token = NULL, due_at = clock_timestamp() + %s * interval '1 s', message = %s,
        seen_at = CASE WHEN %s = '' THEN clock_timestamp() ELSE seen_at END, found = coalesce(%s, found){also}
    WHERE {key} AND token = %s"""


@dataclass(frozen=True, kw_only=True)
class TokenLease:
    """A periodic task for each blueprint whose kind has the `capability`, run by one process at a time.

    `table` stores the tasks. `hint` is the name of the hint that asks a worker to carry out a task.
    """

    table: str
    capability: type
    hint: str
    which: str = field(default="TRUE")
    """SQL condition that restricts the task to some of the blueprints `b` whose kind has the capability."""
    tasks: str = field(default="TRUE")
    """SQL condition that selects the tasks `s` of these blueprints to carry out."""
    key: tuple[str, ...] = ("blueprint_id",)
    """The columns that identify a task. The methods take the values of these columns."""

    def ask(self) -> int:
        """Queue every task that is due. Return the number of tasks queued."""
        names = ([name for name in registry.names() if self._can(name)],)
        run(self._sql(_BEGIN), names)
        found = rows(self._sql(_DUE), names)
        for key in found:
            hints.send(self.hint, *key)
        return len(found)

    def take(self, *key: object, early: bool = False) -> uuid.UUID | None:
        """Claim a task and return its token, or None if another process has claimed the task or the task is not due.

        If `early` is true, the task need not be due.
        """
        token = uuid.uuid4()
        given = (token, settings.DRYDOCK.step_token_seconds, *key, early, token)
        took = patient(run, self._sql(_TAKE), given)
        return token if took else None

    def keep(self, *key: object, token: uuid.UUID) -> bool:
        """Extend the token by its full term. Return False if another process has claimed the task."""
        return bool(run(self._sql(_KEEP), (settings.DRYDOCK.step_token_seconds, *key, token)))

    def done(
        self, *key: object, token: uuid.UUID, after: float, problem: str, found: int | None,
        also: str = "", given: Sequence[object] = (), beside: tuple[str, Sequence[object]] | None = None,
    ) -> bool:  # fmt: skip
        """Finish the task and schedule the next one in `after` seconds.

        `also` is SQL that sets further columns to the values in `given`, and `beside` a statement with its values that
        is part of the same round trip. Return False if another process has claimed the task.
        """
        values: Sequence[object] = (after, problem, problem, found, *given, *key, token)
        sql = self._sql(_DONE, also=f", {also}" if also else "")
        if beside is not None:
            sql, values = f"WITH beside AS ({beside[0]}) {sql}", (*beside[1], *values)
        return bool(patient(run, sql, values))

    def _sql(self, template: str, also: str = "") -> str:
        return template.format(
            table=self.table, which=self.which, tasks=self.tasks, columns=", ".join(f"s.{name}" for name in self.key),
            key=" AND ".join(f"{name} = %s" for name in self.key), also=also,
        )  # fmt: skip

    def _can(self, name: str) -> bool:
        try:
            return isinstance(registry.kind(name), self.capability)
        except registry.KindBroken:
            return False
