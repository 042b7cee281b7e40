"""Objects of DPF as values, for tests without a server."""

from __future__ import annotations

from typing import Any

from blueprints.kube import Object


def made(kind: str, name: str, *, spec: Any = None, status: Any = None, **meta: Any) -> Object:
    """Return an object as a server would send it."""
    metadata = {"name": name, "namespace": "dpf", "uid": f"uid-{name}", "resourceVersion": "1", "generation": 1, **meta}
    body = {"kind": kind, "metadata": metadata, "spec": spec or {}, "status": status or {}}
    return Object.of(body)


def condition(type_: str, status: str, reason: str = "", message: str = "") -> dict[str, str]:
    """Return a condition."""
    return {"type": type_, "status": status, "reason": reason, "message": message}
