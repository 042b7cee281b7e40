"""The OpenAPI schema, which is generated from the declarations of the views alone."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from django.views import View
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from leases.rest.names import operation_id
from leases.rest.problems import ProblemDetails

BYTES = "application/octet-stream"
_REFERENCE = "#/components/schemas/{model}"
_ERRORS = {
    400: "The request is invalid. `detail` says why.", 401: "The token is missing, invalid, revoked or expired.",
    403: "The token or its user does not have permission.", 404: "The object does not exist or is not yours.",
    409: "The state of the object does not allow this.", 411: "The request has a body but no `Content-Length`.",
    413: "The body is too large.",
    415: "The content type is not supported.", 429: "Too many requests; `Retry-After` says when to try again.",
    502: "The host of the lease cannot be reached.", 503: "The database is busy.",
    504: "The host did not answer in time.", 507: "The disk, or the size limit of the lease, is full.",
}  # fmt: skip


class Wire(GenerateJsonSchema):
    """Generates JSON Schemas that match the output of `to_json`, which writes timedeltas as numbers of seconds."""

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
        """Return the schema of a timedelta: a number of seconds."""
        return {"type": "number"}


def json_schema(of: Any, mode: JsonSchemaMode) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON Schema of a type, and the schemas of the types to which it refers."""
    found = TypeAdapter(of).json_schema(ref_template=_REFERENCE, mode=mode, schema_generator=Wire)
    return found, found.pop("$defs", {})


class Schema(AutoSchema):
    """Generates the OpenAPI description of an operation from its declaration."""

    def get_operation(
        self, path: str, path_regex: str, path_prefix: str, method: str, registry: Any
    ) -> dict[str, Any] | None:
        """Return the OpenAPI operation, or None if the view's method is not a declared operation."""
        self.registry, self.path, self.path_regex = registry, path, path_regex
        self.path_prefix, self.method = path_prefix, method.upper()
        view = getattr(self.view, method.lower())
        declared = getattr(view, "operation", None)
        if declared is None:
            return None
        made = {
            "operationId": operation_id(method, path),
            "summary": declared.summary,
            "description": inspect.getdoc(view) or declared.summary,
            "tags": [tag(path)],
            "parameters": [*self._in_path(), *self._in_query(declared), *_in_headers(declared)],
            "security": self.get_auth(),
            "responses": self._responses(declared),
        }
        if declared.body is not None:
            made["requestBody"] = {"required": _needed(declared.body), "content": self._body(declared.body)}
        return made

    def _component(self, of: Any, mode: JsonSchemaMode) -> dict[str, Any]:
        """Register the schema of a model or value and of everything to which it refers, and return a reference to it.

        The schema of any other type is returned itself.
        """
        found, named = json_schema(of, mode)
        for name, schema in named.items():
            self._register(name, schema)
        if not inspect.isclass(of) or get_origin(of) is not None:
            return found
        self._register(of.__name__, found)
        return {"$ref": _REFERENCE.format(model=of.__name__)}

    def _register(self, name: str, schema: dict[str, Any]) -> None:
        component = ResolvedComponent(  # type: ignore[no-untyped-call]
            name=name, type=ResolvedComponent.SCHEMA, object=name, schema=schema
        )
        self.registry.register_on_missing(component)

    def _in_path(self) -> list[dict[str, Any]]:
        names = [piece[1:-1] for piece in self.path.split("/") if piece.startswith("{")]
        return [{"name": n, "in": "path", "required": True, "schema": _variable(n)} for n in names]

    def _in_query(self, declared: Any) -> list[dict[str, Any]]:
        found, named = json_schema(declared.query, "validation")
        for name, schema in named.items():
            self._register(name, schema)
        required = found.get("required", ())
        return [_parameter(n, "query", s, n in required) for n, s in found.get("properties", {}).items()]

    def _body(self, body: Any) -> dict[str, Any]:
        if isinstance(body, str):
            return _binary(body)
        return {"application/json": {"schema": self._component(body, "validation")}}

    def _responses(self, declared: Any) -> dict[str, Any]:
        made: dict[str, Any] = {str(declared.status): self._answer(declared)}
        if declared.gives is None:
            made = {"204": {"description": "Done."}}
        for status, what in declared.also.items():
            made[str(status)] = {"description": what}
        problem = {"application/problem+json": {"schema": self._component(ProblemDetails, "serialization")}}
        for status, what in _ERRORS.items():
            made[str(status)] = {"description": what, "content": problem}
        return made

    def _answer(self, declared: Any) -> dict[str, Any]:
        gives = declared.gives
        if gives is None:
            return {}
        content = _binary(gives) if isinstance(gives, str) else {"application/json": {"schema": self._listed(gives)}}
        if declared.or_gives:
            content[declared.or_gives] = {"schema": {"type": "string"}}
        headers = {n: {"description": d, "schema": {"type": "string"}} for n, d in declared.headers.items()}
        made = {"description": declared.summary, "content": content}
        leads = following(gives) if declared.status in (201, 202) else {}
        return made | ({"headers": headers} if headers else {}) | ({"links": leads} if leads else {})

    def _listed(self, gives: Any) -> dict[str, Any]:
        """Return the schema of a response. `list[Value]` is described as a page."""
        if get_origin(gives) is not list:
            return self._component(gives, "serialization")
        (of,) = get_args(gives)
        name = f"{of.__name__}Page"
        following = {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "`cursor` of the next page."}
        results = {"type": "array", "items": self._component(of, "serialization")}
        self._register(
            name,
            {"type": "object", "properties": {"results": results, "next": following}, "required": ["results", "next"]},
        )
        return {"$ref": _REFERENCE.format(model=name)}


def _binary(media_type: str) -> dict[str, Any]:
    """Return a schema of binary content, under its media type and also as plain bytes.

    Client generators know no other binary type.
    """
    schema = {"type": "string", "format": "binary"}
    return {one: {"schema": dict(schema)} for one in dict.fromkeys((media_type, BYTES))}


def _needed(body: Any) -> bool:
    """Return whether a request must have a body. A body without required fields may be omitted."""
    return not isinstance(body, str) and any(field.is_required() for field in body.model_fields.values())


def _variable(name: str) -> dict[str, Any]:
    if name == "id":
        return {"type": "integer", "minimum": 1, "maximum": (1 << 63) - 1}
    if name == "user":
        return {"type": "string", "minLength": 1, "pattern": "^[A-Za-z0-9_.@+-]+$", "maxLength": 150}
    return {"type": "string", "minLength": 1, "pattern": "^[A-Za-z0-9._-]+$", "maxLength": 63}


def _parameter(name: str, where: str, schema: dict[str, Any], required: bool) -> dict[str, Any]:
    about = {"description": schema.pop("description")} if "description" in schema else {}
    return {"name": name, "in": where, "required": required, "schema": schema, **about}


def _in_headers(declared: Any) -> list[dict[str, Any]]:
    word = {"type": "string", "maxLength": 255}
    return [
        {"name": name, "in": "header", "required": False, "schema": dict(word), "description": what}
        for name, what in declared.request_headers.items()
    ]


# Links from the response that creates an object to the operations on it, found by address

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
    """Return the OpenAPI tag of a path, which is the first word after the version."""
    return path.split("/v1/", 1)[-1].split("/")[0]


def following(gives: Any) -> dict[str, Any]:
    """Return the OpenAPI links of a response of this type. The result is empty for types without links."""
    name = f"list[{get_args(gives)[0].__name__}]" if get_args(gives) else getattr(gives, "__name__", "")
    if name not in _NEXT:
        return {}
    begins, variable, where = _NEXT[name]
    parameters = {f"path.{variable}": f"$response.body#{where}"}
    return {one: {"operationId": one, "parameters": parameters} for one in _operations(begins)}


_VIEWS: dict[str, type[View]] = {}


def register(views: Mapping[str, type[View]]) -> None:
    """Register the views to which links may point.

    `leases.rest.urls` calls this, because views import the schema, which therefore cannot import them.
    """
    _VIEWS.update(views)


def _operations(begins: str) -> Iterator[str]:
    for address, view in _VIEWS.items():
        if address == begins or address.startswith(f"{begins}/"):
            for method in METHODS:
                act = getattr(view, method, None)
                if act is not None and hasattr(act, "operation") and method in view.http_method_names:
                    yield operation_id(method, address)
