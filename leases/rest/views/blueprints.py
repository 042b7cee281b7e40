"""Blueprints and the kinds they select."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse

from leases import hostcalls
from leases.client.values import BlueprintChange, BlueprintInfo, HostKey, KindInfo, ResourceInfo
from leases.rest import operating, queries
from leases.rest.endpoint import Asked, Endpoint, Page, json_response, operation
from leases.rest.models import Scope


class Blueprints(Endpoint):
    """All blueprints."""

    @operation("List blueprints", gives=list[BlueprintInfo], query=queries.OfType)
    def get(self, asked: Asked) -> Page:
        """In the order in which they are tried. Only operators see configs and errors."""
        return Page(results=asked.client.blueprints(type=asked.query.type))

    @operation(
        "Add a blueprint", gives=BlueprintInfo, status=201, scope=Scope.OPERATE, body=operating.NewBlueprint,
        headers={"Location": "Its address."},
    )  # fmt: skip
    def post(self, asked: Asked) -> HttpResponse:
        """It is checked first, and stays disabled, with `problems`, when its check finds something fatal."""
        body = asked.body
        change = _change(body, "name", "kind", "config", "enabled")
        made = asked.client.add_blueprint(body.name, body.kind, body.config, change, enabled=body.enabled)
        return json_response(made, status=201, headers={"Location": f"/api/v1/blueprints/{made.name}"})


def _change(body: operating.BlueprintChange, *without: str) -> BlueprintChange:
    return BlueprintChange(**body.model_dump(exclude=set(without)))


class Blueprint(Endpoint):
    """One blueprint."""

    @operation("Look at a blueprint", gives=BlueprintInfo)
    def get(self, asked: Asked, name: str) -> BlueprintInfo:
        """How many of its resources are there, and what is remembered against it."""
        return asked.client.blueprint(name)

    @operation("Change a blueprint", gives=BlueprintInfo, scope=Scope.OPERATE, body=operating.BlueprintChange)
    def patch(self, asked: Asked, name: str) -> BlueprintInfo:
        """Another kind or config raises its generation."""
        return asked.client.change_blueprint(name, _change(asked.body))

    @operation("Remove a blueprint", scope=Scope.OPERATE)
    def delete(self, asked: Asked, name: str) -> None:
        """409, with what needs it, while a resource or lease does."""
        asked.client.remove_blueprint(name)


def _switching(act: str, summary: str) -> Any:
    """The address of one act on a blueprint."""

    class Act(Endpoint):
        """An act of operators."""

        @operation(summary, gives=BlueprintInfo, scope=Scope.OPERATE)
        def post(self, asked: Asked, name: str) -> BlueprintInfo:
            """The blueprint as it is then."""
            return asked.client.switch_blueprint(name, act)

    return Act


ACTS = {
    act: _switching(act, summary)
    for act, summary in (
        ("check", "Look whether it could work"),
        ("enable", "Let it serve"),
        ("disable", "Let it serve nobody"),
        ("drain", "Build nothing new, and remove idle resources"),
        ("undrain", "Let it serve again"),
    )
}


class Registered(Endpoint):
    """Resources that are registered by hand."""

    @operation(
        "Register a resource", gives=ResourceInfo, status=201, scope=Scope.OPERATE, body=operating.Registration,
        headers={"Location": "Its address."},
    )  # fmt: skip
    def post(self, asked: Asked, name: str) -> HttpResponse:
        """What is to be said stands in `registration` of the blueprint's kind."""
        made = asked.client.register(name, asked.body.model_dump())
        return json_response(made, status=201, headers={"Location": f"/api/v1/resources/{made.id}"})


class HostKeys(Endpoint):
    """Keys of hosts that are not registered yet."""

    @operation(
        "Look at the keys that a host shows", gives=list[HostKey], scope=Scope.OPERATE, body=operating.HostAddress
    )
    def post(self, asked: Asked, name: str) -> Page:
        """Compare the fingerprints with what the host itself says before it is registered with these keys: whoever is
        between could show others. Nothing is stored."""
        given = asked.body
        with hostcalls.calling(asked.token.user_id, lambda: f"{given.address} port {given.port}"):
            return Page(results=asked.client.host_keys(name, given.address, port=given.port))


class Kinds(Endpoint):
    """What blueprints may select."""

    @operation("List kinds", gives=list[KindInfo], query=queries.OfType)
    def get(self, asked: Asked) -> Page:
        """With the JSON Schemas of what they understand."""
        return Page(results=asked.client.kinds(type=asked.query.type))


class Kind(Endpoint):
    """One kind."""

    @operation("Look at a kind", gives=KindInfo)
    def get(self, asked: Asked, name: str) -> KindInfo:
        """The JSON Schemas of its config, requirements, attributes and registration."""
        return asked.client.kind(name)
