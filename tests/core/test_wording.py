"""What people read in help texts, schemas and generated pages is plain English."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import click
import pytest
import typer
from drf_spectacular.generators import SchemaGenerator

from blueprints import registry
from drydock.cli import program
from drydock.reference import events, settings, states
from leases.operations.instances import InstanceRequest
from leases.rest.bodies import BlueprintChange, Quota
from leases.validation.offer_query import OfferSearch
from leases.validation.requests import LeaseRequest

RIDDLES = re.compile(
    r"\b(given up|gave up|so (many|much)\b(?! (that|as))|not known here|as it may be told|millicores? are)",
    re.IGNORECASE,
)


def helped() -> Iterator[str]:
    """Help of every command, argument and option."""
    yield from _of(typer.main.get_command(program.app))


def _of(command: click.Command) -> Iterator[str]:
    yield f"{command.name}: {command.help or ''}"
    for one in command.params:
        yield f"{command.name} {one.name}: {getattr(one, 'help', None) or ''}"
    for below in getattr(command, "commands", {}).values():
        yield from _of(below)


def schemas() -> Iterator[str]:
    models: list[Any] = [LeaseRequest, InstanceRequest, OfferSearch, BlueprintChange, Quota]
    for name in registry.names():
        kind = registry.kind(name)
        models += [kind.Config, kind.Requirements]
    for model in models:
        yield from _described(f"{model.__module__}.{model.__name__}", model.model_json_schema())


def _described(where: str, node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(said := node.get("description"), str):
            yield f"{where}: {said}"
        for name, below in node.items():
            yield from _described(f"{where}.{name}", below)
    elif isinstance(node, list):
        for below in node:
            yield from _described(where, below)


PAGES = {
    "help": helped, "schemas": schemas, "settings": lambda: settings.page().splitlines(),
    "events": lambda: events.page().splitlines(), "states": lambda: states.page().splitlines(),
    "openapi": lambda: json.dumps(SchemaGenerator().get_schema(public=True), indent=0).splitlines(),
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_no_riddles_in_what_people_read(page: str) -> None:
    lines = list(PAGES[page]())
    assert len(lines) > 10
    assert [line for line in lines if RIDDLES.search(line)] == []
