"""Hosts from a CSV file. The first line names the fields of a registration, nested ones as in `bmc.address`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

from drydock.cli.hosts.rows import MOST, Row, bounded, wrong
from drydock_agent.identity import identity

OPEN = ("bmc", "credential")
"""Fields whose own fields depend on the driver, so that any name below them is accepted here."""
_NAMES = ("serial", "uuid")


def read(text: str, path: str, schema: Mapping[str, Any]) -> list[Row]:
    """Return the hosts of a CSV text. `schema` is the JSON Schema of registrations. Raises InvalidRequest."""
    reader = csv.reader(io.StringIO(text), skipinitialspace=True, strict=True)
    lines: list[tuple[int, list[str]]] = []
    try:
        for line in reader:
            if any(map(str.strip, line)):
                lines.append((reader.line_num, [cell.strip() for cell in line]))
            if len(lines) > MOST + 1:
                break
    except csv.Error as error:
        wrong(path, f"line {reader.line_num}: {error}")
    if not lines:
        wrong(path, "it is empty; the first line must name the fields, such as name,bmc.driver,bmc.address")
    bounded(lines[1:], path)
    head = _head(lines[0][1], path, schema)
    return [_row(number, cells, head, schema) for number, cells in lines[1:]]


def _head(names: list[str], path: str, schema: Mapping[str, Any]) -> list[str]:
    known = mapping_of(schema)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        wrong(path, f"the field {twice[0]!r} occurs twice in the first line")
    for name in names:
        if name.partition(".")[0] not in known and name.partition(".")[0] not in OPEN:
            wrong(path, f"the first line has the unknown field {name!r}. Valid fields: {', '.join(sorted(known))}")
    return names


def mapping_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schemas of the fields."""
    found = schema.get("properties", {})
    return found if isinstance(found, Mapping) else {}


def _row(number: int, cells: list[str], head: list[str], schema: Mapping[str, Any]) -> Row:
    row = Row(where=f"line {number}")
    if len(cells) > len(head):
        row.refuse(f"it has {len(cells)} values, but the first line has {len(head)} fields")
    for name, text in zip(head, cells, strict=False):
        if text:
            _put(row, name, text, schema)
    row.name = str(row.registration.get("name") or row.registration.get("address") or "")
    for name in _NAMES:
        given = row.registration.get(name)
        if given and not identity(str(given)):
            row.refuse(f"{name}: {given!r} is a placeholder that many machines have; leave it empty")
    return row


def _put(row: Row, name: str, text: str, schema: Mapping[str, Any]) -> None:
    """Set a field. Objects and lists may be JSON; the values of a list may also be separated by semicolons."""
    key, _, below = name.partition(".")
    if below:
        inner = row.registration.setdefault(key, {})
        if not isinstance(inner, dict):
            row.refuse(f"{name}: give either {key} as JSON, or its fields")
            return
        inner[below] = text
        return
    value: Any = text
    if text[0] in "[{":
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            row.refuse(f"{name}: it is not valid JSON")
    elif _is_list(mapping_of(schema).get(key, {})):
        value = [one.strip() for one in text.split(";") if one.strip()]
    row.registration[key] = value


def _is_list(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "array" or any(one.get("type") == "array" for one in schema.get("anyOf", ()))
