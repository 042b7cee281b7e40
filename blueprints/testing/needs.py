"""Which tests of the suite apply to which kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Test = TypeVar("Test", bound=Callable[..., None])


def needs(*any_of: type) -> Callable[[Test], Test]:
    """Mark a test as one for kinds that implement any of these classes."""

    def mark(test: Test) -> Test:
        test.any_of = any_of  # type: ignore[attr-defined]
        return test

    return mark


def applies(test: Any, kind: object) -> bool:
    """True when the test is for this kind."""
    any_of = getattr(test, "any_of", ())
    return not any_of or isinstance(kind, any_of)
