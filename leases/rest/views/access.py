"""Who may do what: authorizations, quotas, credentials, and whom the token speaks for."""

from __future__ import annotations

from django.http import HttpResponse

from drydock.core.errors import InvalidRequest
from leases.client.values import AuthorizationInfo, CredentialInfo, QuotaInfo
from leases.rest import bodies, operating, queries
from leases.rest.endpoint import Asked, Endpoint, Page, json_response, operation
from leases.rest.models import Scope
from leases.rest.values import Me


class Authorizations(Endpoint):
    """Who may, or asks to, use which blueprint."""

    @operation("List authorizations", gives=list[AuthorizationInfo], query=queries.AuthorizationFilter)
    def get(self, asked: Asked) -> Page:
        """All for an operator, for others their own and their groups'."""
        return Page(results=asked.client.authorizations(blueprint=asked.query.blueprint, state=asked.query.state))

    @operation(
        "Ask to use a blueprint", gives=AuthorizationInfo, status=201, scope=Scope.LEASE,
        body=bodies.AskAuthorization,
    )  # fmt: skip
    def post(self, asked: Asked) -> AuthorizationInfo:
        """Asking again changes nothing."""
        return asked.client.ask_authorization(asked.body.blueprint, message=asked.body.message)


class Authorization(Endpoint):
    """One authorization."""

    @operation("Look at an authorization", gives=AuthorizationInfo)
    def get(self, asked: Asked, id: int) -> AuthorizationInfo:
        """Whether it was asked for, approved or declined."""
        return asked.client.authorization(id)


class Approve(Endpoint):
    """Yes."""

    @operation("Approve it", gives=AuthorizationInfo, scope=Scope.OPERATE, body=bodies.Message)
    def post(self, asked: Asked, id: int) -> AuthorizationInfo:
        """Leases that wait for it are decided again."""
        return asked.client.settle_authorization(id, allow=True, message=asked.body.message)


class Decline(Endpoint):
    """No."""

    @operation("Decline it", gives=AuthorizationInfo, scope=Scope.OPERATE, body=bodies.Message)
    def post(self, asked: Asked, id: int) -> AuthorizationInfo:
        """Leases that are held stay."""
        return asked.client.settle_authorization(id, allow=False, message=asked.body.message)


class Grants(Endpoint):
    """Without being asked."""

    @operation(
        "Allow or decline a user or group", gives=AuthorizationInfo, scope=Scope.OPERATE, body=operating.Decision
    )
    def post(self, asked: Asked) -> AuthorizationInfo:
        """Whether they have asked or not."""
        body = asked.body
        return asked.client.decide_authorization(
            body.blueprint, allow=body.allow, user=body.user, group=body.group, message=body.message
        )


class Quotas(Endpoint):
    """What users and groups may hold at the same time."""

    @operation("List quotas", gives=list[QuotaInfo])
    def get(self, asked: Asked) -> Page:
        """All for an operator, for others those that count against them."""
        return Page(results=asked.client.quotas())

    @operation("Set limits", gives=QuotaInfo, scope=Scope.OPERATE, body=operating.Quota)
    def put(self, asked: Asked) -> QuotaInfo:
        """Those named; null lifts one. Leases that they held back are tried again."""
        limits = asked.body.model_dump(exclude_unset=True, exclude={"user", "group"})
        if not limits:
            raise InvalidRequest("Name at least one limit.", field="max_leases")
        return asked.client.set_quota(user=asked.body.user, group=asked.body.group, limits=limits)

    @operation("Lift all limits", scope=Scope.OPERATE, query=queries.Holder)
    def delete(self, asked: Asked) -> None:
        """Of a user or a group."""
        asked.client.remove_quota(user=asked.query.user, group=asked.query.group)


class Credentials(Endpoint):
    """Secrets that blueprints name; they go in and never come out."""

    @operation("List credentials", gives=list[CredentialInfo], scope=Scope.OPERATE, query=queries.Reading)
    def get(self, asked: Asked) -> Page:
        """Their names, without their secrets, and how the readings with them go."""
        return Page(results=asked.client.credentials(capabilities=asked.query.capabilities))

    @operation(
        "Store a credential", gives=CredentialInfo, status=201, scope=Scope.OPERATE, body=operating.NewCredential,
        headers={"Location": "Its address."},
    )  # fmt: skip
    def post(self, asked: Asked) -> HttpResponse:
        """Blueprints that name it already are tried again."""
        body = asked.body
        made = asked.client.add_credential(body.name, body.secrets, note=body.note)
        return json_response(made, status=201, headers={"Location": f"/api/v1/credentials/{made.name}"})


class Credential(Endpoint):
    """One credential."""

    @operation("Look at a credential", gives=CredentialInfo, scope=Scope.OPERATE)
    def get(self, asked: Asked, name: str) -> CredentialInfo:
        """Without its secrets, with what its clouds can do."""
        return asked.client.credential(name)

    @operation("Change a credential", gives=CredentialInfo, scope=Scope.OPERATE, body=operating.CredentialChange)
    def patch(self, asked: Asked, name: str) -> CredentialInfo:
        """Other secrets in place of all that are stored, or another note."""
        return asked.client.change_credential(name, secrets=asked.body.secrets, note=asked.body.note)

    @operation("Remove a credential", scope=Scope.OPERATE)
    def delete(self, asked: Asked, name: str) -> None:
        """409 while a blueprint names it."""
        asked.client.remove_credential(name)


class Read(Endpoint):
    """Reading an account."""

    @operation("Have an account read", gives=CredentialInfo, status=202, scope=Scope.OPERATE, body=bodies.Empty)
    def post(self, asked: Asked, name: str) -> CredentialInfo:
        """Everything that is read with it is due at once; a worker reads. 409 where nothing is."""
        return asked.client.read_credential(name)


class Myself(Endpoint):
    """The token itself."""

    @operation("Whom the token speaks for", gives=Me)
    def get(self, asked: Asked) -> Me:
        """And until when."""
        token, who = asked.token, asked.client.who
        return Me(name=who.name, operator=who.operator, scope=token.scope, expires_at=token.expires_at)
