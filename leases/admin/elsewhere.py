"""What does the same as a page from the shell and by REST, made from the table of `equivalents`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from django.http import HttpRequest
from django.urls import Resolver404, get_script_prefix, resolve

from leases.admin.equivalents import EQUIVALENTS, OF_LIST, OF_ROW, Equivalent

API = "api/v1/"


@dataclass(frozen=True, kw_only=True)
class Same:
    """A command and a call; either may be empty."""

    what: str
    command: str = ""
    call: str = ""


def of_list(request: HttpRequest, model: str) -> list[Same]:
    """For the list of a model; also for one that is not ours."""
    return [same(request, key, {}) for key in OF_LIST.get(model, ())]


def of_row(request: HttpRequest, row: Any) -> list[Same]:
    """For a row's page: the row itself, else what lists its like."""
    keys = OF_ROW.get(row._meta.model_name)
    return of_list(request, row._meta.model_name) if keys is None else [_of(request, key, row) for key in keys]


def of_act(request: HttpRequest, model: str, act: str, rows: list[Any]) -> list[Same]:
    """For the page that asks, and for those that add or delete: one line for each of the first rows."""
    key = f"{model}.{act}"
    if key not in EQUIVALENTS:
        return of_list(request, model)
    return [_of(request, key, row) for row in rows[:5]] if rows else [same(request, key, {})]


def of_history(request: HttpRequest, model: str, pk: str) -> list[Same]:
    """For what happened to a row."""
    key = f"{model}.history"
    return [same(request, key, {"id": pk})] if key in EQUIVALENTS else [same(request, "events", {})]


def _of(request: HttpRequest, key: str, row: Any) -> Same:
    return same(request, key, names_of(row))


def same(request: HttpRequest, key: str, names: Mapping[str, Any]) -> Same:
    """One line, with the names of what it is about."""
    found = EQUIVALENTS[key]
    given = {name: shlex.quote(str(value)) for name, value in names.items()}
    return Same(what=found.what, command=found.command.format(**given), call=_call(request, found, names))


def names_of(row: Any) -> dict[str, Any]:
    """What the commands and paths call a row."""
    found = {"id": row.pk, "name": getattr(row, "name", "")}
    if row._meta.model_name == "run":
        found["side"], found["side_id"] = ("lease", row.lease_id) if row.lease_id else ("resource", row.resource_id)
    if row._meta.model_name == "rememberederror":
        found["blueprint"] = row.blueprint.name
    if row._meta.model_name in ("listing", "reading", "allowance"):
        found["name"], found["type"] = row.credential.name, getattr(row, "type", "")
    return found


def _call(request: HttpRequest, found: Equivalent, names: Mapping[str, Any]) -> str:
    if not found.path:
        return ""
    quoted = {name: quote(str(value), safe="") for name, value in names.items()}
    at = f"{get_script_prefix()}{API}{found.path.format(**quoted)}"
    if not there(at.partition("?")[0]):
        return ""
    return " ".join(
        [
            "curl", *([] if found.method == "GET" else ["-X", found.method]),
            '-H "Authorization: Bearer $DRYDOCK_TOKEN"', *_body(found, names),
            shlex.quote(request.build_absolute_uri(at)),
        ]
    )  # fmt: skip


def _body(found: Equivalent, names: Mapping[str, Any]) -> list[str]:
    if not found.body:
        return []
    given = {key: one.format(**names) if isinstance(one, str) else one for key, one in found.body.items()}
    return ["--json", shlex.quote(json.dumps(given))]


def there(path: str) -> bool:
    """Whether the API has this path; the catch-all for wrong addresses does not count."""
    try:
        return bool(resolve(path).route.removeprefix("api/"))
    except Resolver404:
        return False
