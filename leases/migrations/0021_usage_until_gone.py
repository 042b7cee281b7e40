"""What a machine costs until it is gone goes on record: functions and a trigger, no rows are changed."""

from pathlib import Path

from django.contrib.auth import get_user_model
from django.db import migrations

_HERE = Path(__file__).parent
_BEFORE = (_HERE / "usage.sql").read_text()
_TRIGGER = _BEFORE[_BEFORE.index("CREATE FUNCTION drydock_resource_usage()") : _BEFORE.index("-- As in alone.sql")]
_UNDO = (
    _TRIGGER.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION").replace(
        "CREATE TRIGGER", "CREATE OR REPLACE TRIGGER"
    )
    + "DROP FUNCTION drydock_usage_goes_on(bigint);"
)


def _sql() -> str:
    """With the names of the installation's own users."""
    users = get_user_model()._meta
    names = {
        "users": users.db_table, "userkey": users.pk.column,
        "username": users.get_field(get_user_model().USERNAME_FIELD).column,
    }  # fmt: skip
    found = (_HERE / "usage_until_gone.sql").read_text()
    for name, given in names.items():
        found = found.replace("{" + name + "}", given)
    return found


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0020_failures"),
    ]

    operations = [migrations.RunSQL(_sql(), _UNDO)]
