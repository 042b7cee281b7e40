"""What sensors measured, and triggers that add the energy to the usage of leases."""

from pathlib import Path

import django.db.models.deletion
from django.contrib.auth import get_user_model
from django.db import migrations, models

_HERE = Path(__file__).parent
_TREE = (_HERE / "tree.sql").read_text()
_SHARE = _TREE[_TREE.index("CREATE OR REPLACE FUNCTION drydock_share()") :]
_PRICED, _ON_RECORD = "RETURNING price IS NOT NULL", "RETURNING (price IS NOT NULL OR metered)"
"""Which shares are on record as usage: those of a resource with a price, and those of one that measures its power."""
_USAGE = (_HERE / "usage.sql").read_text()
_UNTIL_GONE = (_HERE / "usage_until_gone.sql").read_text()
_BEGINS = _USAGE[: _USAGE.index("-- A resource that was being built")].replace(
    "CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"
)
_BEFORE = (
    "DROP TRIGGER sensor_energy ON leases_sensorreport; DROP FUNCTION drydock_energy();"
    + _BEGINS
    + _UNTIL_GONE[_UNTIL_GONE.index("CREATE OR REPLACE FUNCTION drydock_resource_usage()") :]
    + _SHARE
)


def _named(sql: str) -> str:
    """Return the SQL with the names of the installation's own users."""
    users = get_user_model()._meta
    names = {
        "users": users.db_table, "userkey": users.pk.column,
        "username": users.get_field(get_user_model().USERNAME_FIELD).column,
    }  # fmt: skip
    for name, given in names.items():
        sql = sql.replace("{" + name + "}", given)
    return sql


def _sql() -> str:
    assert _SHARE.count(_PRICED) == 2
    return _named((_HERE / "energy.sql").read_text()) + _SHARE.replace(_PRICED, _ON_RECORD)


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0054_consoles"),
    ]

    operations = [
        migrations.AddField(
            model_name="resource",
            name="metered",
            field=models.BooleanField(db_default=False, default=False, editable=False),
        ),
        migrations.AddField(
            model_name="usage",
            name="energy_wh",
            field=models.FloatField(blank=True, null=True, verbose_name="energy (Wh)"),
        ),
        migrations.CreateModel(
            name="SensorReport",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "at",
                    models.DateTimeField(
                        help_text="By the clock of the worker that read the sensors.", verbose_name="read"
                    ),
                ),
                ("power_watts", models.FloatField(blank=True, null=True, verbose_name="power (W)")),
                (
                    "longest_gap",
                    models.FloatField(
                        help_text="Energy is computed if the report before is at most this old, in seconds."
                    ),
                ),
                ("readings", models.JSONField(default=list)),
                (
                    "resource",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="sensor_reports",
                        to="leases.resource",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["resource", "id"], name="sensors_of_resource"),
                    models.Index(fields=["at"], name="sensors_at"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("power_watts", None),
                            models.Q(("power_watts__gte", 0), ("power_watts__lte", 1000000.0)),
                            _connector="OR",
                        ),
                        name="sensor_power_possible",
                    )
                ],
            },
        ),
        migrations.RunSQL(_sql(), _named(_BEFORE)),
    ]
