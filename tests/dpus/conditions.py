"""Conditions of a status, as metav1.Condition."""

from __future__ import annotations

import datetime as dt
from typing import Any

from tests.dpus.api import Json


def now() -> str:
    """Return the time as Kubernetes writes it."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def find(status: Json, of_type: str) -> Json | None:
    """Return a condition of a status."""
    return next((one for one in status.get("conditions") or [] if one["type"] == of_type), None)


def is_true(item: Json, of_type: str) -> bool:
    """Return whether a condition of an object is true."""
    found = find(item.get("status") or {}, of_type)
    return found is not None and found["status"] == "True"


def remove(status: Json, of_type: str) -> None:
    """Remove a condition."""
    if find(status, of_type):
        status["conditions"] = [one for one in status["conditions"] if one["type"] != of_type]


def put(status: Json, of_type: str, true: bool, reason: str = "", message: str = "", generation: int = 0) -> None:
    """Set a condition. Its time changes only with its status; its reason is its type if there is no other."""
    wanted: dict[str, Any] = {
        "type": of_type, "status": "True" if true else "False", "reason": reason or of_type, "message": message,
    }  # fmt: skip
    if generation:
        wanted["observedGeneration"] = generation
    old = find(status, of_type)
    same = old is not None and old["status"] == wanted["status"]
    wanted["lastTransitionTime"] = old["lastTransitionTime"] if old is not None and same else now()
    if old is None:
        status.setdefault("conditions", []).append(wanted)
    else:
        old.clear()
        old.update(wanted)
