"""Resources that were there before: their wholes and parts, and the leases that hold them whole."""

from django.db import migrations

_BATCH = 500


def recount(apps, schema_editor):
    """Have the triggers count every resource that is leased or has a relative, in batches."""
    resources = apps.get_model("leases", "Resource").objects
    wholes = set(resources.exclude(part_of=None).values_list("part_of", flat=True))
    leased = set(resources.exclude(shares=None).values_list("pk", flat=True))
    found = sorted(wholes | leased)
    for start in range(0, len(found), _BATCH):
        batch = resources.filter(pk__in=found[start : start + _BATCH])
        batch.update(tree_stale=True)
        batch.update(tree_stale=False)


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("leases", "0035_tree"),
    ]

    operations = [migrations.RunPython(recount, migrations.RunPython.noop)]
