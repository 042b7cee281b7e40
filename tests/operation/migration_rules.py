"""What a migration may do while processes of the version before are still at work. docs/how-to/upgrade.md says why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from django.contrib.postgres import operations as postgres
from django.db.migrations import operations as django
from django.db.migrations.migration import Migration
from django.db.migrations.state import ProjectState
from django.db.models import NOT_PROVIDED, CheckConstraint

LARGE = {"event", "job", "lease", "resource", "share"}
"""Models with so many rows that reading them all under a lock would be felt."""
TAKES_AWAY = (django.RemoveField, django.RenameField, django.DeleteModel, django.RenameModel, django.AlterModelTable)
SQL = {
    r"\bDROP\s+(TABLE|COLUMN)\b": "takes away what the version before uses",
    r"\bRENAME\b": "takes away a name that the version before uses",
    r"\bTRUNCATE\b|\bLOCK\s+TABLE\b": "locks a table",
    r"\bALTER\s+COLUMN\s+\S+\s+(SET\s+DATA\s+)?TYPE\b": "rewrites a table under a lock",
    r"\bSET\s+NOT\s+NULL\b": "refuses rows of the version before",
    r"\bCREATE\s+(UNIQUE\s+)?INDEX\s+(?!CONCURRENTLY)": "builds an index under a lock",
}

Problems = Iterator[str]


def problems(migration: Migration, before: ProjectState) -> list[str]:
    """Everything in a migration that an old process, or one that is at work, would notice."""
    found: list[str] = []
    made: set[str] = set()
    state = before.clone()
    for operation in migration.operations:
        if isinstance(operation, django.CreateModel):
            made.add(operation.name_lower)
        if getattr(operation, "model_name_lower", getattr(operation, "model_name", "")).lower() not in made:
            found += _of(operation, state, migration)
        operation.state_forwards(migration.app_label, state)
    if any(isinstance(one, django.RunPython) for one in migration.operations) and len(migration.operations) > 1:
        found.append("RunPython: rows are changed in a migration of their own, in batches")
    return found


def _of(operation: Any, state: ProjectState, migration: Migration) -> Problems:
    for sort, look in LOOKS.items():
        if isinstance(operation, sort):
            yield from (f"{operation.describe()}: {said}" for said in look(operation, state, migration))
            return


def _taken_away(operation: Any, state: ProjectState, migration: Migration) -> Problems:
    yield "the version before still uses it; take it away one release after nothing uses it any more"


def _added(operation: Any, state: ProjectState, migration: Migration) -> Problems:
    field = operation.field
    if not field.many_to_many and not field.null and field.db_default is NOT_PROVIDED and not field.generated:
        yield "the version before inserts rows without it: null=True or a db_default"
    large = operation.model_name_lower in LARGE
    if large and (field.db_index or field.unique):
        yield "its index is built under a lock: db_index=False, and AddIndexConcurrently"
    if large and field.generated:
        yield "a generated column rewrites the table under a lock"


def _altered(operation: Any, state: ProjectState, migration: Migration) -> Problems:
    before = state.models[migration.app_label, operation.model_name_lower].fields[operation.name]
    after = operation.field
    if before.get_internal_type() != after.get_internal_type():
        yield f"another type rewrites the table: {before.get_internal_type()} to {after.get_internal_type()}"
    if (before.max_length or 10**9) > (after.max_length or 10**9):
        yield "the version before writes longer values"
    if before.null and not after.null:
        yield "the version before writes NULL"
    if after.unique and not before.unique:
        yield "the version before writes the same value twice"
    if before.db_default is not NOT_PROVIDED and after.db_default is NOT_PROVIDED and not after.null:
        yield "the version before leaves it to the default"


def _indexed(operation: Any, state: ProjectState, migration: Migration) -> Problems:
    if operation.model_name_lower in LARGE and not isinstance(operation, postgres.AddIndexConcurrently):
        yield "builds an index under a lock: AddIndexConcurrently, in a migration with atomic = False"


def _constrained(operation: Any, state: ProjectState, migration: Migration) -> Problems:
    if operation.model_name_lower in LARGE and not isinstance(operation, postgres.AddConstraintNotValid):
        check = isinstance(operation.constraint, CheckConstraint)
        how = "AddConstraintNotValid, then ValidateConstraint" if check else "a unique index built CONCURRENTLY"
        yield f"reads the whole table under a lock: {how}"


def _sql(operation: Any, state: ProjectState, migration: Migration) -> Problems:
    parts = operation.sql if isinstance(operation.sql, (list, tuple)) else [operation.sql]
    text = " ".join(re.sub(r"--[^\n]*", "", str(part)) for part in parts)
    yield from (said for pattern, said in SQL.items() if re.search(pattern, text, re.IGNORECASE))


LOOKS: dict[Any, Callable[[Any, ProjectState, Migration], Problems]] = {
    TAKES_AWAY: _taken_away,
    django.AddField: _added,
    django.AlterField: _altered,
    django.AddIndex: _indexed,
    django.AddConstraint: _constrained,
    django.RunSQL: _sql,
}
