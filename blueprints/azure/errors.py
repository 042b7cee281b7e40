"""What the error codes of Azure Resource Manager mean to us.

Sources: learn.microsoft.com "Troubleshoot common Azure deployment errors" (azure-resource-manager/troubleshooting/
common-deployment-errors), "Resolve errors for SKU not available", "Troubleshoot allocation failures"
(virtual-machines/allocation-failure), "Understand how Azure Resource Manager throttles requests"; the codes of
objects in use from the REST reference of Microsoft.Network.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

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
"""Codes by which Microsoft.Network says, with 429 too, that another operation works on the object. With any other code
429 is too many calls: Microsoft.Compute says OperationNotAllowed then, and TooManyRequests in the details
(learn.microsoft.com, "Troubleshooting API throttling errors - Compute")."""
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
    """What one code means. OperationNotAllowed is a quota's refusal where its message says so, else the machine is
    busy or in the wrong state; an unknown code counts by its HTTP status."""
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


def told(error: Mapping[str, Any], doing: str, *, status: int = 0, after: float = 0.0) -> CloudError:
    """The CloudError of an error body of ARM, `{"code": ..., "message": ..., "details": [...]}`, in its own words."""
    code, message = _telling(error)
    found = meaning(code, message, status)
    return CloudError(
        found,
        f"Azure refused to {doing}: {code or f'HTTP {status}'}: {message or 'no more was said'}"[:1000],
        provider_code=code,
        after=after,
        reach=_reach(code, message) if found is Meaning.QUOTA else None,
    )


OF_LOCATION = frozenset(
    {"IPv4StandardSkuPublicIpCountLimitReached", "PublicIPCountLimitReached", "ResourceQuotaExceeded", "SubnetIsFull"}
)
"""Limits of a location, whatever the size."""
_LIMIT = re.compile(r"approved (.+?)(?: cores)? quota", re.IGNORECASE)
_OF_MARKET = frozenset({"cores", "total regional", "lowprioritycores", "lowpriority", "total regional spot"})


def _reach(code: str, message: str) -> Reach:
    """By the name of the limit: `... exceeding approved standardDSv5Family Cores quota ...`."""
    if code in OF_LOCATION:
        return Reach.LOCATION
    limit = _LIMIT.search(message)
    return Reach.MARKET if limit and limit[1].lower() in _OF_MARKET else Reach.FAMILY


def worked_on(body: str) -> bool:
    """Whether a body with 429 tells of an object that another operation works on."""
    return any(f'"{code}"' in body for code in WORKED_ON)


def _telling(error: Mapping[str, Any]) -> tuple[str, str]:
    """Code and message; those of the first detail that we know where the outer code only wraps it."""
    code, message = str(error.get("code") or ""), str(error.get("message") or "")
    details: Sequence[Any] = error.get("details") or ()
    if code in _MEANINGS and code not in ("Conflict", "BadRequest"):
        return code, message
    for detail in details:
        if isinstance(detail, Mapping) and detail.get("code") in _MEANINGS:
            return str(detail["code"]), str(detail.get("message") or message)
    return code, message
