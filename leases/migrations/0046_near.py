"""Groups whose devices are near one another; and reading a tree by its index, whatever the size of the table."""

from pathlib import Path

from django.db import migrations, models

_HERE = Path(__file__).parent
_TREE = (_HERE / "tree.sql").read_text()
_BEGINS = _TREE.index("CREATE OR REPLACE FUNCTION drydock_below(")
_BEFORE = _TREE[_BEGINS : _TREE.index("COMMENT ON FUNCTION drydock_below(")]


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0045_health_indexes"),
    ]

    operations = [
        migrations.AddField(
            model_name="leasegroup",
            name="near",
            field=models.CharField(blank=True, db_default="", default="", max_length=16),
        ),
        migrations.AddField(
            model_name="leasegroup",
            name="distance",
            field=models.CharField(blank=True, db_default="", default="", max_length=200),
        ),
        migrations.RunSQL((_HERE / "below.sql").read_text(), _BEFORE),
    ]
