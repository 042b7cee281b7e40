from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import AddIndexConcurrently
from django.contrib.postgres.search import SearchVector
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("leases", "0029_lease_note"),
    ]

    operations = [
        AddIndexConcurrently(
            "lease",
            GinIndex(
                SearchVector("note", config="simple"),
                condition=~models.Q(note=""),
                name="lease_note_words",
            ),
        ),
    ]
