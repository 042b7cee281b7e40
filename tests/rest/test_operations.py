"""The registry of operations: clients, functions and addresses follow from one declaration."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from drydock_client.http import HttpClient
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


@pytest.mark.parametrize("client", [HttpClient, LocalClient])
def test_clients_have_all_that_is_declared_and_leave_nothing_open(client: type[Client]) -> None:
    assert not inspect.isabstract(client)
    for name in OPERATIONS:
        assert inspect.signature(getattr(client, name)) == inspect.signature(getattr(Client, name)), name


class _Sent:
    """Stands for the connection: records what a client sends, and answers with nothing."""

    def send(self, method: str, path: str, body: dict[str, Any], **_: Any) -> None:
        self.body = body


def test_optional_parameters_are_not_sent_to_servers_that_may_not_know_them() -> None:
    made = HttpClient.__new__(HttpClient)
    made.http, declared = _Sent(), replace(OPERATIONS["confirm_agent"], result=None)  # type: ignore[assignment]
    for endpoint, sent in (("", {}), ("10.0.0.5:1337", {"endpoint": "10.0.0.5:1337"})):
        made.carry_out(declared, {"id": 1, "fingerprint": "ab", "endpoint": endpoint})
        assert made.http.body == {"fingerprint": "ab"} | sent


@pytest.mark.parametrize("declared", OPERATIONS.values(), ids=lambda one: one.name)
def test_each_declared_operation_has_its_address(declared: Operation) -> None:
    for act, (summary, _) in (declared.acts or {"": (declared.summary, "")}).items():
        address = declared.path.replace("{act}", act)
        for variable, converter in (
            ("id", "id:id"), ("name", "word:name"), ("blueprint", "word:name"), ("user", "user:user"),
        ):  # fmt: skip
            address = address.replace(f"{{{variable}}}", f"<{converter}>")
        found = getattr(V1[address], declared.method.lower()).operation
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
