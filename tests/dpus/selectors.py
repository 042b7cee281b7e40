"""Label selectors, as metav1.LabelSelector."""

from __future__ import annotations

from tests.dpus.api import Json


def matches(selector: Json | None, labels: dict[str, str]) -> bool:
    """Return whether labels match. Without a selector, or with an empty one, all do."""
    selector = selector or {}
    equal = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return equal and all(_holds(one, labels) for one in selector.get("matchExpressions") or [])


def is_empty(selector: Json | None) -> bool:
    """Return whether a selector is absent, or says nothing."""
    return not selector or not (selector.get("matchLabels") or selector.get("matchExpressions"))


def _holds(one: Json, labels: dict[str, str]) -> bool:
    key, values = one["key"], one.get("values") or []
    match one["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    raise ValueError(f"{one['operator']!r} is not an operator of a label selector")
