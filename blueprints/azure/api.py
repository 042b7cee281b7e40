"""Calls to Azure Resource Manager: the connection with its credential, deadline and rate; named objects; tags.

The names of the objects under one key are derived from the key. Source of the limits on names: learn.microsoft.com,
"Naming rules and restrictions for Azure resources" (a Linux machine 64 characters, network objects and disks 80) and
"Use tags to organize your Azure resources".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from azure.core import MatchConditions
from azure.core.credentials import AccessToken, AccessTokenInfo
from azure.core.exceptions import AzureError
from azure.core.pipeline import PipelineRequest, PipelineResponse, policies
from azure.core.rest import HttpRequest
from azure.identity import ClientSecretCredential, DefaultAzureCredential, ManagedIdentityCredential
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy
from azure.mgmt.network import NetworkManagementClient

from blueprints.azure.config import Credential
from blueprints.azure.errors import found, translated, worked_on
from blueprints.cloud import values
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.rates import Rate, shared
from blueprints.cloud.values import Order, Remnant

NEVER = 2**33
"""An expiry time in the far future, for tokens whose expiry is unknown: seconds since 1970."""
LONGEST_TURN = 2.0
"""Maximum number of seconds that a call waits for the rate limit. A call that would have to wait longer fails as
THROTTLED, and is repeated later."""


class Connection:
    """The SDK's clients of one subscription. No call waits for an operation to finish, and no write is repeated."""

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
        """Make a call for which the SDK's clients have no method. Return the answer and its headers.

        `path` may be a whole URL of the same endpoint.
        """
        url = path if path.startswith("https://") else self.endpoint + path
        if urlsplit(url).netloc.lower() != urlsplit(self.endpoint).netloc.lower():
            raise CloudError(
                Meaning.INVALID,
                f"The token was not sent to {urlsplit(url).netloc}, which is not the configured endpoint.",
            )
        params = {"api-version": version} if version else {}
        with translated(doing, write=method != "GET"):
            response = self.compute.send_request(HttpRequest(method, url, params=params, json=body))
            response.raise_for_status()
            return (response.json() if response.content else {}), response.headers


class _Fixed:
    """Credentials with a given bearer token, which is never renewed."""

    def __init__(self, token: str) -> None:
        self._token = token

    def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
        return AccessToken(self._token, NEVER)

    def get_token_info(self, *scopes: str, options: Any = None) -> AccessTokenInfo:
        return AccessTokenInfo(self._token, NEVER)

    def close(self) -> None:
        """Do nothing, because there is nothing to close."""


def _who(credential: Credential, deadline: float) -> Any:
    """Return the object that gets access tokens for a credential. Its own calls have the same deadline, in seconds."""
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
    """Repeat a read once if its connection broke.

    The SDK's own policy also repeats PUT and DELETE, and then reports the answer to the second call as if it were the
    first.
    """

    def configure_retries(self, options: dict[str, Any]) -> dict[str, Any]:
        return {**super().configure_retries(options), "methods": frozenset({"GET", "HEAD"})}


class NotAzure(AzureError):
    """A successful answer did not come from Azure Resource Manager."""


class _Shaped(policies.SansIOHTTPPolicy[Any, Any]):
    """Check that a successful answer is JSON, and that the answer to a listing contains its list.

    The SDK accepts any JSON, so an answer of another shape would become an empty listing.
    """

    def on_response(self, request: PipelineRequest[Any], response: PipelineResponse[Any, Any]) -> None:
        asked, answer = request.http_request, response.http_response
        if not 200 <= answer.status_code < 300:
            return
        try:
            said = json.loads(answer.body()) if answer.body() else None
        except ValueError:
            raise NotAzure(f"the answer is not JSON (status {answer.status_code})") from None
        if asked.method == "GET" and not _fits(urlsplit(asked.url).path, said):
            raise NotAzure(f"the answer has none of the requested fields (status {answer.status_code})")


def _fits(path: str, said: Any) -> bool:
    """Return whether an answer fits the path of its request.

    After `providers/NAMESPACE`, the segments are alternately types and names, so a path with an odd number of them
    names a collection. The answer for some collections is a list without an enclosing object. The answer of an action
    may have any shape.
    """
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
"""Every object and every operation has at least one of these fields."""


class _Paced(policies.SansIOHTTPPolicy[Any, Any]):
    """Delays calls to stay within ARM's rate limit for a subscription.

    The limits are 25 reads per second with a burst of 250, and 10 writes and 10 deletes per second with a burst of 200
    (learn.microsoft.com, "Understand how Azure Resource Manager throttles requests").
    """

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
    """Return the SDK's usual policies, without those that register providers or repeat writes."""
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


ATTEMPT = "drydock-attempt"
"""The tag with the order's token. It says which attempt created a machine."""
INSTALLATION = "drydock-installation"
MOST_TAGS, LONGEST_TAG, LONGEST_VALUE = 50, 512, 256
_KEY = re.compile(r"^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$")
SUFFIXES = {"machine": "", "nic": "-nic", "ip": "-ip", "nsg": "-nsg", "disk": "-disk"}
"""Maps each part to the suffix of its name, in an order in which the parts can be deleted."""


def part_name(part: str, key: str) -> str:
    """Return the name of one of the objects under a key."""
    return key + SUFFIXES[part]


def check_order(order: Order) -> None:
    """Check an order's key and tags. Raises CloudError INVALID if Azure would not accept them."""
    if not _KEY.match(order.key):
        raise _invalid(
            f"{order.key!r} is not a valid machine name: use 1 to 64 of a-z, 0-9 and '-', starting and ending with a"
            " letter or digit."
        )
    check_tags({**order.tags, ATTEMPT: order.token})


def check_tags(tags: Mapping[str, str]) -> None:
    """Check the tags. Raises CloudError INVALID if Azure would not accept them."""
    if len(tags) > MOST_TAGS:
        raise _invalid(f"{len(tags)} tags are too many: Azure accepts {MOST_TAGS}, one of which Drydock uses.")
    for tag, value in tags.items():
        if not tag or len(tag) > LONGEST_TAG or set(tag) & set("<>%&\\?/"):
            raise _invalid(f"{tag!r} is not a valid tag name: use up to {LONGEST_TAG} characters, without <>%&\\?/.")
        if len(value) > LONGEST_VALUE:
            raise _invalid(f"The tag {tag} has {len(value)} characters; at most {LONGEST_VALUE} are allowed.")


def bears(found: Mapping[str, Any], tags: Mapping[str, str]) -> bool:
    """Return whether an object has these tags."""
    there = _tags(found)
    return all(there.get(tag.lower()) == value for tag, value in tags.items())


def has_owner(found: Mapping[str, Any], tags: Mapping[str, str]) -> bool:
    """Return whether an object has the ownership tags among `tags`."""
    return values.same_owner(_tags(found), {tag.lower(): value for tag, value in tags.items()})


def lost_tags(found: Mapping[str, Any]) -> bool:
    """Return whether an object has no Drydock tags."""
    return values.lost_tags(_tags(found))


def _tags(found: Mapping[str, Any]) -> dict[str, str]:
    """Return an object's tags with names in lower case, because Azure ignores the case of tag names."""
    return {tag.lower(): value for tag, value in (found.get("tags") or {}).items()}


def _invalid(message: str) -> CloudError:
    return CloudError(Meaning.INVALID, message)


_STILL_THERE = (Meaning.CONFLICT, Meaning.AMBIGUOUS, Meaning.UNAVAILABLE)
_IN_USE = ("InUse", "CannotBeDeleted", "Attached", "Reserved")
TAGS_VERSION = "2021-04-01"


class Parts:
    """The machine, network card, address, firewall and disk of a key, as Azure's JSON."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        compute, network = connection.compute, connection.network
        self._operations: dict[str, Any] = {
            "machine": compute.virtual_machines,
            "nic": network.network_interfaces,
            "ip": network.public_ip_addresses,
            "nsg": network.network_security_groups,
            "disk": compute.disks,
        }

    def get(self, part: str, key: str, **expand: str) -> Mapping[str, Any] | None:
        """Read one part. Return None if it does not exist."""
        named = part_name(part, key)
        answer = found(
            f"read {named}", lambda: self._operations[part].get(self._connection.group, named, **expand).as_dict()
        )
        return answer if isinstance(answer, dict) else None

    def put(
        self, part: str, key: str, body: Mapping[str, Any], *, only_new: bool = False
    ) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        """Create or change one part. Return the answer and its headers.

        If `only_new` is true, raise CloudError CONFLICT (PreconditionFailed) if the part exists.
        """
        named = part_name(part, key)
        condition = {"match_condition": MatchConditions.IfMissing} if only_new else {}
        with translated(f"make {named}", write=True):
            poller = self._operations[part].begin_create_or_update(
                self._connection.group, named, body, polling=False, cls=_whole, **condition
            )
            return poller.result()  # type: ignore[no-any-return]

    def patch(self, part: str, key: str, body: Mapping[str, Any], doing: str) -> None:
        """Request a change to a machine or disk."""
        with translated(doing, write=True):
            self._operations[part].begin_update(
                self._connection.group, part_name(part, key), body, polling=False, cls=_whole
            ).result()

    def delete(self, part: str, key: str) -> None:
        """Request the deletion of a part. A part that does not exist counts as success."""
        named = part_name(part, key)
        try:
            with translated(f"delete {named}", write=True):
                self._operations[part].begin_delete(self._connection.group, named, polling=False, cls=_whole).result()
        except CloudError as error:
            if error.meaning is not Meaning.NOT_FOUND:
                raise

    def sweep(self, key: str, bears: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Delete these parts (as they were read), the machine first. Return the names of those that still exist.

        A part that another part still uses is deleted by a later sweep.
        """
        for part in SUFFIXES:
            if part in bears and not _going(bears[part]):
                self._try(part, key)
        return [part_name(part, key) for part in SUFFIXES if part in bears and self.get(part, key) is not None]

    def remains(self, tags: Mapping[str, str]) -> list[Remnant]:
        """Return everything except machines in the resource group that has these tags."""
        found = []
        for part, suffix in SUFFIXES.items():
            if part != "machine":
                with translated(f"list the objects whose names end in {suffix}"):
                    pages = self._operations[part]
                    named = getattr(pages, "list_by_resource_group", None) or pages.list
                    listed = [one.as_dict() for one in named(self._connection.group)]
                found += [_remnant(part, one) for one in listed if bears(one, tags)]
        return found

    def merge_tags(self, resource_id: str, tags: Mapping[str, str]) -> None:
        """Add tags to any object. Other tags stay, and no concurrent change is undone."""
        self._connection.ask(
            "PATCH",
            f"{resource_id}/providers/Microsoft.Resources/tags/default",
            version=TAGS_VERSION,
            body={"operation": "Merge", "properties": {"tags": dict(tags)}},
            doing=f"tag {resource_id.rsplit('/', 1)[-1]}",
        )

    def _try(self, part: str, key: str) -> None:
        try:
            self.delete(part, key)
        except CloudError as error:
            used = any(word in error.provider_code for word in _IN_USE)
            if error.meaning not in _STILL_THERE and not used:
                raise


def _whole(response: Any, model: Any, headers: Any) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """Return the body and the headers of the first answer to a request, without polling the operation."""
    answer = response.http_response
    return (answer.json() if answer.content else {}), answer.headers


def _going(found: Mapping[str, Any]) -> bool:
    return str((found.get("properties") or {}).get("provisioningState")).lower() == "deleting"


_WORDS = {"nic": "network card", "ip": "address", "nsg": "firewall", "disk": "volume"}


def _remnant(part: str, found: Mapping[str, Any]) -> Remnant:
    """Return an object as a remnant. Its key is its name without the suffix of its part."""
    named = str(found["name"])
    suffix = SUFFIXES[part]
    return Remnant(
        what=_WORDS[part],
        id=named,
        key=named.removesuffix(suffix) if named.endswith(suffix) else "",
        location=str(found.get("location") or "").lower(),
        zone=next(iter(found.get("zones") or ()), ""),
        tags={str(tag): str(value) for tag, value in (found.get("tags") or {}).items()},
    )


def order_tags(order: Order) -> dict[str, str]:
    """Return the order's tags and the tag that identifies the attempt."""
    return {**order.tags, ATTEMPT: order.token}
