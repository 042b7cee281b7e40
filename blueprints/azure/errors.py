"""Errors of Azure Resource Manager as CloudErrors: its error codes, and what the SDK raises.

Sources: learn.microsoft.com "Troubleshoot common Azure deployment errors"
(azure-resource-manager/troubleshooting/common-deployment-errors), "Resolve errors for SKU not available", "Troubleshoot
allocation failures" (virtual-machines/allocation-failure), "Understand how Azure Resource Manager throttles requests";
the codes of objects in use from the REST reference of Microsoft.Network.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import urllib3
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError, ServiceRequestError
from requests import exceptions as requests_errors

from blueprints.cloud.faults import CloudError, Meaning, Reach

CODES: dict[Meaning, tuple[str, ...]] = {
    Meaning.NO_CAPACITY: (
        "AllocationFailed",
        "OverconstrainedAllocationRequest",
        "OverconstrainedZonalAllocationRequest",
        "SkuNotAvailable",
        "ZonalAllocationFailed",
    ),
    Meaning.QUOTA: (
        "IPv4StandardSkuPublicIpCountLimitReached",
        "PublicIPCountLimitReached",
        "QuotaExceeded",
        "ResourceQuotaExceeded",
        "SubnetIsFull",
    ),
    Meaning.NOT_OFFERED: (
        "AvailabilityZoneNotSupported",
        "LocationNotAvailableForResourceType",
        "NoRegisteredProviderFound",
        "NotAvailableForSubscription",
        "RequestDisallowedByPolicy",
        "ResourceTypeNotSupportAvailabilityZones",
    ),
    Meaning.THROTTLED: (
        "OperationsPerWindowExceeded",
        "ResourceRequestsThrottled",
        "SubscriptionRequestsThrottled",
        "TooManyRequests",
    ),
    Meaning.CREDENTIALS: (
        "AuthenticationFailed",
        "AuthorizationFailed",
        "ExpiredAuthenticationToken",
        "InvalidAuthenticationToken",
        "InvalidAuthenticationTokenTenant",
        "InvalidSubscriptionId",
        "LinkedAuthorizationFailed",
        "MissingSubscriptionRegistration",
        "ReadOnlyDisabledSubscription",
        "SubscriptionNotFound",
    ),
    Meaning.NOT_FOUND: ("ImageNotFound", "NotFound", "ParentResourceNotFound", "PlatformImageNotFound",
                        "ResourceNotFound"),
    Meaning.INVALID: (
        "BadRequest",
        "InvalidParameter",
        "InvalidRequestContent",
        "InvalidRequestFormat",
        "InvalidResourceReference",
        "PropertyChangeNotAllowed",
        "ResourceGroupNotFound",
        "ScopeLocked",
    ),
    Meaning.UNAVAILABLE: (
        "GatewayTimeout",
        "InternalExecutionError",
        "InternalOperationError",
        "InternalServerError",
        "NetworkingInternalOperationError",
        "ServerBusy",
        "ServerTimeout",
        "ServiceUnavailable",
    ),
    Meaning.CONFLICT: (
        "AnotherOperationInProgress",
        "AttachDiskWhileBeingDetached",
        "Conflict",
        "InUseNetworkSecurityGroupCannotBeDeleted",
        "InUseSubnetCannotBeDeleted",
        "InvalidResourceLocation",
        "NicInUse",
        "NicReservedForAnotherVm",
        "OperationNotAllowed",
        "PreconditionFailed",
        "PublicIPAddressCannotBeDeleted",
        "PublicIPAddressInUse",
        "ReferencedResourceNotProvisioned",
        "RetryableError",
        "RetryableErrorDueToAnotherOperation",
        "SecurityRuleConflict",
    ),
}  # fmt: skip
WORKED_ON = frozenset(
    {
        "AnotherOperationInProgress",
        "ReferencedResourceNotProvisioned",
        "RetryableError",
        "RetryableErrorDueToAnotherOperation",
    }
)
"""Codes with which Microsoft.Network reports that another operation is changing the object, also with HTTP status 429.
With any other code, status 429 means too many calls. Microsoft.Compute then sends OperationNotAllowed, with
TooManyRequests in the details (learn.microsoft.com, "Troubleshooting API throttling errors - Compute")."""
_MEANINGS = {code: meaning for meaning, codes in CODES.items() for code in codes}
_STATUSES = {
    400: Meaning.INVALID,
    401: Meaning.CREDENTIALS,
    403: Meaning.CREDENTIALS,
    404: Meaning.NOT_FOUND,
    409: Meaning.CONFLICT,
    412: Meaning.CONFLICT,
    429: Meaning.THROTTLED,
}


def meaning(code: str, message: str = "", status: int = 0) -> Meaning:
    """Return the meaning of a code.

    OperationNotAllowed is a quota's refusal if its message says so; otherwise the machine is busy or in the wrong
    state. An unknown code is classified by its HTTP status.
    """
    if status == 429:
        return Meaning.CONFLICT if code in WORKED_ON else Meaning.THROTTLED
    if code in ("OperationNotAllowed", "Conflict", "BadRequest") and "quota" in message.lower():
        return Meaning.QUOTA
    if code in _MEANINGS:
        return _MEANINGS[code]
    if status == 404 and not code:
        # Azure says what it has not found; what says no more stands before it.
        return Meaning.UNAVAILABLE
    return Meaning.UNAVAILABLE if status >= 500 else _STATUSES.get(status, Meaning.OTHER)


def refused(error: Mapping[str, Any], doing: str, *, status: int = 0, after: float = 0.0) -> CloudError:
    """Convert an Azure error body (`{"code": ..., "message": ..., "details": [...]}`) to a CloudError.

    If the outer code only wraps another one, the code and message come from `details`.
    """
    code, message = _telling(error)
    found = meaning(code, message, status)
    return CloudError(
        found,
        f"Azure refused to {doing}: {code or f'HTTP {status}'}: {message or 'no message was given'}"[:1000],
        provider_code=code,
        after=after,
        reach=_reach(code, message) if found is Meaning.QUOTA else None,
    )


OF_LOCATION = frozenset(
    {"IPv4StandardSkuPublicIpCountLimitReached", "PublicIPCountLimitReached", "ResourceQuotaExceeded", "SubnetIsFull"}
)
"""Codes of limits that apply to a whole location, whatever the size of the machine."""
_LIMIT = re.compile(r"approved (.+?)(?: cores)? quota", re.IGNORECASE)
_OF_MARKET = frozenset({"cores", "total regional", "lowprioritycores", "lowpriority", "total regional spot"})


def _reach(code: str, message: str) -> Reach:
    """Return how far a quota error applies, by the limit named in its message.

    An example is `... exceeding approved standardDSv5Family Cores quota ...`.
    """
    if code in OF_LOCATION:
        return Reach.LOCATION
    limit = _LIMIT.search(message)
    return Reach.MARKET if limit and limit[1].lower() in _OF_MARKET else Reach.FAMILY


def worked_on(body: str) -> bool:
    """Return whether an error with status 429 means that another operation is changing the object."""
    return any(f'"{code}"' in body for code in WORKED_ON)


def _telling(error: Mapping[str, Any]) -> tuple[str, str]:
    """Return the code and message of an error body, or those of the first known detail if its code only wraps them."""
    code, message = str(error.get("code") or ""), str(error.get("message") or "")
    details: Sequence[Any] = error.get("details") or ()
    if code in _MEANINGS and code not in ("Conflict", "BadRequest"):
        return code, message
    for detail in details:
        if isinstance(detail, Mapping) and detail.get("code") in _MEANINGS:
            return str(detail["code"]), str(detail.get("message") or message)
    return code, message


_NOT_SENT = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.ProxyError,
    requests_errors.ConnectTimeout,
    requests_errors.ProxyError,
    ssl.SSLCertVerificationError,
)
"""Errors after which the request was certainly not sent."""


@contextmanager
def translated(doing: str, *, write: bool = False) -> Iterator[None]:
    """Convert every error in a call to a CloudError.

    `doing` completes "Azure refused to ..."; `write` means that the call changes something, so that after a lost answer
    it is unknown whether it has.
    """
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
        raise CloudError(Meaning.INVALID, f"Azure could not be reached to {doing}: {error}") from None


def found(doing: str, call: Callable[[], Any]) -> Any:
    """Return the result of a read, or None if the object does not exist."""
    try:
        with translated(doing):
            return call()
    except CloudError as error:
        if error.meaning is Meaning.NOT_FOUND:
            return None
        raise


def seconds(headers: Mapping[str, str], usual: float = 0.0) -> float:
    """Return how many seconds to wait before the next call, according to an answer's headers."""
    for name, unit in (("retry-after-ms", 0.001), ("x-ms-retry-after-ms", 0.001), ("Retry-After", 1.0)):
        given = headers.get(name) or ""
        if given.replace(".", "", 1).isdigit():
            return float(given) * unit
    return usual


def _unauthenticated(error: ClientAuthenticationError, doing: str) -> CloudError:
    if error.response is not None:
        return _answered(error, doing, write=False)
    return CloudError(Meaning.CREDENTIALS, f"Azure issued no token to {doing}: {error.message}"[:1000])


def _answered(error: HttpResponseError, doing: str, write: bool) -> CloudError:
    status = error.status_code or 0
    answer: Any = error.response
    known = refused(_body(error), doing, status=status, after=seconds(answer.headers if answer is not None else {}))
    if (
        write
        and known.meaning is Meaning.UNAVAILABLE
        and known.provider_code not in ("ServerBusy", "ServiceUnavailable")
    ):
        return CloudError(
            Meaning.AMBIGUOUS, f"{known.message} (the request may have taken effect)", provider_code=known.provider_code
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
            f"Azure's certificate is not trusted ({untrusted.verify_message}). Check endpoint and ca_bundle.",
        )
    sent = not isinstance(error, ServiceRequestError) or not any(isinstance(one, _NOT_SENT) for one in causes)
    if write and sent:
        return CloudError(Meaning.AMBIGUOUS, f"The answer to {doing} was lost: {error.message}"[:1000])
    return CloudError(Meaning.UNAVAILABLE, f"Azure could not be reached to {doing}: {error.message}"[:1000])


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and every exception that it wraps.

    requests and urllib3 keep the inner exception in their arguments.
    """
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
