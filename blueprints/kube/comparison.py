"""Comparison of a manifest with what the API server would store: which fields it dropped or changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from blueprints.kube.objects import Json

_METADATA = ("name", "namespace", "labels", "annotations", "finalizers", "ownerReferences")
"""The fields of metadata that are ours. The server sets the others."""
_WRITE_ONLY = {("v1", "Secret"): ("stringData",)}
"""Fields that the server stores in others (https://kubernetes.io/docs/concepts/configuration/secret/)."""


def dropped(sent: Json, stored: Json) -> list[str]:
    """Return the paths of fields in `sent` that `stored` lacks, or has with another value.

    What is only in `stored` does not count: defaults, and what others have set. Null means absent, as for the server.
    """
    api, kind = str(sent.get("apiVersion", "")), str(sent.get("kind", ""))
    loose, skipped = _is_builtin(api), _WRITE_ONLY.get((api, kind), ())
    found: list[str] = []
    for key, value in sent.items():
        if key == "metadata":
            ours = {name: value[name] for name in _METADATA if name in value}
            there = stored.get("metadata")
            found += _lost(ours, there if isinstance(there, dict) else {}, "metadata", loose=True)
        elif key not in skipped:
            found += _lost(value, stored.get(key, _ABSENT), key, loose=loose)
    return found


_ABSENT = object()


def _lost(sent: Any, stored: Any, path: str, *, loose: bool) -> Iterator[str]:
    """Yield the paths that differ. `loose` accepts that empty values are left out, as built-in types do."""
    if sent is None or (loose and stored is _ABSENT and sent in ({}, [], "", False, 0)):
        return
    if isinstance(sent, dict) and isinstance(stored, dict):
        for key, value in sent.items():
            yield from _lost(value, stored.get(key, _ABSENT), join(path, key), loose=loose)
    elif isinstance(sent, list) and isinstance(stored, list):
        for number, value in enumerate(sent):
            there = stored[number] if number < len(stored) else _ABSENT
            yield from _lost(value, there, f"{path}[{number}]", loose=loose)
    elif isinstance(sent, bool) is not isinstance(stored, bool) or sent != stored:
        yield path


def join(path: str, key: str) -> str:
    """Return the path of a field. Keys with dots or slashes, such as labels, are put in brackets."""
    if not key or any(char in key for char in "./[]"):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _is_builtin(api_version: str) -> bool:
    group = api_version.rpartition("/")[0]
    return not group or "." not in group or group.endswith(".k8s.io")
