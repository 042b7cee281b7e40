"""The way to Azure Resource Manager: who we are, how long a call may take, and what its failures mean."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import urllib3
from azure.core.credentials import AccessToken, AccessTokenInfo
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
)
from azure.core.pipeline import PipelineRequest, PipelineResponse, policies
from azure.core.rest import HttpRequest
from azure.identity import ClientSecretCredential, DefaultAzureCredential, ManagedIdentityCredential
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy
from azure.mgmt.network import NetworkManagementClient
from requests import exceptions as requests_errors

from blueprints.azure.config import Credential
from blueprints.azure.errors import told
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.rates import Rate, shared

NEVER = 2**33
"""A point in time far away."""
_NOT_SENT = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.ProxyError,
    requests_errors.ConnectTimeout,
    requests_errors.ProxyError,
    ssl.SSLCertVerificationError,
)


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
        chain = _policies(self._who, credential, most=deadline)
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


@contextmanager
def guarded(doing: str, *, write: bool = False) -> Iterator[None]:
    """What goes wrong in a call becomes a CloudError. `doing` completes "Azure refused to ..."; `write`: the call
    changes something, so that a lost answer leaves open whether it has."""
    try:
        yield
    except ClientAuthenticationError as error:
        raise _unauthenticated(error, doing) from None
    except HttpResponseError as error:
        raise _answered(error, doing, write) from None
    except AzureError as error:
        raise _unanswered(error, doing, write) from None
    except OSError as error:
        # The authorities' file, which is read before anything is sent.
        raise CloudError(Meaning.INVALID, f"Azure could not be asked to {doing}: {error}") from None


def found(doing: str, call: Callable[[], Any]) -> Any:
    """The answer of a reading call; None where there is no such thing."""
    try:
        with guarded(doing):
            return call()
    except CloudError as error:
        if error.meaning is Meaning.NOT_FOUND:
            return None
        raise


def seconds(headers: Mapping[str, str], usual: float = 0.0) -> float:
    """What an answer says about when to ask again."""
    for name, unit in (("retry-after-ms", 0.001), ("x-ms-retry-after-ms", 0.001), ("Retry-After", 1.0)):
        given = headers.get(name) or ""
        if given.replace(".", "", 1).isdigit():
            return float(given) * unit
    return usual


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


class _Paced(policies.SansIOHTTPPolicy[Any, Any]):
    """Keeps to the rate of ARM per subscription: 25 reads per second with a burst of 250, 10 writes and 10 deletes
    with 200 (learn.microsoft.com, "Understand how Azure Resource Manager throttles requests")."""

    def __init__(self, endpoint: str, subscription: str, most: float) -> None:
        self._most = most
        self._rates = {
            sort: shared(("azure", endpoint, subscription, sort), per_second, burst)
            for sort, per_second, burst in (("read", 25, 250), ("write", 10, 200), ("delete", 10, 200))
        }

    def on_request(self, request: PipelineRequest[Any]) -> None:
        self._of(request).take(self._most)

    def on_response(self, request: PipelineRequest[Any], response: PipelineResponse[Any, Any]) -> None:
        if response.http_response.status_code == 429:
            self._of(request).drain()

    def _of(self, request: PipelineRequest[Any]) -> Rate:
        method = request.http_request.method
        return self._rates["read" if method == "GET" else "delete" if method == "DELETE" else "write"]


def _policies(who: Any, credential: Credential, *, most: float) -> list[Any]:
    """The SDK's usual ones without two that wait: registering providers by itself, and repeating writes."""
    return [
        policies.RequestIdPolicy(),
        policies.HeadersPolicy(),
        policies.UserAgentPolicy(base_user_agent="drydock"),
        policies.ContentDecodePolicy(),
        _OneMoreRead(retry_total=1, retry_status=0, retry_backoff_factor=0.2),
        _Paced(credential.endpoint, credential.subscription_id, most),
        ARMChallengeAuthenticationPolicy(who, f"{credential.endpoint}/.default"),
    ]


def _unauthenticated(error: ClientAuthenticationError, doing: str) -> CloudError:
    if error.response is not None:
        return _answered(error, doing, write=False)
    return CloudError(Meaning.CREDENTIALS, f"No token to {doing}: {error.message}"[:1000])


def _answered(error: HttpResponseError, doing: str, write: bool) -> CloudError:
    status = error.status_code or 0
    answer: Any = error.response
    known = told(_body(error), doing, status=status, after=seconds(answer.headers if answer is not None else {}))
    if (
        write
        and known.meaning is Meaning.UNAVAILABLE
        and known.provider_code not in ("ServerBusy", "ServiceUnavailable")
    ):
        return CloudError(
            Meaning.AMBIGUOUS, f"{known.message} (it may have happened)", provider_code=known.provider_code
        )
    return known


def _body(error: HttpResponseError) -> Mapping[str, Any]:
    answer: Any = error.response
    try:
        body = answer.json() if answer is not None else {}
    except ValueError:
        body = {}
    inner = body.get("error", body) if isinstance(body, Mapping) else {}
    return inner if isinstance(inner, Mapping) and inner.get("code") else {"message": error.reason or error.message}


def _unanswered(error: AzureError, doing: str, write: bool) -> CloudError:
    causes = list(_causes(error))
    untrusted = next((one for one in causes if isinstance(one, ssl.SSLCertVerificationError)), None)
    if untrusted:
        return CloudError(
            Meaning.INVALID,
            f"Azure's certificate is not trusted ({untrusted.verify_message}): see endpoint and ca_bundle.",
        )
    sent = not isinstance(error, ServiceRequestError) or not any(isinstance(one, _NOT_SENT) for one in causes)
    if write and sent:
        return CloudError(Meaning.AMBIGUOUS, f"The answer to {doing} was lost: {error.message}"[:1000])
    return CloudError(Meaning.UNAVAILABLE, f"Azure could not be asked to {doing}: {error.message}"[:1000])


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An exception and everything that it wraps: requests and urllib3 keep the inner one in their arguments."""
    waiting: list[Any] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [*one.args, one.__cause__, one.__context__]
        waiting += [getattr(one, name, None) for name in ("reason", "inner_exception")]
