"""Blueprints and the kinds that they select."""

from __future__ import annotations

from django.http import HttpResponse

from drydock_client.values import BlueprintChange, BlueprintInfo, HostKey
from leases import hostcalls
from leases.rest import operating
from leases.rest.endpoint import Asked, Endpoint, Page, json_response, operation
from leases.rest.models import Scope


class Blueprints(Endpoint):
    """The collection of blueprints."""

    @operation(
        "Add a blueprint", gives=BlueprintInfo, status=201, scope=Scope.OPERATE, body=operating.NewBlueprint,
        headers={"Location": "Its address."},
    )  # fmt: skip
    def post(self, asked: Asked) -> HttpResponse:
        """Check and add a blueprint. If the check finds a fatal problem, the blueprint stays disabled and `problems`
        lists what was found."""
        body = asked.body
        change = _change(body, "name", "kind", "config", "enabled")
        made = asked.client.add_blueprint(body.name, body.kind, body.config, change, enabled=body.enabled)
        return json_response(made, status=201, headers={"Location": f"/api/v1/blueprints/{made.name}"})


def _change(body: operating.BlueprintChange, *without: str) -> BlueprintChange:
    return BlueprintChange(**body.model_dump(exclude=set(without)))


class Blueprint(Endpoint):
    """A single blueprint."""

    @operation("Change a blueprint", gives=BlueprintInfo, scope=Scope.OPERATE, body=operating.BlueprintChange)
    def patch(self, asked: Asked, name: str) -> BlueprintInfo:
        """Change the given fields. A new kind or config increases the blueprint's generation."""
        return asked.client.change_blueprint(name, _change(asked.body))


class HostKeys(Endpoint):
    """The host keys of a host that is not registered yet."""

    @operation(
        "Look at the keys that a host shows", gives=list[HostKey], scope=Scope.OPERATE, body=operating.HostAddress
    )
    def post(self, asked: Asked, name: str) -> Page:
        """Return the keys that the host presents. Before you register it, compare their fingerprints on the host's own
        console: an attacker between you and the host could present other keys. Nothing is stored."""
        given = asked.body
        with hostcalls.calling(asked.token.user_id, lambda: f"{given.address} port {given.port}"):
            return Page(results=asked.client.host_keys(name, given.address, port=given.port))
