"""What operators do, over HTTP."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from drydock_client.http.connection import Connection
from drydock_client.http.leases import pages
from drydock_client.values import (
    Attention,
    AuthorizationInfo,
    BlueprintChange,
    BlueprintInfo,
    CredentialInfo,
    HostKey,
    KindInfo,
    PasswordInfo,
    QuotaInfo,
    QuotaLimit,
    ResourceInfo,
    UserInfo,
    from_json,
    to_json,
)

_MOST = 1 << 30


class HttpResources:
    """Resources of `drydock_client.operating.Operating` on a server, and their upkeep."""

    http: Connection

    def resources(
        self, *, type: str = "", blueprint: str = "", state: str = "", name: str = "", gone: bool = False
    ) -> list[ResourceInfo]:
        query = {"type": type, "blueprint": blueprint, "state": state, "name": name, "gone": gone}
        return [from_json(ResourceInfo, one) for one in pages(self.http, "resources", query, _MOST)]

    def resource(self, id: int) -> ResourceInfo:
        return from_json(ResourceInfo, self.http.get(f"resources/{id}"))

    def change_resource(self, id: int, act: str, **given: Any) -> ResourceInfo:
        return from_json(ResourceInfo, self.http.send("POST", f"resources/{id}/{act}", given))

    def register(self, blueprint: str, registration: Mapping[str, Any]) -> ResourceInfo:
        found = self.http.send("POST", f"blueprints/{blueprint}/resources", dict(registration))
        return from_json(ResourceInfo, found)

    def host_keys(self, blueprint: str, address: str, *, port: int = 22) -> list[HostKey]:
        found = self.http.send("POST", f"blueprints/{blueprint}/host-keys", {"address": address, "port": port})
        return [from_json(HostKey, one) for one in found["results"]]

    def change_registration(self, id: int, changed: Mapping[str, Any]) -> ResourceInfo:
        return from_json(ResourceInfo, self.http.send("PATCH", f"resources/{id}", dict(changed)))

    def reclaim(self, *, type: str = "", blueprint: str = "") -> list[int]:
        found = self.http.send("POST", "reclaim", {"type": type, "blueprint": blueprint})
        return [int(pk) for pk in found["reclaimed"]]

    def sweep(self) -> int:
        return int(self.http.send("POST", "sweep")["count"])

    def clear_errors(self, *, blueprint: str = "") -> int:
        return int(self.http.send("POST", "errors/clear", {"blueprint": blueprint})["count"])

    def resolve(self, *, lease: int | None = None, resource: int | None = None, message: str = "") -> None:
        what = f"leases/{lease}" if lease is not None else f"resources/{resource}"
        self.http.send("POST", f"{what}/resolve", {"message": message})

    def attention(self) -> list[Attention]:
        return [from_json(Attention, one) for one in self.http.get("attention")["results"]]


class HttpBlueprints:
    """Blueprints and kinds of `drydock_client.operating.Operating` on a server."""

    http: Connection

    def blueprints(self, *, type: str = "") -> list[BlueprintInfo]:
        return [from_json(BlueprintInfo, one) for one in self.http.get("blueprints", {"type": type})["results"]]

    def blueprint(self, name: str) -> BlueprintInfo:
        return from_json(BlueprintInfo, self.http.get(f"blueprints/{name}"))

    def add_blueprint(
        self, name: str, kind: str, config: Mapping[str, Any], change: BlueprintChange, *, enabled: bool = True
    ) -> BlueprintInfo:
        given = {**_changed(change), "name": name, "kind": kind, "config": dict(config), "enabled": enabled}
        return from_json(BlueprintInfo, self.http.send("POST", "blueprints", given))

    def change_blueprint(self, name: str, change: BlueprintChange) -> BlueprintInfo:
        return from_json(BlueprintInfo, self.http.send("PATCH", f"blueprints/{name}", _changed(change)))

    def switch_blueprint(self, name: str, act: str) -> BlueprintInfo:
        return from_json(BlueprintInfo, self.http.send("POST", f"blueprints/{name}/{act}"))

    def remove_blueprint(self, name: str) -> None:
        self.http.send("DELETE", f"blueprints/{name}")

    def kinds(self, *, type: str = "") -> list[KindInfo]:
        return [from_json(KindInfo, one) for one in self.http.get("kinds", {"type": type})["results"]]

    def kind(self, name: str) -> KindInfo:
        return from_json(KindInfo, self.http.get(f"kinds/{name}"))


def _changed(change: BlueprintChange) -> dict[str, Any]:
    found = {field.name: getattr(change, field.name) for field in dataclasses.fields(change)}
    return {name: to_json(value) for name, value in found.items() if value is not None}


class HttpAccess:
    """Authorizations, quotas and credentials of `drydock_client.operating.Operating` on a server."""

    http: Connection

    def authorizations(self, *, blueprint: str = "", state: str = "") -> list[AuthorizationInfo]:
        found = self.http.get("authorizations", {"blueprint": blueprint, "state": state})
        return [from_json(AuthorizationInfo, one) for one in found["results"]]

    def ask_authorization(self, blueprint: str, *, message: str = "") -> AuthorizationInfo:
        given = {"blueprint": blueprint, "message": message}
        return from_json(AuthorizationInfo, self.http.send("POST", "authorizations", given))

    def decide_authorization(
        self, blueprint: str, *, allow: bool, user: str = "", group: str = "", message: str = ""
    ) -> AuthorizationInfo:
        given = {"blueprint": blueprint, "allow": allow, "user": user, "group": group, "message": message}
        return from_json(AuthorizationInfo, self.http.send("POST", "authorizations/decide", given))

    def authorization(self, id: int) -> AuthorizationInfo:
        return from_json(AuthorizationInfo, self.http.get(f"authorizations/{id}"))

    def settle_authorization(self, id: int, *, allow: bool, message: str = "") -> AuthorizationInfo:
        act = "approve" if allow else "decline"
        return from_json(AuthorizationInfo, self.http.send("POST", f"authorizations/{id}/{act}", {"message": message}))

    def quotas(self) -> list[QuotaInfo]:
        return [from_json(QuotaInfo, one) for one in self.http.get("quotas")["results"]]

    def set_quota(self, *, user: str = "", group: str = "", limits: Mapping[str, QuotaLimit]) -> QuotaInfo:
        given = {"user": user, "group": group, **{name: to_json(value) for name, value in limits.items()}}
        return from_json(QuotaInfo, self.http.send("PUT", "quotas", given))

    def remove_quota(self, *, user: str = "", group: str = "") -> None:
        self.http.send("DELETE", "quotas", query={"user": user, "group": group})

    def credentials(self, *, capabilities: bool = False) -> list[CredentialInfo]:
        found = self.http.get("credentials", {"capabilities": capabilities})
        return [from_json(CredentialInfo, one) for one in found["results"]]

    def credential(self, name: str) -> CredentialInfo:
        return from_json(CredentialInfo, self.http.get(f"credentials/{name}"))

    def read_credential(self, name: str) -> CredentialInfo:
        return from_json(CredentialInfo, self.http.send("POST", f"credentials/{name}/read"))

    def add_credential(self, name: str, secrets: Mapping[str, Any], *, note: str = "") -> CredentialInfo:
        given = {"name": name, "secrets": dict(secrets), "note": note}
        return from_json(CredentialInfo, self.http.send("POST", "credentials", given))

    def change_credential(
        self, name: str, *, secrets: Mapping[str, Any] | None = None, note: str | None = None
    ) -> CredentialInfo:
        given = {"secrets": None if secrets is None else dict(secrets), "note": note}
        return from_json(CredentialInfo, self.http.send("PATCH", f"credentials/{name}", given))

    def remove_credential(self, name: str) -> None:
        self.http.send("DELETE", f"credentials/{name}")


class HttpUsers:
    """Users and groups of `drydock_client.operating.Operating` on a server."""

    http: Connection

    def users(self) -> list[UserInfo]:
        return [from_json(UserInfo, one) for one in self.http.get("users")["results"]]

    def user(self, user: str) -> UserInfo:
        return from_json(UserInfo, self.http.get(f"users/{user}"))

    def add_user(
        self, user: str, *, operator: bool = False, groups: Collection[str] = (), password: str | None = None
    ) -> PasswordInfo:
        given = {"user": user, "operator": operator, "groups": list(groups), "password": password}
        return from_json(PasswordInfo, self.http.send("POST", "users", given))

    def set_user_password(self, user: str, *, password: str | None = None) -> PasswordInfo:
        return from_json(PasswordInfo, self.http.send("POST", f"users/{user}/password", {"password": password}))

    def switch_user(self, user: str, act: str) -> UserInfo:
        return from_json(UserInfo, self.http.send("POST", f"users/{user}/{act}"))

    def change_user_groups(self, user: str, *, add: Collection[str] = (), remove: Collection[str] = ()) -> UserInfo:
        given = {"add": list(add), "remove": list(remove)}
        return from_json(UserInfo, self.http.send("POST", f"users/{user}/groups", given))
