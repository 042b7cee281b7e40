"""A resource that is part of the resource that it holds for life: what that lease closes, and to whom."""

from pathlib import Path

from django.db import migrations

_HERE = Path(__file__).parent
_TREE = (_HERE / "tree.sql").read_text()


def _before(name: str) -> str:
    """Return the SQL by which a function of `tree.sql` is defined."""
    begins = _TREE.index(f"CREATE OR REPLACE FUNCTION {name}(")
    ends = min(_TREE.find(end, begins) + len(end) for end in ("\n$$;", "\nEND $$;") if end in _TREE[begins:])
    return _TREE[begins:ends]


_REPLACED = ("drydock_permits", "drydock_obstacle", "drydock_spread", "drydock_join", "drydock_tree")
_UNDO = (
    *map(_before, _REPLACED),
    "DROP FUNCTION drydock_closes_to(leases_resource, bigint[]);",
    "DROP FUNCTION drydock_keeps(bigint, bigint[]);",
)


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0057_tpm_evidence"),
    ]

    operations = [
        migrations.RunSQL((_HERE / "carriers.sql").read_text(), "\n".join(_UNDO)),
    ]
