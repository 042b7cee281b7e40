"""What operators do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from drydock.core.errors import InvalidRequest
from leases.client import values
from leases.operations import access, attention, blueprints, credentials, resources, upkeep, users
from leases.operations import registration as registering
from leases.operations.callers import Caller


class LocalResources:
    """Resources, and what is stuck."""

    who: Caller

    def resources(
        self, *, type: str = "", blueprint: str = "", state: str = "", name: str = "", gone: bool = False
    ) -> list[values.ResourceInfo]:
        return resources.list_(self.who, type_=type, blueprint=blueprint, state=state, name=name, gone=gone)

    def resource(self, id: int) -> values.ResourceInfo:
        return resources.get(self.who, id)

    def change_resource(self, id: int, act: str, **given: Any) -> values.ResourceInfo:
        if act == "undrain":
            return resources.drain(self.who, id, drained=False)
        acts: dict[str, Callable[..., values.ResourceInfo]] = {
            "drain": resources.drain, "quarantine": resources.quarantine, "unquarantine": resources.unquarantine,
            "retire": resources.retire, "power": resources.power, "check": resources.check,
            "force_destroy": resources.force_destroy,
        }  # fmt: skip
        if act not in acts:
            raise InvalidRequest(f"{act!r} cannot be done to a resource.", field="act")
        return acts[act](self.who, id, **given)

    def register(self, blueprint: str, registration: Mapping[str, Any]) -> values.ResourceInfo:
        return registering.register(self.who, blueprint, registration)

    def host_keys(self, blueprint: str, address: str, *, port: int = 22) -> list[values.HostKey]:
        return registering.scan(self.who, blueprint, address, port)

    def change_registration(self, id: int, changed: Mapping[str, Any]) -> values.ResourceInfo:
        return registering.change(self.who, id, changed)

    def reclaim(self, *, type: str = "", blueprint: str = "") -> list[int]:
        return upkeep.reclaim(self.who, type_=type, blueprint=blueprint)

    def sweep(self) -> int:
        return upkeep.sweep_now(self.who)

    def clear_errors(self, *, blueprint: str = "") -> int:
        return upkeep.clear_errors(self.who, blueprint=blueprint)

    def resolve(self, *, lease: int | None = None, resource: int | None = None, message: str = "") -> None:
        upkeep.resolve(self.who, lease_id=lease, resource_id=resource, message=message)

    def attention(self) -> list[values.Attention]:
        return attention.needed(self.who)


class LocalBlueprints:
    """Blueprints, and the kinds that they select."""

    who: Caller

    def blueprints(self, *, type: str = "") -> list[values.BlueprintInfo]:
        return blueprints.list_(self.who, type_=type)

    def blueprint(self, name: str) -> values.BlueprintInfo:
        return blueprints.get(self.who, name)

    def add_blueprint(
        self, name: str, kind: str, config: Mapping[str, Any], change: values.BlueprintChange, *, enabled: bool = True
    ) -> values.BlueprintInfo:
        return blueprints.add(self.who, name, kind, config, change=change, enabled=enabled)

    def change_blueprint(self, name: str, change: values.BlueprintChange) -> values.BlueprintInfo:
        return blueprints.change(self.who, name, change)

    def switch_blueprint(self, name: str, act: str) -> values.BlueprintInfo:
        if act in ("drain", "undrain"):
            return blueprints.drain(self.who, name, drained=act == "drain")
        acts = {"check": blueprints.check, "enable": blueprints.enable, "disable": blueprints.disable}
        if act not in acts:
            raise InvalidRequest(f"{act!r} cannot be done to a blueprint.", field="act")
        return acts[act](self.who, name)

    def remove_blueprint(self, name: str) -> None:
        blueprints.remove(self.who, name)

    def kinds(self, *, type: str = "") -> list[values.KindInfo]:
        return blueprints.kinds(type_=type)

    def kind(self, name: str) -> values.KindInfo:
        return blueprints.schema(name)


class LocalAccess:
    """Who may use what, how much of it, and with which credentials."""

    who: Caller

    def authorizations(self, *, blueprint: str = "", state: str = "") -> list[values.AuthorizationInfo]:
        return access.authorizations(self.who, blueprint=blueprint, state=state)

    def ask_authorization(self, blueprint: str, *, message: str = "") -> values.AuthorizationInfo:
        return access.ask(self.who, blueprint, message=message)

    def decide_authorization(
        self, blueprint: str, *, allow: bool, user: str = "", group: str = "", message: str = ""
    ) -> values.AuthorizationInfo:
        decide = access.authorize if allow else access.decline
        return decide(self.who, blueprint, user=user, group=group, message=message)

    def authorization(self, id: int) -> values.AuthorizationInfo:
        return access.authorization(self.who, id)

    def settle_authorization(self, id: int, *, allow: bool, message: str = "") -> values.AuthorizationInfo:
        return access.settle(self.who, id, allow=allow, message=message)

    def quotas(self) -> list[values.QuotaInfo]:
        return access.quotas(self.who)

    def set_quota(
        self, *, user: str = "", group: str = "", limits: Mapping[str, values.QuotaLimit]
    ) -> values.QuotaInfo:
        return access.set_quota(self.who, user=user, group=group, limits=limits)

    def remove_quota(self, *, user: str = "", group: str = "") -> None:
        access.remove_quota(self.who, user=user, group=group)

    def credentials(self, *, capabilities: bool = False) -> list[values.CredentialInfo]:
        return credentials.list_(self.who, capabilities=capabilities)

    def credential(self, name: str) -> values.CredentialInfo:
        return credentials.get(self.who, name)

    def read_credential(self, name: str) -> values.CredentialInfo:
        return credentials.read(self.who, name)

    def add_credential(self, name: str, secrets: Mapping[str, Any], *, note: str = "") -> values.CredentialInfo:
        return credentials.add(self.who, name, secrets, remark=note)

    def change_credential(
        self, name: str, *, secrets: Mapping[str, Any] | None = None, note: str | None = None
    ) -> values.CredentialInfo:
        return credentials.change(self.who, name, secrets=secrets, remark=note)

    def remove_credential(self, name: str) -> None:
        credentials.remove(self.who, name)


class LocalUsers:
    """Users and their groups."""

    who: Caller

    def users(self) -> list[values.UserInfo]:
        return users.list_(self.who)

    def user(self, user: str) -> values.UserInfo:
        return users.get(self.who, user)

    def add_user(
        self, user: str, *, operator: bool = False, groups: Collection[str] = (), password: str | None = None
    ) -> values.PasswordInfo:
        return users.add(self.who, user, operator=operator, groups=groups, password=password)

    def set_user_password(self, user: str, *, password: str | None = None) -> values.PasswordInfo:
        return users.set_password(self.who, user, password=password)

    def switch_user(self, user: str, act: str) -> values.UserInfo:
        acts = {"enable": users.enable, "disable": users.disable}
        if act not in acts:
            raise InvalidRequest(f"{act!r} cannot be done to a user; enable or disable can.", field="act")
        return acts[act](self.who, user)

    def change_user_groups(
        self, user: str, *, add: Collection[str] = (), remove: Collection[str] = ()
    ) -> values.UserInfo:
        return users.change_groups(self.who, user, add=add, remove=remove)
