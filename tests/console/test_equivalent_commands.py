"""What the console says does the same from the shell and by REST: every line parses, and every page has one."""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer.main
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import RequestFactory
from django.urls import resolve, reverse

from drydock.cli.program import app
from leases.admin.toolkit import equivalent_commands
from leases.admin.toolkit.equivalent_commands import EQUIVALENTS, OF_LIST, OF_ROW
from leases.rest import parsing
from tests.admin.conftest import act, page, rows_of
from tests.admin.test_pages import many
from tests.admin.test_registered import MODELS

NAMES = {
    "id": 7,
    "host": "node-1",
    "name": "pool",
    "blueprint": "pool",
    "side": "lease",
    "side_id": 7,
    "type": "m1&x=1",
}
COMMANDS: Any = typer.main.get_command(app)
OURS = {str(model._meta.model_name): admin.site._registry[model] for model in MODELS}


def parsed(line: str) -> dict[str, Any]:
    """The parameters of a command line, as our shell reads them; nothing is run."""
    program, *words = shlex.split(line)
    assert program == "drydock"
    command = COMMANDS
    context = command.make_context(program, words)
    while hasattr(command, "resolve_command"):
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        name, command, words = command.resolve_command(context, rest)
        assert command is not None, rest
        context = command.make_context(name, words, parent=context)
    return dict(context.params)


def called(line: str) -> bool:
    """Fails unless the API takes this call: its address, method, query and body."""
    program, *words = shlex.split(line)
    assert program == "curl"
    assert words[words.index("-H") + 1] == "Authorization: Bearer $DRYDOCK_TOKEN"
    method = words[words.index("-X") + 1] if "-X" in words else "GET"
    address = urlsplit(words[-1])
    view = getattr(resolve(address.path).func.cls, method.lower())
    parsing.query(view.operation.query, address.query)
    if view.operation.body is not None:
        body = words[words.index("--json") + 1] if "--json" in words else "{}"
        view.operation.body.model_validate(json.loads(body))
    else:
        assert "--json" not in words
    return True


def test_the_shell_and_the_api_take_every_line():
    for key, found in EQUIVALENTS.items():
        shown = equivalent_commands.line_for(RequestFactory().get("/admin/"), key, NAMES)
        assert (bool(shown.command), bool(shown.call)) == (bool(found.command), bool(found.path)), key
        assert shown.command or shown.call
        assert not shown.command or parsed(shown.command) is not None
        assert not shown.call or called(shown.call)


def test_a_line_that_nobody_takes_is_noticed():
    for line in ("drydock leases --nonsense", "drydock nothing", "drydock extend", "drydock show"):
        with pytest.raises(Exception, match=r"(?i)no such|missing"):
            parsed(line)
    with pytest.raises(AttributeError):
        called('curl -H "Authorization: Bearer $DRYDOCK_TOKEN" -X DELETE http://x/api/v1/leases')


def test_every_act_and_every_model_has_its_line():
    acts = {f"{name}.{act.name}" for name, one in OURS.items() for act in getattr(one, "acts", ())}
    assert acts <= EQUIVALENTS.keys()
    assert OURS.keys() <= OF_LIST.keys()
    assert {key for keys in (*OF_LIST.values(), *OF_ROW.values()) for key in keys} <= EQUIVALENTS.keys()


def pages_of(model: Any) -> list[str]:
    """Every page of a model that a superuser is shown, for its first row."""
    name, row = f"admin:{model._meta.app_label}_{model._meta.model_name}", model.objects.order_by("pk").first()
    ours, some = OURS[row._meta.model_name], RequestFactory().get("/")
    some.user = User(is_superuser=True, is_active=True)
    found = [rows_of(model), page(row), reverse(f"{name}_history", args=(row.pk,))]
    found += [act(one.name, row) for one in ours.acts]
    found += [reverse(f"{name}_add")] if ours.has_add_permission(some) else []
    return found + ([reverse(f"{name}_delete", args=(row.pk,))] if ours.has_delete_permission(some) else [])


def test_every_page_shows_its_lines(site, lease):
    many(lease, 1)
    addresses = [reverse("admin:index"), reverse("admin:search"), *(at for model in MODELS for at in pages_of(model))]
    assert len(addresses) > 90
    for at in addresses:
        answer = site.get(at)
        assert answer.status_code == 200, at
        lines = answer.context.get("elsewhere")
        assert lines, f"{at} does not say what does the same"
        for one in lines:
            assert one.command or one.call, at
            assert not one.command or parsed(one.command) is not None
            assert not one.call or called(one.call)
