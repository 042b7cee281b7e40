"""Blueprints, and the kinds that blueprints select."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drydock_client.operations import Operations, operation
from drydock_client.values import BlueprintChange, BlueprintInfo, KindInfo


class Blueprints(Operations):
    """Blueprints and kinds. Every user may read both; only operators may change blueprints."""

    @operation("GET", "blueprints", "List blueprints", query="OfType")
    def blueprints(self, *, type: str = "") -> list[BlueprintInfo]:
        """List blueprints in the order in which they are tried. Only operators see configs and errors."""

    @operation("GET", "blueprints/{name}", "Get a blueprint")
    def blueprint(self, name: str) -> BlueprintInfo:
        """Return a blueprint with the number of its resources and its remembered errors."""

    @operation(
        "POST", "blueprints", "Add a blueprint", scope="operate", status=201, body="NewBlueprint", spread="change",
        location="blueprints/{0.name}",
    )  # fmt: skip
    def add_blueprint(
        self, name: str, kind: str, config: Mapping[str, Any], change: BlueprintChange, *, enabled: bool = True
    ) -> BlueprintInfo:
        """Add a blueprint. If its check finds a fatal problem, the blueprint stays disabled and `problems` says why."""

    @operation(
        "PATCH", "blueprints/{name}", "Change a blueprint", scope="operate", body="BlueprintChange", spread="change"
    )
    def change_blueprint(self, name: str, change: BlueprintChange) -> BlueprintInfo:
        """Change the given fields of a blueprint. A change of its kind or config increments the generation."""

    @operation(
        "POST", "blueprints/{name}/{act}", "Enable, disable, drain, undrain or check a blueprint", scope="operate",
        acts={
            "check": ("Check a blueprint", ""), "enable": ("Enable a blueprint", ""),
            "disable": ("Disable a blueprint", ""),
            "drain": ("Drain a blueprint", ""), "undrain": ("Undrain a blueprint", ""),
        },
    )  # fmt: skip
    def switch_blueprint(self, name: str, act: str) -> BlueprintInfo:
        """Enable, disable, drain, undrain or check a blueprint, and return it."""

    @operation("DELETE", "blueprints/{name}", "Remove a blueprint", scope="operate")
    def remove_blueprint(self, name: str) -> None:
        """Remove a blueprint. 409 while resources or leases need the blueprint; the message names them."""

    @operation("GET", "kinds", "List kinds", query="OfType")
    def kinds(self, *, type: str = "") -> list[KindInfo]:
        """List the kinds with the JSON Schemas of their fields."""

    @operation("GET", "kinds/{name}", "Get a kind")
    def kind(self, name: str) -> KindInfo:
        """Return a kind with the JSON Schemas of its config, requirements, attributes and registration."""
