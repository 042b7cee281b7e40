"""What leases cost, and budgets: two new tables, and triggers that write the one with the shares."""

from pathlib import Path

import django.db.models.deletion
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import migrations, models
from django.db.models import Q

_HERE = Path(__file__).parent
_BEFORE = (_HERE / "alone.sql").read_text()
_UNDO = f"""
{_BEFORE[_BEFORE.index("CREATE OR REPLACE") :]}
DROP TRIGGER resource_usage ON leases_resource;
DROP FUNCTION drydock_resource_usage();
DROP FUNCTION drydock_usage_begins(bigint, bigint);
"""


def _sql() -> str:
    """With the names of the installation's own users."""
    users = get_user_model()._meta
    names = {
        "users": users.db_table, "userkey": users.pk.column,
        "username": users.get_field(get_user_model().USERNAME_FIELD).column,
    }  # fmt: skip
    found = (_HERE / "usage.sql").read_text()
    for name, given in names.items():
        found = found.replace("{" + name + "}", given)
    return found


def _text(length: int) -> models.CharField:
    return models.CharField(blank=True, db_default="", default="", max_length=length)


def _holder(to: str) -> models.OneToOneField:
    return models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to=to)


def _only(named: str) -> Q:
    return Q(**{f"{one}__isnull": one != named for one in ("user", "group", "blueprint")})


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0015_machine_runs"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("blueprints", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Usage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("lease_id", models.BigIntegerField()),
                ("lease_name", _text(255)),
                ("owner_id", models.BigIntegerField(blank=True, null=True)),
                ("owner", _text(255)),
                ("group_id", models.BigIntegerField(blank=True, null=True)),
                ("group", _text(255)),
                ("blueprint_id", models.BigIntegerField()),
                ("blueprint", models.CharField(max_length=255)),
                ("kind", models.CharField(max_length=63)),
                ("resource_id", models.BigIntegerField()),
                ("resource", _text(255)),
                ("type", models.CharField(max_length=63)),
                ("offer", _text(255)),
                ("instance_type", _text(255)),
                ("place", _text(255)),
                ("market", _text(63)),
                ("price", models.FloatField()),
                ("part", models.FloatField()),
                ("started_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("reserved_until", models.DateTimeField(blank=True, null=True)),
                ("ends_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "verbose_name_plural": "usage",
                "ordering": ["-id"],
                "indexes": [
                    models.Index(condition=Q(ended_at=None), fields=["resource_id"], name="usage_of_resource"),
                    models.Index(fields=["owner_id", "ended_at"], name="usage_of_owner"),
                    models.Index(fields=["ended_at"], name="usage_ended"),
                ],
                "constraints": [
                    models.UniqueConstraint(condition=Q(ended_at=None), fields=("lease_id",), name="usage_open_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="Budget",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("max_hourly", models.FloatField(help_text="US dollars an hour.")),
                ("blueprint", _holder("blueprints.blueprint")),
                ("group", _holder("auth.group")),
                ("user", _holder(settings.AUTH_USER_MODEL)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=_only("user") | _only("group") | _only("blueprint"), name="budget_names_one"
                    ),
                    models.CheckConstraint(condition=Q(max_hourly__gte=0), name="budget_is_an_amount"),
                ],
            },
        ),
        migrations.RunSQL(_sql(), _UNDO),
    ]
