"""Tokens that let only one process at a time carry out a blueprint's periodic task.

Unlike advisory locks, they work through connection poolers.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from django.conf import settings

from blueprints import registry
from leases.engine.core.database import patient, rows, run
from leases.messaging import hints

_BEGIN = """
    INSERT INTO {table} (blueprint_id) SELECT id FROM blueprints_blueprint b
        WHERE b.kind = ANY(%s) AND b.removed_at IS NULL AND {which}
        AND NOT EXISTS (SELECT FROM {table} s WHERE s.blueprint_id = b.id) ON CONFLICT DO NOTHING"""
_DUE = """
    SELECT s.blueprint_id FROM {table} s JOIN blueprints_blueprint b ON b.id = s.blueprint_id
    WHERE b.kind = ANY(%s) AND b.removed_at IS NULL AND {which} AND s.due_at <= statement_timestamp()
        AND (s.token IS NULL OR s.token_until < statement_timestamp()) LIMIT 200"""
_TAKE = """
    UPDATE {table} SET token = %s, token_until = clock_timestamp() + %s * interval '1 s'
    WHERE blueprint_id = %s AND due_at <= clock_timestamp()
        AND (token IS NULL OR token_until < clock_timestamp() OR token = %s)"""
_KEEP = """
    UPDATE {table} SET token_until = clock_timestamp() + %s * interval '1 s' WHERE blueprint_id = %s AND token = %s"""
_DONE = """
    UPDATE {table} SET token = NULL, due_at = clock_timestamp() + %s * interval '1 s', message = %s,
        seen_at = CASE WHEN %s = '' THEN clock_timestamp() ELSE seen_at END, found = coalesce(%s, found)
    WHERE blueprint_id = %s AND token = %s"""


@dataclass(frozen=True, kw_only=True)
class TokenLease:
    """A periodic task for each blueprint whose kind has the `capability`, carried out by one process at a time.

    `table` is the table that stores the tasks. `hint` is the message that asks a worker to carry one out.
    """

    table: str
    capability: type
    hint: str
    which: str = field(default="TRUE")
    """SQL condition that blueprints `b` must meet, in addition to a kind with the capability."""

    def ask(self) -> int:
        """Ask workers to carry out the task for every blueprint for which it is due.

        Return the number of blueprints.
        """
        names = ([name for name in registry.names() if self._can(name)],)
        run(self._sql(_BEGIN), names)
        found = rows(self._sql(_DUE), names)
        for (blueprint_id,) in found:
            hints.send(self.hint, blueprint_id)
        return len(found)

    def take(self, blueprint_id: int) -> uuid.UUID | None:
        """Claim the task and return its token, or None if it is not due or another process has claimed it."""
        token = uuid.uuid4()
        given = (token, settings.DRYDOCK.step_token_seconds, blueprint_id, token)
        took = patient(run, self._sql(_TAKE), given)
        return token if took else None

    def keep(self, blueprint_id: int, token: uuid.UUID) -> bool:
        """Extend the token by its full term. Return False if another process has taken over the task."""
        return bool(run(self._sql(_KEEP), (settings.DRYDOCK.step_token_seconds, blueprint_id, token)))

    def done(self, blueprint_id: int, token: uuid.UUID, *, after: float, problem: str, found: int | None) -> bool:
        """Finish the task, and schedule it again in `after` seconds.

        Return False if another process has taken over the task.
        """
        return bool(patient(run, self._sql(_DONE), (after, problem, problem, found, blueprint_id, token)))

    def _sql(self, template: str) -> str:
        return template.format(table=self.table, which=self.which)

    def _can(self, name: str) -> bool:
        try:
            return isinstance(registry.kind(name), self.capability)
        except registry.KindBroken:
            return False
