"""What the tests of the REST API share: users, their tokens, and a program that uses them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser

from leases.messaging.inline import settle
from leases.operations.callers import caller
from leases.rest import throttling, tokens
from tests.leases.conftest import (  # noqa: F401
    _database,
    _nothing_is_swallowed,
    _quick,
    amazon,
    ask,
    blueprint,
    machines,
    owner,
    soon,
    swallowed,
    until,
)


@pytest.fixture(autouse=True)
def _fresh_throttle() -> None:
    throttling.BUCKETS.forget()


class Api:
    """A program that speaks to `/api/v1` with one token; `code` of an answer is asserted."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.browser = Browser(raise_request_exception=False)

    def __call__(
        self, method: str, path: str, body: Any = None, *, code: int = 200, headers: dict[str, str] | None = None,
        content: bytes | None = None, content_type: str = "application/json",
    ) -> Any:  # fmt: skip
        """The answer's JSON, or None where it has no content."""
        found = self.raw(method, path, body, headers=headers, content=content, content_type=content_type)
        assert found.status_code == code, (found.status_code, found.content)
        if code >= 400:
            assert found.headers["Content-Type"] == "application/problem+json"
        return json.loads(found.content) if found.content else None

    def raw(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None,
        content: bytes | None = None, content_type: str = "application/json",
    ) -> Any:  # fmt: skip
        """The answer as it is."""
        sent = content if content is not None else b"" if body is None else json.dumps(body).encode()
        given = {"Authorization": f"Bearer {self.secret}"} if self.secret else {}
        return self.browser.generic(
            method, f"/api/v1/{path}", sent, content_type=content_type, headers={**given, **(headers or {})}
        )


@pytest.fixture
def api() -> Callable[..., Api]:
    """`api(user, scope)`: a program with a new token of the user."""

    def make(user: User, scope: str = "lease", **given: Any) -> Api:
        _, secret = tokens.create(caller(user), name="test", scope=scope, **given)
        return Api(secret)

    return make


@pytest.fixture
def chief() -> User:
    """An operator."""
    return User.objects.create_user("chief", is_staff=True)


@pytest.fixture
def ada(api: Any, owner: User, blueprint: Any) -> Api:  # noqa: F811
    blueprint("pool", config={"boot_polls": 0}, max_resources=2)
    return api(owner)


@pytest.fixture
def held(ada: Api) -> int:
    """An active lease of ada's."""
    made = ada("POST", "leases", {"type": "fake", "ttl": "2h"}, code=201)["id"]
    settle()
    assert ada("GET", f"leases/{made}")["state"] == "active"
    return made
