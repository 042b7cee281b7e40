"""The owners of leases: users and their groups."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser

from drydock.core.errors import InvalidRequest


def find_owner(owner: Any) -> AbstractUser:
    """Return the user for a user or a user name.

    Raises InvalidRequest if the user does not exist or is disabled.
    """
    model = get_user_model()
    if isinstance(owner, model):
        return owner
    found = model._default_manager.filter(**{model.USERNAME_FIELD: owner}).first()
    if found is None or not found.is_active:
        raise InvalidRequest(f"User {owner!r} does not exist or is disabled.", field="owner")
    return found


def membership() -> tuple[str, str]:
    """Return the name of the table that relates users to groups, and the name of its column for users."""
    through = get_user_model().groups.through
    columns = [f.column for f in through._meta.fields if f.related_model is get_user_model() and f.column]
    return through._meta.db_table, columns[0]
