from pathlib import Path

from django.db import migrations

_SQL = (Path(__file__).parent / "triggers.sql").read_text()
_UNDO = """
DROP FUNCTION drydock_lease_event() CASCADE;
DROP FUNCTION drydock_resource_event() CASCADE;
DROP FUNCTION drydock_share() CASCADE;
DROP FUNCTION drydock_refuse() CASCADE;
"""


class Migration(migrations.Migration):
    dependencies = [("leases", "0001_initial")]

    operations = [migrations.RunSQL(_SQL, _UNDO)]
