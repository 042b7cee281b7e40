"""A process of one version at work on a database that is ahead of it."""

from __future__ import annotations

from django.db import connection

from leases.engine.lifecycle import release


def test_this_version_works_on_a_database_that_is_ahead_of_it(blueprint, ask, until):
    """A migration that adds comes while a lease is held; whoever is at work goes on."""
    blueprint()
    before = until(ask(), state="active")
    with connection.cursor() as cursor:
        try:
            cursor.execute("ALTER TABLE leases_lease ADD COLUMN later integer NOT NULL DEFAULT 0")
            cursor.execute("ALTER TABLE leases_resource ADD COLUMN later text")
            cursor.execute("CREATE TABLE leases_later (lease_id bigint NOT NULL)")
            after = until(ask(), state="active")
            for lease in (before, after):
                release.release(lease.pk, actor="ada")
                until(lease, state="destroyed")
        finally:
            cursor.execute("DROP TABLE IF EXISTS leases_later")
            cursor.execute("ALTER TABLE leases_resource DROP COLUMN IF EXISTS later")
            cursor.execute("ALTER TABLE leases_lease DROP COLUMN IF EXISTS later")
