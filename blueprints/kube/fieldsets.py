"""The entries of `managedFields`, in which the API server records who set which fields of an object.

The format is documented at https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from blueprints.kube.objects import Json, Object


def claimed(entries: Sequence[Json], manager: str) -> list[Json] | None:
    """Return the entries with those of `manager` by create or update merged into its entry by apply.

    Returns None if it has no such entries. Entries of the status subresource and of other managers stay as they are.
    """
    if not any(_is_ours(one, manager) and one.get("operation") == "Update" for one in entries):
        return None
    merged: Json | None = None
    kept: list[Json] = []
    for one in entries:
        if not _is_ours(one, manager):
            kept.append(one)
        elif merged is None:
            merged = {**one, "operation": "Apply"}
        else:
            merged["fieldsV1"] = _union(merged.get("fieldsV1"), one.get("fieldsV1"))
    return [*kept, *([merged] if merged else [])]


def other_managers(found: Object, manager: str, path: str = "spec") -> dict[str, tuple[str, ...]]:
    """Return the other managers that own fields below a top-level field, each with the paths of these fields."""
    owners: dict[str, tuple[str, ...]] = {}
    for one in found.managers:
        name, fields = one.get("manager"), one.get("fieldsV1")
        below = fields.get(f"f:{path}") if isinstance(fields, dict) else None
        if isinstance(name, str) and name != manager and isinstance(below, dict):
            owners[name] = (*owners.get(name, ()), *(_paths(below, path)))[:100]
    return owners


def _is_ours(entry: Json, manager: str) -> bool:
    return entry.get("manager") == manager and not entry.get("subresource")


def _union(left: Any, right: Any) -> Any:
    if not isinstance(left, dict) or not isinstance(right, dict):
        return left if isinstance(left, dict) else right
    return left | {key: _union(left.get(key), value) for key, value in right.items()}


def _paths(fields: Json, path: str) -> Iterator[str]:
    below = {key: value for key, value in fields.items() if key != "." and isinstance(value, dict)}
    if not below:
        yield path
    for key, value in below.items():
        kind, _, name = key.partition(":")
        yield from _paths(value, f"{path}.{name}" if kind == "f" else f"{path}[{name}]")
