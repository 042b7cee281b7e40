"""What every bench needs: a database of its own, an owner, blueprints of the fake kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

HOT = 100
"""Resources that the warm cycle is done on."""


def prepare(kind: str = "fake", name: str = "", **columns: Any) -> tuple[int, int]:
    """An owner and a blueprint of a fake kind with 100 slots, on the database at hand; their ids."""
    from django.contrib.auth import get_user_model
    from django.core.management import call_command

    from blueprints.models import Blueprint
    from leases.messaging.inline import settle

    call_command("migrate", verbosity=0)
    owner, _ = get_user_model().objects.get_or_create(username="bench")
    columns = {"max_resources": 1, "min_ready": 1} | columns
    blueprint, _ = Blueprint.objects.update_or_create(
        name=name or f"bench-{kind}", defaults={
            "kind": kind, "resource_type": kind, "audience": "everyone",
            "config": {"provider": "bench", "capacity": {"slots": 100}}, **columns,
        },
    )  # fmt: skip
    settle()
    return int(owner.pk), int(blueprint.pk)


def cycle(owner: int, resource_type: str = "fake") -> Callable[[], None]:
    """One warm cycle through the Python API: asked, active, released, the share returned."""
    from django.contrib.auth import get_user_model

    from leases.allocator import Allocator

    user = get_user_model()._default_manager.get(pk=owner)

    def warm() -> None:
        Allocator(resource_type, owner=user).allocate().release()

    return warm


def unserved() -> int:
    """How many leases ended without ever having been active: a warm cycle has none."""
    from leases.engine.core.database import rows

    return int(rows("SELECT count(*) FROM leases_lease WHERE active_at IS NULL AND reason <> 'bench'")[0][0])
