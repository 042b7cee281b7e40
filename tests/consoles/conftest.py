"""Leases with a console in memory, and programs that are attached to it."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from drydock_client.values import ConsolePart
from leases import consoles
from leases.operations.callers import Caller, caller
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, soon, until

__all__ = ["_database", "_quick", "ask", "blueprint", "owner", "soon", "until"]


@pytest.fixture
def ada(owner: User) -> Caller:
    return caller(owner)


@pytest.fixture
def operator() -> Caller:
    return caller(User.objects.create_superuser("root"))


class Program:
    """A program that is attached to a console."""

    def __init__(self, who: Caller, lease_id: int, **how: Any) -> None:
        self.who, self.lease_id, self.read = who, lease_id, b""
        self.last: ConsolePart = consoles.attach(who, lease_id, **how)
        self.session, self.typed = self.last.session, self.last.typed

    def look(self, wait: float = 0.5) -> ConsolePart:
        """Read what has come, and wait for it or for a change."""
        self.last = consoles.read(
            self.who, self.lease_id, offset=self.last.next_offset, session=self.session, revision=self.last.revision,
            wait=wait,
        )  # fmt: skip
        self.read += base64.b64decode(self.last.output)
        return self.last

    def until(self, expected: bytes = b"", *, seconds: float = 30, **fields: Any) -> bytes:
        """Read until a text has come, or the console is in a state."""
        end = time.monotonic() + seconds
        while expected not in self.read or any(getattr(self.last, name) != value for name, value in fields.items()):
            assert time.monotonic() < end, (self.last, self.read[-500:])
            self.look()
        return self.read

    def type(self, content: bytes) -> None:
        self.typed += 1
        consoles.write(self.who, self.lease_id, session=self.session, sequence=self.typed, content=content)

    def leave(self) -> None:
        consoles.detach(self.who, self.lease_id, session=self.session)


@pytest.fixture
def attach(ada: Caller) -> Callable[..., Program]:
    """Attach to the console of a lease, as its owner or somebody else."""

    def made(lease: Any, by: Caller | None = None, **how: Any) -> Program:
        return Program(by or ada, lease.pk, **how)

    return made
