"""Kinds of tests, which are installed while a test runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from blueprints import registry
from blueprints.contract import Kind


@contextmanager
def installed(*kinds: Kind) -> Iterator[None]:
    """Register these kinds, and remove them at the end."""
    for kind in kinds:
        registry.register(kind)
    yield
    for kind in kinds:
        del registry._registered[kind.name]
    registry.forget()
