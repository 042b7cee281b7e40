"""Which tests of the conformance suite are for `make test-slow`."""

from __future__ import annotations

import os

import pytest

EVERY_CALL = ("_at_any_call", "_any_part_of_")
"""Tests that repeat a plan once for each of its calls, which takes long where a call is a real command."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A plan is interrupted at every call over one transport, as root with an account for the lease; what it does over
    SSH and with our own account is then the same plan, and is tried without interruptions."""
    for item in items:
        if any(part in item.name for part in EVERY_CALL) and (_over_ssh(item) or _as_ourselves(item)):
            item.add_marker(pytest.mark.slow)


def _over_ssh(item: pytest.Item) -> bool:
    return "over_ssh" in item.path.name


def _as_ourselves(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    return os.geteuid() == 0 and callspec is not None and callspec.params.get("machine") == "self"
