"""Names that documentation once called public work on, with a warning."""

from __future__ import annotations

import importlib

import pytest

MOVED = [
    ("leases.engine.transaction", "InsideTransaction", "leases.allocator"),
    ("leases.client", "Client", "drydock_client.protocol"),
    ("leases.client", "LeaseFailed", "drydock_client.errors"),
    ("leases.client", "LeaseInfo", "drydock_client.values"),
    ("leases.requests", "LeaseRequest", "leases.validation.requests"),
    ("drydock_client.keeping", "token", "drydock_client.token_store"),
]


@pytest.mark.parametrize(("old", "name", "new"), MOVED)
def test_a_moved_name_is_found_where_it_was(old: str, name: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"import it from {new}"):
        found = getattr(importlib.import_module(old), name)
    assert found is getattr(importlib.import_module(new), name)


VALIDATION = "blueprints.cloud.validation"
RENAMED = [
    (f"{VALIDATION}.ground", "Ground", f"{VALIDATION}.environment", "Environment"),
    (f"{VALIDATION}.marks", "marks", f"{VALIDATION}.tags", "run_tags"),
]


@pytest.mark.parametrize(("old", "name", "new", "renamed"), RENAMED)
def test_a_renamed_name_is_found_where_it_was(old: str, name: str, new: str, renamed: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"import {renamed} from {new}"):
        found = getattr(importlib.import_module(old), name)
    assert found is getattr(importlib.import_module(new), renamed)


@pytest.mark.parametrize("old", sorted({old for old, *_ in (*MOVED, *RENAMED)}))
def test_another_name_is_not_found(old: str) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(importlib.import_module(old), "nothing")  # noqa: B009
