"""What goes wrong in a call of the SDK, as a CloudError; and what an answer says of when to ask again."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import urllib3
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
)
from requests import exceptions as requests_errors

from blueprints.azure.errors import told
from blueprints.cloud.faults import CloudError, Meaning

_NOT_SENT = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.ProxyError,
    requests_errors.ConnectTimeout,
    requests_errors.ProxyError,
    ssl.SSLCertVerificationError,
)
"""A call that broke with one of these has not left us."""


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
