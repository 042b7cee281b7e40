"""An upgrade without a stop: migrations that processes of the version before do not notice."""

from __future__ import annotations

import pytest
from django.contrib.postgres import operations as postgres
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader

from tests.operation.migration_rules import problems

BEFORE_THE_FIRST_RELEASE = {
    ("blueprints", 2), ("leases", 8), ("rest", 1),
}  # fmt: skip
"""App and number of the last migration that no running installation was ever upgraded by."""
TAKEN_AWAY: dict[tuple[str, str], str] = {}
"""Migrations that take something away, with the release whose code was the first not to use it."""


@pytest.fixture(autouse=True)
def _database():
    """Files alone are looked at."""


def loaded():
    return MigrationLoader(None, ignore_no_migrations=True)


def ours(loader):
    return sorted(key for key in loader.disk_migrations if key[0] in {name for name, _ in BEFORE_THE_FIRST_RELEASE})


def released(key) -> bool:
    return int(key[1][:4]) > dict(BEFORE_THE_FIRST_RELEASE)[key[0]]


def test_every_migration_can_be_applied_with_the_version_before_at_work():
    loader = loaded()
    keys = ours(loader)
    assert {name for name, _ in keys} == {name for name, _ in BEFORE_THE_FIRST_RELEASE}
    found = {}
    for key in keys:
        if released(key) and key not in TAKEN_AWAY:
            migration = loader.disk_migrations[key]
            found[key] = problems(migration, loader.project_state(key, at_end=False))
    assert {key: said for key, said in found.items() if said} == {}


def migration(*operations, app="leases"):
    made = migrations.Migration("9999_of_tomorrow", app)
    made.operations = list(operations)
    return made


WRONG = {
    "removed": migrations.RemoveField("lease", "name"),
    "renamed": migrations.RenameField("lease", "name", "title"),
    "table gone": migrations.DeleteModel("Stray"),
    "needed": migrations.AddField("quota", "colour", models.CharField(max_length=8)),
    "needed, default in Python": migrations.AddField("quota", "size", models.IntegerField(default=1)),
    "index with the column": migrations.AddField("lease", "colour", models.IntegerField(null=True, db_index=True)),
    "shorter": migrations.AlterField("lease", "name", models.CharField(max_length=9, default="", db_default="")),
    "no longer empty": migrations.AlterField("lease", "until", models.DateTimeField()),
    "another type": migrations.AlterField("lease", "rank", models.IntegerField(default=0)),
    "default gone": migrations.AlterField("lease", "priority", models.SmallIntegerField(default=0)),
    "index": migrations.AddIndex("lease", models.Index(fields=["name"], name="x")),
    "constraint": migrations.AddConstraint("event", models.CheckConstraint(condition=~models.Q(kind=""), name="x")),
    "sql index": migrations.RunSQL("CREATE INDEX x ON leases_lease (name)"),
    "sql column": migrations.RunSQL("ALTER TABLE leases_lease DROP COLUMN name"),
    "sql type": migrations.RunSQL("ALTER TABLE leases_lease ALTER COLUMN name TYPE text"),
}
RIGHT = {
    "may be empty": migrations.AddField("lease", "colour", models.IntegerField(null=True)),
    "database's default": migrations.AddField("lease", "colour", models.IntegerField(default=0, db_default=0)),
    "longer": migrations.AlterField("lease", "name", models.CharField(max_length=999, default="", db_default="")),
    "index on a small table": migrations.AddIndex("quota", models.Index(fields=["user"], name="x")),
    "index, concurrently": postgres.AddIndexConcurrently("lease", models.Index(fields=["name"], name="x")),
    "constraint, not valid": postgres.AddConstraintNotValid(
        "lease", models.CheckConstraint(condition=models.Q(slots__gte=1), name="x")
    ),
    "sql index": migrations.RunSQL("CREATE INDEX CONCURRENTLY x ON leases_lease (name)"),
    "function": migrations.RunSQL("CREATE OR REPLACE FUNCTION drydock_x() RETURNS int LANGUAGE sql AS 'SELECT 1'"),
    "new table": migrations.CreateModel("Dock", [("id", models.BigAutoField(primary_key=True))]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_would_be_noticed_is_refused(name):
    assert problems(migration(WRONG[name]), loaded().project_state())


@pytest.mark.parametrize("name", RIGHT)
def test_what_would_not_be_noticed_is_allowed(name):
    assert problems(migration(RIGHT[name]), loaded().project_state()) == []


def test_rows_are_not_changed_together_with_tables():
    both = migration(RIGHT["may be empty"], migrations.RunPython(migrations.RunPython.noop))
    assert problems(both, loaded().project_state())
