"""OpenAPI links from the response that creates an object to the operations on it, found by address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from django.views import View

from leases.rest.names import operation_id

METHODS = ("get", "post", "put", "patch", "delete")
_NEXT = {
    "LeaseInfo": ("leases/<id:id>", "id", "/id"),
    "InstanceInfo": ("instances/<id:id>", "id", "/id"),
    "JobInfo": ("jobs/<id:id>", "id", "/id"),
    "ResourceInfo": ("resources/<id:id>", "id", "/id"),
    "AuthorizationInfo": ("authorizations/<id:id>", "id", "/id"),
    "NewToken": ("tokens/<id:id>", "id", "/about/id"),
    "BlueprintInfo": ("blueprints/<word:name>", "name", "/name"),
    "CredentialInfo": ("credentials/<word:name>", "name", "/name"),
    "PasswordInfo": ("users/<user:user>", "user", "/user/name"),
    "list[LeaseInfo]": ("groups/<id:id>", "id", "/results/0/group"),
}
"""For each response type: the address prefix of its operations, the path variable, and the JSON pointer to its value in
the response."""


def tag(path: str) -> str:
    """Return the OpenAPI tag of a path: its first word after the version."""
    return path.split("/v1/", 1)[-1].split("/")[0]


def following(gives: Any) -> dict[str, Any]:
    """Return the OpenAPI links of a response of this type; empty for types without links."""
    name = f"list[{get_args(gives)[0].__name__}]" if get_args(gives) else getattr(gives, "__name__", "")
    if name not in _NEXT:
        return {}
    begins, variable, where = _NEXT[name]
    parameters = {f"path.{variable}": f"$response.body#{where}"}
    return {one: {"operationId": one, "parameters": parameters} for one in _operations(begins)}


_VIEWS: dict[str, type[View]] = {}


def register(views: Mapping[str, type[View]]) -> None:
    """Register the views that links can point to.

    Called by `leases.rest.urls`: views need the schema, so this module cannot import them.
    """
    _VIEWS.update(views)


def _operations(begins: str) -> Iterator[str]:
    for address, view in _VIEWS.items():
        if address == begins or address.startswith(f"{begins}/"):
            for method in METHODS:
                act = getattr(view, method, None)
                if act is not None and hasattr(act, "operation") and method in view.http_method_names:
                    yield operation_id(method, address)
