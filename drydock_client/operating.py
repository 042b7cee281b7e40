"""What operators do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

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
)


class Operating(Protocol):
    """What operators do; others get NotAllowed, except for looking."""

    def resources(
        self, *, type: str = "", blueprint: str = "", state: str = "", name: str = "", gone: bool = False
    ) -> list[ResourceInfo]:
        """Resources by id; those that are gone only when asked for."""

    def resource(self, id: int) -> ResourceInfo:
        """One resource."""

    def change_resource(self, id: int, act: str, **given: Any) -> ResourceInfo:
        """`drain`, `undrain`, `quarantine(message)`, `unquarantine`, `retire`, `power(wanted)`, `check`,
        `force_destroy(reason)`."""

    def register(self, blueprint: str, registration: Mapping[str, Any]) -> ResourceInfo:
        """Register a resource by hand. While its first check fails it stays listed, with the problem, and is tried
        again."""

    def host_keys(self, blueprint: str, address: str, *, port: int = 22) -> list[HostKey]:
        """The keys that a host shows now, to be compared before it is registered with them."""

    def change_registration(self, id: int, changed: Mapping[str, Any]) -> ResourceInfo:
        """Correct fields of a registration, such as an address; None takes one away. It is checked again before
        anybody gets it. Conflict while leases hold it."""

    def blueprints(self, *, type: str = "") -> list[BlueprintInfo]:
        """Blueprints in the order in which they are tried."""

    def blueprint(self, name: str) -> BlueprintInfo:
        """One blueprint."""

    def add_blueprint(
        self, name: str, kind: str, config: Mapping[str, Any], change: BlueprintChange, *, enabled: bool = True
    ) -> BlueprintInfo:
        """Add a blueprint; disabled, with `problems`, when its check finds something fatal."""

    def change_blueprint(self, name: str, change: BlueprintChange) -> BlueprintInfo:
        """Change a blueprint."""

    def switch_blueprint(self, name: str, act: str) -> BlueprintInfo:
        """`check`, `enable`, `disable`, `drain`, `undrain`."""

    def remove_blueprint(self, name: str) -> None:
        """Remove a blueprint; Conflict, with what needs it, while a resource or lease does."""

    def kinds(self, *, type: str = "") -> list[KindInfo]:
        """The kinds that blueprints may select."""

    def kind(self, name: str) -> KindInfo:
        """What a kind understands."""

    def authorizations(self, *, blueprint: str = "", state: str = "") -> list[AuthorizationInfo]:
        """Who may, or asks to, use which blueprint."""

    def ask_authorization(self, blueprint: str, *, message: str = "") -> AuthorizationInfo:
        """Ask to be allowed to use a blueprint."""

    def decide_authorization(
        self, blueprint: str, *, allow: bool, user: str = "", group: str = "", message: str = ""
    ) -> AuthorizationInfo:
        """Allow, or decline, a user or a group."""

    def authorization(self, id: int) -> AuthorizationInfo:
        """One authorization."""

    def settle_authorization(self, id: int, *, allow: bool, message: str = "") -> AuthorizationInfo:
        """Allow, or decline, one that was asked for or decided before."""

    def quotas(self) -> list[QuotaInfo]:
        """What users and groups may hold."""

    def set_quota(self, *, user: str = "", group: str = "", limits: Mapping[str, QuotaLimit]) -> QuotaInfo:
        """Set some limits; None: no limit."""

    def remove_quota(self, *, user: str = "", group: str = "") -> None:
        """Lift all limits of a user or a group."""

    def users(self) -> list[UserInfo]:
        """Every user of the installation, by name; for administrators."""

    def user(self, user: str) -> UserInfo:
        """One user."""

    def add_user(
        self, user: str, *, operator: bool = False, groups: Collection[str] = (), password: str | None = None
    ) -> PasswordInfo:
        """Add a user with a password: the one given, else a new one, which is returned only now."""

    def set_user_password(self, user: str, *, password: str | None = None) -> PasswordInfo:
        """Give a user another password: the one given, else a new one, which is returned only now."""

    def switch_user(self, user: str, act: str) -> UserInfo:
        """`enable` or `disable`."""

    def change_user_groups(self, user: str, *, add: Collection[str] = (), remove: Collection[str] = ()) -> UserInfo:
        """Put a user into groups, made where they are missing, and take the user out of others."""

    def credentials(self, *, capabilities: bool = False) -> list[CredentialInfo]:
        """The secrets that blueprints may name, without them, and how the readings with them go. `capabilities`:
        also what their clouds can do."""

    def credential(self, name: str) -> CredentialInfo:
        """One credential, without its secrets, with what its clouds can do."""

    def read_credential(self, name: str) -> CredentialInfo:
        """Have everything that is read with it read at once, by a worker; Conflict where nothing is."""

    def add_credential(self, name: str, secrets: Mapping[str, Any], *, note: str = "") -> CredentialInfo:
        """Store secrets under a name."""

    def change_credential(
        self, name: str, *, secrets: Mapping[str, Any] | None = None, note: str | None = None
    ) -> CredentialInfo:
        """Other secrets in place of all that are stored, or another note."""

    def remove_credential(self, name: str) -> None:
        """Remove a credential; Conflict while a blueprint names it."""

    def reclaim(self, *, type: str = "", blueprint: str = "") -> list[int]:
        """Remove idle resources; their ids."""

    def sweep(self) -> int:
        """Look once over everything that may be due."""

    def clear_errors(self, *, blueprint: str = "") -> int:
        """Forget remembered failures."""

    def resolve(self, *, lease: int | None = None, resource: int | None = None, message: str = "") -> None:
        """Say that a person has done what a held step waits for."""

    def attention(self) -> list[Attention]:
        """What a person should look at, and what to do about it; an owner is told of their own leases."""
