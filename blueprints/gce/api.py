"""Calls to Compute Engine: clients of the SDK with a deadline, a rate and our errors; access tokens; labels.

`op.result()` and similar methods are never called: they poll https://compute.googleapis.com whatever the endpoint is
(google-cloud-compute builds the operations client without `api_endpoint`), and they block. The `*_unary` methods return
the operation, which can be polled later by its name.

With a service account's key we sign each token ourselves, with the called service as its audience
(google.aip.dev/auth/4111), and use no token service. google-auth's own classes would do the same, but (seen in 2.62)
they also ask iamcredentials.googleapis.com for a "regional access boundary" in the background, with our token and
whatever the endpoint is, and without our deadline.

Tags are stored as labels where possible; one metadata item holds the others as JSON. A label's name has 1-63 characters
[a-z0-9_-] and begins with a letter, its value has 0-63 of these characters
(docs.cloud.google.com/compute/docs/labeling-resources). Lists can be filtered by labels only.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, TypeVar

import google.auth
from google.api_core.client_options import ClientOptions
from google.auth import crypt, jwt
from google.auth.credentials import Credentials
from google.cloud import compute_v1
from google.oauth2 import service_account
from requests.adapters import HTTPAdapter

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.rates import shared
from blueprints.gce.config import Credential
from blueprints.gce.errors import of_operation, translated

SCOPES = ("https://www.googleapis.com/auth/compute",)
AUDIENCE = "https://compute.googleapis.com/"
READ_SCOPES = ("https://www.googleapis.com/auth/cloud-platform.read-only",)
"""OAuth scopes for reading permissions: the narrowest scope that Cloud Resource Manager accepts (its discovery
document, projects.testIamPermissions)."""
LIFE = 3600
"""Lifetime of a token in seconds; Google accepts no more."""


class Signed(Credentials):
    """Tokens signed by a key that we have."""

    def __init__(self, signer: Any, email: str, audience: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._signer, self._email, self._audience = signer, email, audience

    def refresh(self, request: Any) -> None:
        """Create a new token; `request` is not used."""
        now = int(time.time())
        said = {"iss": self._email, "sub": self._email, "aud": self._audience, "iat": now, "exp": now + LIFE}
        self.token = jwt.encode(self._signer, said).decode()  # type: ignore[no-untyped-call]
        # google-auth compares with a naive time in UTC.
        self.expiry = dt.datetime.fromtimestamp(now + LIFE, dt.UTC).replace(tzinfo=None)


def token(credential: Credential, audience: str = AUDIENCE, scopes: Sequence[str] = SCOPES) -> Any:
    """Return credentials for the SDK.

    The token is valid for the service named as audience, or for services that accept one of the scopes. Raises
    CloudError CREDENTIALS, or what google-auth raises if there are no credentials.
    """
    if credential.environment:
        found, _ = google.auth.default(scopes=scopes)
        if isinstance(found, service_account.Credentials):
            return Signed(found.signer, found.service_account_email, audience)
        return found
    key = credential.key()
    try:
        signer = crypt.RSASigner.from_service_account_info(key)  # type: ignore[no-untyped-call]
    except ValueError:
        text = "The service account's private key cannot be read."
        raise CloudError(Meaning.CREDENTIALS, text, provider_code="badKey") from None
    return Signed(signer, key["client_email"], audience)


T = TypeVar("T")
PER_SECOND, BURST = 20.0, 60.0
"""Calls per second, and calls at once. Google's default limit is 1,500 queries per minute, project and region for most
groups of methods (docs.cloud.google.com/compute/api-quota); these rates leave room for other programs."""
QUIET = frozenset({"", "NO_RESULTS_ON_PAGE", "NOT_CRITICAL_ERROR", "DEPRECATED_RESOURCE_USED", "DEPRECATED_TYPE_USED"})
"""Warnings in a list's response that do not mean that objects are missing from the list."""
Operation = compute_v1.Operation


class Trusting(HTTPAdapter):
    """An HTTP adapter that trusts one file of certificate authorities."""

    def __init__(self, bundle: str) -> None:
        super().__init__()
        self._bundle = bundle

    def send(self, request: Any, *args: Any, **options: Any) -> Any:
        """Send a request, trusting only the given file of authorities."""
        return super().send(request, *args, **{**options, "verify": self._bundle})


class Calls:
    """Calls with one credential. Thread-safe."""

    def __init__(self, credential: Credential, deadline: float) -> None:
        self.project = credential.project
        self._credential, self._deadline = credential, deadline
        self._rate = shared(("gce", credential.project, credential.endpoint), PER_SECOND, BURST)
        self._clients: dict[type[Any], Any] = {}
        self._google: Any = None
        self._lock = Lock()

    def of(self, kind: type[T]) -> T:
        """Return the SDK's client of this class, created at its first use."""
        with self._lock:
            if kind not in self._clients:
                self._clients[kind] = self._made(kind)
            found: T = self._clients[kind]
            return found

    def _made(self, kind: type[Any]) -> Any:
        options = ClientOptions(api_endpoint=self._credential.endpoint or None)
        with translated():
            made = kind(credentials=self._token(), client_options=options, transport="rest")
        if self._credential.ca_bundle:
            # The SDK has no option for it, and its session would let REQUESTS_CA_BUNDLE, which is the whole process's,
            # go before what the session says itself.
            made.transport._session.mount("https://", Trusting(self._credential.ca_bundle))
        return made

    def _token(self) -> Any:
        if self._google is None:
            self._google = token(self._credential)
        return self._google

    def read(self, method: Callable[..., T], request: Any) -> T:
        """Make a call that changes nothing."""
        return self._call(method, request, writes=False)

    def write(self, method: Callable[..., Operation], request: Any) -> Operation:
        """Make a call that changes something. Return its operation, which may have failed already."""
        return self._call(method, request, writes=True)

    def _call(self, method: Callable[..., T], request: Any, *, writes: bool) -> T:
        self._rate.take(self._deadline)
        try:
            with translated(writes=writes):
                answer = method(request=request, retry=None, timeout=self._deadline)
            return _google(answer, writes=writes)
        except CloudError as error:
            if error.meaning is Meaning.THROTTLED:
                self._rate.drain()
            raise

    def pages(self, method: Callable[..., Any], request: Any) -> Iterator[Any]:
        """Yield the pages of a list, with one call per page.

        Raises UNAVAILABLE if Google reports that a part could not be listed: an object that is missing then may still
        exist.
        """
        pages = iter(self._call(method, request, writes=False).pages)
        while True:
            with translated():
                page = next(pages, None)
            if page is None:
                return
            _whole(_google(page, writes=False))
            yield page
            if page.next_page_token:
                self._rate.take(self._deadline)

    def done(self, operation: Operation) -> bool:
        """Return whether an operation has finished.

        Raises CloudError if it failed, since HTTP 200 does not mean success.
        """
        if operation.status != Operation.Status.DONE:
            return False
        failed = next(iter(operation.error.errors), None)
        if failed is not None:
            raise of_operation(failed.code, failed.message, operation.http_error_status_code)
        if operation.http_error_status_code >= 400:
            text = operation.http_error_message
            raise of_operation(str(operation.http_error_status_code), text, operation.http_error_status_code)
        return True

    def zone_operation(self, zone: str, name: str) -> Operation:
        """Read an operation again."""
        request = compute_v1.GetZoneOperationRequest(project=self.project, zone=zone, operation=name)
        return self.read(self.of(compute_v1.ZoneOperationsClient).get, request)


def found(read: Callable[[], T]) -> T | None:
    """Return the result of a read, or None if Google reports that the object does not exist."""
    try:
        return read()
    except CloudError as error:
        if error.meaning is Meaning.NOT_FOUND:
            return None
        raise


def _google(answer: T, *, writes: bool) -> T:
    """Check that an answer comes from Compute Engine, by its `kind`.

    The SDK reads any JSON and ignores unknown fields, so an answer of another shape would become an empty one.
    """
    said = getattr(answer, "kind", None)
    if said is not None and not str(said).startswith("compute#"):
        meaning = Meaning.AMBIGUOUS if writes else Meaning.UNAVAILABLE
        raise CloudError(meaning, "The answer is not from Compute Engine.", provider_code="noAnswer")
    return answer


def _whole(page: Any) -> None:
    missing = list(getattr(page, "unreachables", ()))
    scopes = page.items.items() if hasattr(page.items, "items") else ()
    missing += [name for name, scope in scopes if str(scope.warning.code or "") not in QUIET]
    if str(page.warning.code or "") not in QUIET or missing:
        names = ", ".join(name.rpartition("/")[2] for name in missing) or "a part of it"
        raise CloudError(
            Meaning.UNAVAILABLE,
            f"Compute Engine could not list everything; missing: {names}.",
            provider_code="unreachable",
        )


_LABEL_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
TAGS_ITEM = "drydock-tags"
"""The metadata item with the tags that cannot be stored as labels."""


def _fits(name: str, value: str) -> bool:
    """Return whether a tag can be stored unchanged as a label."""
    return _LABEL_NAME.fullmatch(name) is not None and _LABEL_VALUE.fullmatch(value) is not None


def labels_of(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that can be stored as labels."""
    return {name: value for name, value in tags.items() if _fits(name, value)}


def other_tags(tags: Mapping[str, str]) -> str:
    """Return the other tags as JSON for the metadata item, or an empty string if there are none."""
    others = {name: value for name, value in tags.items() if not _fits(name, value)}
    return json.dumps(others, sort_keys=True) if others else ""


def joined_tags(labels: Mapping[str, str], rest: str) -> dict[str, str]:
    """Return the tags from labels and the metadata item. A damaged metadata item is ignored."""
    try:
        others = json.loads(rest or "{}")
    except ValueError:
        others = {}
    return {**labels, **{str(name): str(value) for name, value in dict(others).items()}}


def bears(found: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Return whether an object's tags include all wanted tags."""
    return all(found.get(name) == value for name, value in wanted.items())


def filter_by(tags: Mapping[str, str]) -> str:
    """Return the filter for a list call. Tags that are not labels are compared after reading."""
    return " AND ".join(f'labels.{name}="{value}"' for name, value in sorted(labels_of(tags).items()))


def last(link: str) -> str:
    """Return the name at the end of a link."""
    return link.rpartition("/")[2]


def region_of(zone: str) -> str:
    """Return the region of a zone: `us-central1` for us-central1-a."""
    return zone.rpartition("-")[0]


def when(text: str) -> dt.datetime | None:
    """Parse an RFC 3339 time. Return None for an empty text."""
    return dt.datetime.fromisoformat(text) if text else None


NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
REQUESTS = uuid.UUID("6f7c1c1e-5d0b-5a3e-9f57-2d9a6f1f0d6c")
"""Namespace of our request ids. A token always gives the same id, and never the id of all zeros, which Google
refuses."""


def request_id(token: str) -> str:
    """Return the requestId of an attempt."""
    return str(uuid.uuid5(REQUESTS, token))


def refused(text: str, code: str = "invalid") -> CloudError:
    """Return the error for an order that Compute Engine would refuse."""
    return CloudError(Meaning.INVALID, text, provider_code=code)
