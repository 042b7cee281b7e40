"""End the console's sessions whose keys stand in their rows: everybody signs in once more."""

from django.db import migrations

TABLE = "django_session"
"""Of django.contrib.sessions, which a project that only calls `allocate()` need not have: so no dependency on it."""


def end_sessions(apps, schema_editor):
    connection = schema_editor.connection
    if TABLE not in connection.introspection.table_names():
        return
    ended = f"DELETE FROM {TABLE} WHERE session_key IN (SELECT session_key FROM {TABLE} LIMIT 1000)"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(ended)
        while cursor.rowcount > 0:
            cursor.execute(ended)


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("leases", "0022_dropped")]

    operations = [
        migrations.RunPython(end_sessions, migrations.RunPython.noop, elidable=True),
    ]
