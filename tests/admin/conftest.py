"""What the tests of the admin share: rows made through the engine, and staff of three sorts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from leases.messaging.inline import settle
from leases.models import Lease
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, until

__all__ = ["_database", "_quick", "ask", "blueprint", "owner", "until"]


@pytest.fixture
def chief() -> User:
    return User.objects.create_superuser("chief")


@pytest.fixture
def staff() -> Callable[..., Client]:
    """A client of a member of staff with some permissions (`view_lease`, ...)."""

    def sign_in(*codenames: str, name: str = "stan") -> Client:
        user = User.objects.create_user(name, is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        assert user.user_permissions.count() == len(codenames)
        client = Client()
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def site(chief: User) -> Client:
    """A client of a superuser."""
    client = Client()
    client.force_login(chief)
    return client


@pytest.fixture
def lease(blueprint: Callable[..., Any], ask: Callable[..., Lease]) -> Lease:
    """An active lease with an end."""
    blueprint()
    found = ask(name="one", ttl="1h")
    settle()
    found.refresh_from_db()
    assert found.state == "active"
    return found


def page(row: Any) -> str:
    """The address of a row's page."""
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=(row.pk,))


def rows_of(model: Any) -> str:
    """The address of a list."""
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def act(name: str, *rows: Any) -> str:
    """The address of the page that asks."""
    meta = rows[0]._meta
    at = reverse(f"admin:{meta.app_label}_{meta.model_name}_act", args=(name,))
    return f"{at}?ids={','.join(str(row.pk) for row in rows)}"
