"""YAML and base64 as people give them, read with limits: no aliases, no tags that construct, bounded size and depth."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

import yaml

MOST_BYTES = 4 << 20
"""Bytes of a text, after which it is refused. The longest CRD of DPF has 0.2 MB."""
MOST_DEPTH = 60
"""Levels of nesting, after which a text is refused. The CRDs of DPF have about 35."""


class YamlRefused(ValueError):
    """A text that is not acceptable YAML. The message does not quote it, because it may be a secret."""


def documents(text: str, *, most_bytes: int = MOST_BYTES) -> list[Any]:
    """Return the documents of a YAML text, without empty ones. Raises YamlRefused."""
    if len(text.encode("utf-8", "surrogatepass")) > most_bytes:
        raise YamlRefused(f"It is longer than {most_bytes >> 10} KiB.")
    try:
        for _ in _checked(text):
            pass
        return [one for one in yaml.load_all(text, Loader=_Loader) if one is not None]
    except yaml.YAMLError as error:
        raise YamlRefused(f"It is not valid YAML{_where(error)}.") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, YamlRefused):
            raise
        raise YamlRefused("It has a value that cannot be read.") from None


def decoded(text: str) -> bytes:
    """Decode base64, with or without line breaks. Raises YamlRefused."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise YamlRefused("It is not valid base64.") from None


def _checked(text: str) -> Iterator[None]:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise YamlRefused(f"It uses anchors or aliases (line {line}), which are not accepted.")
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            depth += 1
            if depth > MOST_DEPTH:
                raise YamlRefused(f"It is nested more than {MOST_DEPTH} levels deep.")
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            depth -= 1
        yield


class _Loader(yaml.CSafeLoader):
    """Reads YAML as Kubernetes does: every key is a text and occurs once, and dates are texts."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if isinstance(key, bool | int | float):
            key = key_node.value
        if not isinstance(key, str):
            raise YamlRefused(f"The key in line {key_node.start_mark.line + 1} is not a text.")
        if key in made:
            raise YamlRefused(f"A key occurs twice (line {key_node.start_mark.line + 1}).")
        made[key] = loader.construct_object(value_node, deep=True)
    return made


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: node.value)


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
