"""Names that documentation once called public work on, with a warning."""

from __future__ import annotations

import importlib

import pytest

from leases.allocator import InsideTransaction


def test_the_error_inside_a_transaction_is_found_where_it_was() -> None:
    with pytest.warns(DeprecationWarning, match=r"import it from leases\.allocator"):
        assert importlib.import_module("leases.engine.transaction").InsideTransaction is InsideTransaction
    with pytest.raises(AttributeError):
        importlib.import_module("leases.engine.transaction").rows  # noqa: B018
