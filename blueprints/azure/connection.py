"""The way to Azure Resource Manager: who we are, how long a call may take, how many there may be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from azure.core.credentials import AccessToken, AccessTokenInfo
from azure.core.exceptions import AzureError
from azure.core.pipeline import PipelineRequest, PipelineResponse, policies
from azure.core.rest import HttpRequest
from azure.identity import ClientSecretCredential, DefaultAzureCredential, ManagedIdentityCredential
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy
from azure.mgmt.network import NetworkManagementClient

from blueprints.azure.calls import guarded
from blueprints.azure.config import Credential
from blueprints.azure.errors import worked_on
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.rates import Rate, shared

NEVER = 2**33
"""A point in time far away."""
LONGEST_TURN = 2.0
"""Seconds that a call waits for its turn; a longer wait is for the frame (THROTTLED)."""


class Connection:
    """The SDK's clients of one subscription. Nothing here waits for an operation's end, and no write is repeated."""

    def __init__(self, credential: Credential, deadline: float) -> None:
        self.subscription = credential.subscription_id
        self.group = credential.resource_group
        self.endpoint = credential.endpoint
        self.deadline = deadline
        self.ca_bundle = credential.ca_bundle
        self._who = _who(credential, deadline)
        settings: dict[str, Any] = {
            "base_url": credential.endpoint,
            "connection_verify": credential.ca_bundle or True,
            "connection_timeout": min(deadline, 10.0),
            "read_timeout": deadline,
        }
        chain = _policies(self._who, credential)
        self.compute = ComputeManagementClient(self._who, self.subscription, policies=chain, **settings)
        self.network = NetworkManagementClient(self._who, self.subscription, policies=chain, **settings)

    def close(self) -> None:
        """Close the connections that are kept open between calls."""
        self.compute.close()
        self.network.close()
        self._who.close()

    def ask(
        self, method: str, path: str, *, doing: str, version: str = "", body: Any = None
    ) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        """One call that the SDK's clients have no method for: the answer and its headers. `path` may be a whole URL
        of the same endpoint."""
        url = path if path.startswith("https://") else self.endpoint + path
        if urlsplit(url).netloc.lower() != urlsplit(self.endpoint).netloc.lower():
            raise CloudError(Meaning.INVALID, f"{urlsplit(url).netloc} is not the endpoint; no token is sent there.")
        params = {"api-version": version} if version else {}
        with guarded(doing, write=method != "GET"):
            response = self.compute.send_request(HttpRequest(method, url, params=params, json=body))
            response.raise_for_status()
            return (response.json() if response.content else {}), response.headers


class _Fixed:
    """A bearer token that somebody else has made."""

    def __init__(self, token: str) -> None:
        self._token = token

    def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
        return AccessToken(self._token, NEVER)

    def get_token_info(self, *scopes: str, options: Any = None) -> AccessTokenInfo:
        return AccessTokenInfo(self._token, NEVER)

    def close(self) -> None:
        """There is nothing to close."""


def _who(credential: Credential, deadline: float) -> Any:
    """Whatever gives tokens. Its own calls have the same deadline."""
    limits: dict[str, Any] = {"connection_timeout": min(deadline, 10.0), "read_timeout": deadline, "retry_total": 1}
    if credential.ca_bundle:
        limits["connection_verify"] = credential.ca_bundle
    if token := credential.token.get_secret_value():
        return _Fixed(token)
    if credential.managed_identity:
        chosen = credential.managed_identity
        return ManagedIdentityCredential(client_id=chosen if isinstance(chosen, str) else None, **limits)
    if credential.authority:
        limits |= {"authority": credential.authority, "disable_instance_discovery": True}
    if credential.environment:
        return DefaultAzureCredential(**limits)
    return ClientSecretCredential(
        credential.tenant_id, credential.client_id, credential.client_secret.get_secret_value(), **limits
    )


class _OneMoreRead(policies.RetryPolicy[Any, Any]):
    """A read whose connection broke is repeated once. The SDK's own policy repeats PUT and DELETE too, and then tells
    of an answer to the second call as if it were the first's."""

    def configure_retries(self, options: dict[str, Any]) -> dict[str, Any]:
        return {**super().configure_retries(options), "methods": frozenset({"GET", "HEAD"})}


class NotAzure(AzureError):
    """A successful answer did not come from Azure Resource Manager."""


class _Shaped(policies.SansIOHTTPPolicy[Any, Any]):
    """A successful answer is JSON, and one to a listing has its list. The SDK takes any JSON: one of another shape
    would be an empty listing."""

    def on_response(self, request: PipelineRequest[Any], response: PipelineResponse[Any, Any]) -> None:
        asked, answer = request.http_request, response.http_response
        if not 200 <= answer.status_code < 300:
            return
        try:
            said = json.loads(answer.body()) if answer.body() else None
        except ValueError:
            raise NotAzure(f"it is not JSON (status {answer.status_code})") from None
        if asked.method == "GET" and not _fits(urlsplit(asked.url).path, said):
            raise NotAzure(f"it has none of what was asked for (status {answer.status_code})")


def _fits(path: str, said: Any) -> bool:
    """Whether an answer fits what a path names. After `providers/NAMESPACE` types and names alternate, so that an odd
    number of segments names a collection; a few collections are bare lists. What an operation answers is its own."""
    _, found, tail = path.strip("/").rpartition("providers/")
    if isinstance(said, list) or not found:
        return isinstance(said, list | dict)
    if not isinstance(said, dict):
        return said is None
    parts = tail.lower().split("/")[1:]
    if not _OPERATIONS.isdisjoint(parts):
        return True
    listing = len(parts) % 2 == 1
    return isinstance(said.get("value"), list) if listing else bool(said.keys() & _TOLD)


_OPERATIONS = frozenset({"operations", "operationresults"})
_TOLD = frozenset({"id", "name", "properties", "status"})
"""Of what a single object or operation tells there is at least one of these."""


class _Paced(policies.SansIOHTTPPolicy[Any, Any]):
    """Keeps to the rate of ARM per subscription: 25 reads per second with a burst of 250, 10 writes and 10 deletes
    with 200 (learn.microsoft.com, "Understand how Azure Resource Manager throttles requests")."""

    def __init__(self, endpoint: str, subscription: str) -> None:
        self._rates = {
            sort: shared(("azure", endpoint, subscription, sort), per_second, burst)
            for sort, per_second, burst in (("read", 25, 250), ("write", 10, 200), ("delete", 10, 200))
        }

    def on_request(self, request: PipelineRequest[Any]) -> None:
        self._of(request).take(LONGEST_TURN)

    def on_response(self, request: PipelineRequest[Any], response: PipelineResponse[Any, Any]) -> None:
        answer: Any = response.http_response
        if answer.status_code == 429 and not worked_on(answer.read().decode(errors="replace")):
            self._of(request).drain()

    def _of(self, request: PipelineRequest[Any]) -> Rate:
        method = request.http_request.method
        return self._rates["read" if method == "GET" else "delete" if method == "DELETE" else "write"]


def _policies(who: Any, credential: Credential) -> list[Any]:
    """The SDK's usual ones without two that wait: registering providers by itself, and repeating writes."""
    return [
        policies.RequestIdPolicy(),
        policies.HeadersPolicy(),
        policies.UserAgentPolicy(base_user_agent="drydock"),
        policies.ContentDecodePolicy(),
        _Shaped(),
        _OneMoreRead(retry_total=1, retry_status=0, retry_backoff_factor=0.2),
        _Paced(credential.endpoint, credential.subscription_id),
        ARMChallengeAuthenticationPolicy(who, f"{credential.endpoint}/.default"),
    ]
