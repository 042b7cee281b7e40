"""Tags as Compute Engine keeps them: labels where they fit, else one metadata item that holds the rest as JSON.

A label's name has 1-63 characters [a-z0-9_-] and begins with a letter, its value 0-63 of them
(docs.cloud.google.com/compute/docs/labeling-resources). Lists can be filtered by labels alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
VALUE = re.compile(r"[a-z0-9_-]{0,63}")
REST = "drydock-tags"
"""The metadata item with the tags that are no labels."""


def fits(name: str, value: str) -> bool:
    """Whether a tag can be a label as it is."""
    return NAME.fullmatch(name) is not None and VALUE.fullmatch(value) is not None


def labels(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags that are labels."""
    return {name: value for name, value in tags.items() if fits(name, value)}


def rest(tags: Mapping[str, str]) -> str:
    """The other tags, as the metadata item has them; empty where there are none."""
    others = {name: value for name, value in tags.items() if not fits(name, value)}
    return json.dumps(others, sort_keys=True) if others else ""


def tags(labels: Mapping[str, str], rest: str) -> dict[str, str]:
    """Both together, as they were given. A damaged rest counts as none."""
    try:
        others = json.loads(rest or "{}")
    except ValueError:
        others = {}
    return {**labels, **{str(name): str(value) for name, value in dict(others).items()}}


def bears(found: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether all wanted tags are among the found ones."""
    return all(found.get(name) == value for name, value in wanted.items())


def filter_by(tags: Mapping[str, str]) -> str:
    """The filter of a list call; tags that are no labels are looked at after reading."""
    return " AND ".join(f'labels.{name}="{value}"' for name, value in sorted(labels(tags).items()))
