"""The database that workers copy instead of migrating their own."""

from __future__ import annotations

import re

import pytest
from django.conf import settings
from django.db import connection

from tests import migrated


def schema(text: str) -> list[str]:
    """Return the lines of a dump without random ones and without casts, which the server writes in another way."""
    return [re.sub(r"[()]|::text(\[\])?", "", line) for line in text.splitlines() if not line.startswith("\\")]


@pytest.mark.django_db(transaction=True)
def test_what_is_restored_is_what_was_migrated(tmp_path):
    if not migrated.is_there():
        pytest.skip("there is none without several workers on private engines")
    sockets, name = settings.ENGINES.layout.sockets, f"{connection.settings_dict['NAME']}_filled"
    with connection.cursor() as cursor:
        cursor.execute(f'CREATE DATABASE "{name}"')
    try:
        migrated.fill(sockets, name)
        migrated.call("pg_dump", sockets, name, "-f", str(tmp_path / "dump"))
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    dumped = schema(migrated.dump().read_text())
    assert sum(line.startswith("CREATE TRIGGER") for line in dumped) > 5
    assert schema((tmp_path / "dump").read_text()) == dumped
