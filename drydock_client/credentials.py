"""Credentials: secrets that blueprints refer to by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drydock_client.operations import Operations, operation
from drydock_client.values import CredentialInfo, ResourceInfo


class Credentials(Operations):
    """Secrets that blueprints refer to by name. They can be stored and replaced, but never read back."""

    @operation("GET", "credentials", "List credentials", scope="operate", query="Reading")
    def credentials(self, *, capabilities: bool = False) -> list[CredentialInfo]:
        """List credentials without their secrets, each with the state of its polls."""

    @operation("GET", "credentials/{name}", "Get a credential", scope="operate")
    def credential(self, name: str) -> CredentialInfo:
        """Return a credential without its secrets, with the capabilities of its clouds."""

    @operation("POST", "credentials/{name}/read", "Poll an account", scope="operate", status=202, body="Empty")
    def read_credential(self, name: str) -> CredentialInfo:
        """Make all polls of a credential due now, for a worker to carry out. 409 if there is nothing to poll."""

    @operation(
        "POST", "credentials", "Add a credential", scope="operate", status=201, body="NewCredential",
        location="credentials/{0.name}",
    )  # fmt: skip
    def add_credential(self, name: str, secrets: Mapping[str, Any], *, note: str = "") -> CredentialInfo:
        """Store secrets under a name. Blueprints that already refer to this name are tried again."""

    @operation("PATCH", "credentials/{name}", "Change a credential", scope="operate", body="CredentialChange")
    def change_credential(
        self, name: str, *, secrets: Mapping[str, Any] | None = None, note: str | None = None
    ) -> CredentialInfo:
        """Replace all secrets of a credential, its note, or both. An argument that is None changes nothing."""

    @operation("DELETE", "credentials/{name}", "Remove a credential", scope="operate")
    def remove_credential(self, name: str) -> None:
        """Remove a credential. 409 while a blueprint refers to the credential."""

    @operation(
        "PUT", "resources/{id}/credential", "Set the credential of a resource", scope="operate", body="OwnCredential"
    )
    def set_resource_credential(self, id: int, *, secrets: Mapping[str, Any] | None = None) -> ResourceInfo:
        """Replace the secrets of one resource, such as the password of its BMC. If `secrets` is None, remove them.

        A secret of the resource takes precedence over the secret of the same name in the blueprint's credential.
        """
