"""The fixtures of the engine's tests, for what is operated."""

from __future__ import annotations

from tests.leases.conftest import (  # noqa: F401
    _database,
    _nothing_is_swallowed,
    _quick,
    ask,
    blueprint,
    owner,
    swallowed,
    until,
)
