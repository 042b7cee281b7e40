"""Calls to Compute Engine: the SDK's clients made alike, each call with a deadline, at our rate, with our errors.

`op.result()` and its like are never called: they poll https://compute.googleapis.com whatever the endpoint is
(google-cloud-compute builds the operations client without `api_endpoint`), and they wait. The `*_unary` methods give
the operation, whose name is enough to ask for it later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any, TypeVar

from google.api_core.client_options import ClientOptions
from google.cloud import compute_v1
from requests.adapters import HTTPAdapter

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.rates import shared
from blueprints.gce.config import Credential
from blueprints.gce.errors import of_operation, translated
from blueprints.gce.tokens import token

T = TypeVar("T")
PER_SECOND, BURST = 20.0, 60.0
"""Google's default is 1,500 queries per minute, project and region for most groups of methods
(docs.cloud.google.com/compute/api-quota); this leaves room for others."""
QUIET = frozenset({"", "NO_RESULTS_ON_PAGE", "NOT_CRITICAL_ERROR", "DEPRECATED_RESOURCE_USED", "DEPRECATED_TYPE_USED"})
"""Warnings of a list that do not mean that something is missing from it."""
Operation = compute_v1.Operation


class Trusting(HTTPAdapter):
    """Trusts one file of authorities."""

    def __init__(self, bundle: str) -> None:
        super().__init__()
        self._bundle = bundle

    def send(self, request: Any, *args: Any, **options: Any) -> Any:
        return super().send(request, *args, **{**options, "verify": self._bundle})


class Calls:
    """One credential's way to Compute Engine. Safe for threads."""

    def __init__(self, credential: Credential, deadline: float) -> None:
        self.project = credential.project
        self._credential, self._deadline = credential, deadline
        self._rate = shared(("gce", credential.project, credential.endpoint), PER_SECOND, BURST)
        self._clients: dict[type[Any], Any] = {}
        self._google: Any = None
        self._lock = Lock()

    def of(self, kind: type[T]) -> T:
        """The SDK's client of one sort, made at its first use."""
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
        """A call that changes nothing."""
        return self._call(method, request, writes=False)

    def write(self, method: Callable[..., Operation], request: Any) -> Operation:
        """A call that changes something; its operation, which may have failed already."""
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
        """The pages of a list, one call each. Raises UNAVAILABLE where Google says that something could not be seen:
        what is not shown is not therefore gone."""
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
        """Whether it is over. Raises CloudError where it has failed: an HTTP 200 was no success."""
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
        """Read one anew."""
        request = compute_v1.GetZoneOperationRequest(project=self.project, zone=zone, operation=name)
        return self.read(self.of(compute_v1.ZoneOperationsClient).get, request)


def found(read: Callable[[], T]) -> T | None:
    """What a read gives, or None where Google says that it is not there."""
    try:
        return read()
    except CloudError as error:
        if error.meaning is Meaning.NOT_FOUND:
            return None
        raise


def _google(answer: T, *, writes: bool) -> T:
    """An answer of Compute Engine's, which says what it is (`kind`). The SDK reads any JSON and leaves out what it does
    not know: an answer of another shape would be an empty one."""
    said = getattr(answer, "kind", None)
    if said is not None and not str(said).startswith("compute#"):
        meaning = Meaning.AMBIGUOUS if writes else Meaning.UNAVAILABLE
        raise CloudError(meaning, "What answered is not Compute Engine.", provider_code="noAnswer")
    return answer


def _whole(page: Any) -> None:
    missing = list(getattr(page, "unreachables", ()))
    scopes = page.items.items() if hasattr(page.items, "items") else ()
    missing += [name for name, scope in scopes if str(scope.warning.code or "") not in QUIET]
    if str(page.warning.code or "") not in QUIET or missing:
        names = ", ".join(name.rpartition("/")[2] for name in missing) or "a part of it"
        raise CloudError(
            Meaning.UNAVAILABLE, f"Compute Engine could not look everywhere: {names}.", provider_code="unreachable"
        )
