"""The registry of operations: clients, functions and addresses follow from one declaration."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from pydantic import ValidationError

from drydock_client.http import HttpClient
from drydock_client.http.operations import HttpOperations
from drydock_client.operations import OPERATIONS, Operation, Operations, operation
from drydock_client.protocol import Client
from leases.local import LocalClient
from leases.local.functions import FUNCTIONS, function_of
from leases.rest.declared import views
from leases.rest.urls import BY_HAND, V1


def test_each_declared_operation_has_a_function() -> None:
    assert not set(FUNCTIONS) - set(OPERATIONS)
    for declared in OPERATIONS.values():
        assert callable(function_of(declared)), declared.name


def test_a_body_without_a_model_is_made_of_the_parameters() -> None:
    body = getattr(V1["leases/<id:id>/transfer"], "post").operation.body  # noqa: B009
    assert body(to="grace").model_dump() == {"to": "grace", "message": ""}
    for wrong in ({}, {"to": 7}, {"to": "grace", "message": "x" * 2001}, {"to": "grace", "too": "much"}):
        with pytest.raises(ValidationError):
            body(**wrong)


class Recording(HttpOperations):
    """A client that keeps the bodies that it would send."""

    owner = None

    def __init__(self) -> None:
        self.http, self.bodies = self, []

    def send(self, method: str, path: str, given: Any, **_: Any) -> dict[str, Any]:
        self.bodies.append(given)
        return {"results": []}


def test_an_older_server_gets_no_field_that_it_does_not_know() -> None:
    client = Recording()
    for more in ({}, {"near": "require", "key": "a"}):
        client.carry_out(OPERATIONS["request_group"], _arguments("request_group") | {"requests": [{}]} | more)
    assert client.bodies == [{"leases": [{}]}, {"leases": [{}], "near": "require"}]


def _arguments(name: str) -> dict[str, Any]:
    known = OPERATIONS[name].parameters.values()
    return {one.name: one.default for one in known if one.default is not inspect.Parameter.empty}


@pytest.mark.parametrize("name", [name for name, one in OPERATIONS.items() if one.method not in ("GET", "DELETE")])
def test_the_server_has_the_defaults_that_the_client_does_not_send(name: str) -> None:
    declared = OPERATIONS[name]
    for act in declared.acts or [""]:
        view = V1[_address(declared.path.replace("{act}", act))]
        body = getattr(view, declared.method.lower()).operation.body
        fields = getattr(body, "model_fields", {})
        for argument, default in _arguments(name).items():
            field = fields.get(declared.names.get(argument, argument))
            if field is not None and argument not in (declared.key, declared.spread):
                assert (field.get_default() or None) == (default or None), argument


@pytest.mark.parametrize("client", [HttpClient, LocalClient])
def test_clients_have_all_that_is_declared_and_leave_nothing_open(client: type[Client]) -> None:
    assert not inspect.isabstract(client)
    for name in OPERATIONS:
        assert inspect.signature(getattr(client, name)) == inspect.signature(getattr(Client, name)), name


def _address(path: str) -> str:
    for variable, converter in (
        ("id", "id:id"), ("name", "word:name"), ("blueprint", "word:name"), ("user", "user:user"),
    ):  # fmt: skip
        path = path.replace(f"{{{variable}}}", f"<{converter}>")
    return path


@pytest.mark.parametrize("declared", OPERATIONS.values(), ids=lambda one: one.name)
def test_each_declared_operation_has_its_address(declared: Operation) -> None:
    for act, (summary, _) in (declared.acts or {"": (declared.summary, "")}).items():
        found = getattr(V1[_address(declared.path.replace("{act}", act))], declared.method.lower()).operation
        assert (found.summary, str(found.scope), found.status) == (summary, declared.scope, declared.status)


def test_what_is_written_by_hand_is_not_declared_again() -> None:
    """Usage is, because it is also sent as CSV, which clients do not read."""
    for address, view in views({}).items():
        declared = {name for name in ("get", "post", "put", "patch", "delete") if name in vars(view)}
        again = declared & set(vars(BY_HAND.get(address, object)))
        assert again == ({"get"} if address in ("usage", "usage/records") else set()), address


def test_an_operation_is_declared_once() -> None:
    with pytest.raises(ValueError, match="declared twice"):

        class Again(Operations):
            @operation("POST", "leases/{id}/retry", "Again")
            def retry(self, id: int) -> None:
                """Again."""
