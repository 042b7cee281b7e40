"""Meanings of Compute Engine's errors.

Sources: the API's error catalogue (docs.cloud.google.com/compute/docs/reference/rest/v1/errors), "Troubleshoot resource
availability errors", "API rate quotas" and "Concurrent operation quotas" (403 rateLimitExceeded), and errors that
SkyPilot and dstack met in practice (RESOURCE_NOT_READY and UNSUPPORTED_OPERATION after a create; preemption at start).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import requests
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError, TransportError
from google.protobuf.json_format import ParseError  # type: ignore[import-untyped]
from urllib3.exceptions import NewConnectionError

from blueprints.cloud.faults import CloudError, Meaning, Reach

M = Meaning
REASONS: dict[str, Meaning] = {
    "zone_resource_pool_exhausted": M.NO_CAPACITY,
    "zone_resource_pool_exhausted_with_details": M.NO_CAPACITY,
    "insufficientcapacity": M.NO_CAPACITY,
    "resourcepoolexhausted": M.NO_CAPACITY,
    "stockout": M.NO_CAPACITY,
    "service_unavailable_for_location": M.NO_CAPACITY,
    "resource_not_ready": M.NO_CAPACITY,
    "preempted": M.NO_CAPACITY,
    "quotaexceeded": M.QUOTA,
    "quota_exceeded": M.QUOTA,
    "unsupported_operation": M.NOT_OFFERED,
    "machine_type_not_found": M.NOT_OFFERED,
    "ratelimitexceeded": M.THROTTLED,
    "userratelimitexceeded": M.THROTTLED,
    "rate_limit_exceeded": M.THROTTLED,
    "resource_operation_rate_exceeded": M.THROTTLED,
    "operation_rate_exceeded": M.THROTTLED,
    "concurrent_operations_quota_exceeded": M.THROTTLED,
    "autherror": M.CREDENTIALS,
    "iam_permission_denied": M.CREDENTIALS,
    "permissions_error": M.CREDENTIALS,
    "insufficientpermissions": M.CREDENTIALS,
    "accessnotconfigured": M.CREDENTIALS,
    "service_disabled": M.CREDENTIALS,
    "billing_disabled": M.CREDENTIALS,
    "project_not_found": M.CREDENTIALS,
    "notfound": M.NOT_FOUND,
    "resource_not_found": M.NOT_FOUND,
    "invalid": M.INVALID,
    "invalid_field_value": M.INVALID,
    "missing_required_field": M.INVALID,
    "field_size_too_large": M.INVALID,
    "network_not_found": M.INVALID,
    "vpc_not_found": M.INVALID,
    "alreadyexists": M.INVALID,
    "resource_already_exists": M.INVALID,
    "resourceinusebyanotherresource": M.CONFLICT,
    "resource_in_use_by_another_resource": M.CONFLICT,
    "resourcenotready": M.CONFLICT,
    "conditionnotmet": M.CONFLICT,
}
"""Maps the reason of an HTTP error, or the code of an operation's error, in lower case, to its meaning."""
STATUSES: dict[int, Meaning] = {
    400: M.INVALID,
    401: M.CREDENTIALS,
    403: M.CREDENTIALS,
    404: M.NOT_FOUND,
    409: M.CONFLICT,
    412: M.CONFLICT,
    429: M.THROTTLED,
}
"""Maps the HTTP status of an error with an unknown reason to its meaning. `meaning` classifies 500 and above."""
NOT_OFFERED = ("machine type with name", "machinetypes/", "acceleratortypes/", "is not available in zone")
"""Phrases in the message of a 400 or 404 for a missing object. They mean that the ordered type is not offered."""


_CONSTRAINT = re.compile(r"\bconstraints/|\bcustomConstraints/|^Constraint ")
_LOCATIONS = "gcp.resourceLocations"
"""The constraint that allows only some locations. It may allow other locations of the blueprint."""


def meaning(reason: str, status: int, text: str, *, writes: bool) -> Meaning:
    """Return the meaning of one of Google's errors.

    A write that failed with a 5xx may have taken effect. `conditionNotMet` is either a fingerprint that somebody else
    has changed, or a constraint of an organisation's policy, which no retry changes.
    """
    if (status == 412 or reason.lower() in ("conditionnotmet", "condition_not_met")) and _CONSTRAINT.search(text):
        return M.NOT_OFFERED if _LOCATIONS in text else M.POLICY
    known = REASONS.get(reason.lower())
    if known in (M.INVALID, M.NOT_FOUND, None) and status in (400, 404) and _about_offer(text):
        return M.NOT_OFFERED
    if known is not None:
        return known
    if status >= 500:
        return M.AMBIGUOUS if writes else M.UNAVAILABLE
    return STATUSES.get(status, M.OTHER)


def _about_offer(text: str) -> bool:
    small = text.lower()
    return any(words in small for words in NOT_OFFERED) and ("not exist" in small or "not found" in small)


def of_operation(code: str, text: str, status: int = 0) -> CloudError:
    """Return the error of a finished operation."""
    found = meaning(code, status if status < 500 else 0, text, writes=True)
    if "due to preemption" in text:
        found = M.NO_CAPACITY
    wide = _zone_wide(code, text)
    return CloudError(found, text or code, provider_code=code, zone_wide=wide, reach=_reach(found, text))


def _zone_wide(code: str, text: str) -> bool:
    """Return whether an error applies to the whole zone: its code or message names the zone, but no machine type."""
    says_so = text.startswith("The zone ") and "does not have enough resources available" in text
    return code == "SERVICE_UNAVAILABLE_FOR_LOCATION" or says_so


_METRIC = re.compile(r"Quota '([A-Z0-9_]+)' exceeded")
OF_METRIC = {
    "CPUS_ALL_REGIONS": Reach.ACCOUNT,
    "PREEMPTIBLE_CPUS": Reach.MARKET,
    **dict.fromkeys(("INSTANCES", "IN_USE_ADDRESSES", "DISKS_TOTAL_GB", "SSD_TOTAL_GB"), Reach.LOCATION),
}
"""Maps metrics that count more than one series to how far their quota applies
(docs.cloud.google.com/compute/resource-usage). All other metrics count a single series."""


def _reach(found: Meaning, text: str) -> Reach | None:
    """Return how far a refusal applies, or None if only to the type and zone.

    A quota error names its metric: `Quota 'N2_CPUS' exceeded. Limit: 8.0 in region us-central1.`
    """
    if found is M.NOT_OFFERED and _LOCATIONS in text:
        return Reach.LOCATION
    metric = _METRIC.search(text)
    return OF_METRIC.get(metric[1], Reach.FAMILY) if found is M.QUOTA and metric else None


@contextmanager
def translated(*, writes: bool = False, asked: str = "Compute Engine") -> Iterator[None]:
    """Convert every error of the SDK, the credentials or the connection to a CloudError. `asked` names the service."""
    try:
        yield
    except GoogleAPICallError as error:
        raise _of_call(error, asked, writes=writes) from error
    except GoogleAuthError as error:
        raise _of_credentials(error) from error
    except requests.RequestException as error:
        raise _of_connection(error, asked, writes=writes) from error
    except ParseError as error:
        found = M.AMBIGUOUS if writes else M.UNAVAILABLE
        raise CloudError(found, f"The answer from {asked} is not JSON.", provider_code="noAnswer") from error


def _of_call(error: GoogleAPICallError, asked: str, *, writes: bool) -> CloudError:
    status, reason = int(error.code or 0), _reason(error)
    text = re.sub(r"^[A-Z]+ https?://\S+: ", "", str(error.message))
    if "<html" in text.lower():
        text = f"{asked} answered with status {status}: {text}"
    found = meaning(reason, status, text, writes=writes)
    if status == 404 and not reason:
        # Google says why; what says no more stands before it.
        found, text = M.UNAVAILABLE, f"{asked} was not found at its address (status 404 without an error from Google)."
    after = _after(getattr(error.response, "headers", None) or {})
    return CloudError(
        found, text, provider_code=reason or str(status), zone_wide=_zone_wide(reason, text), after=after,
        reach=_reach(found, text),
    )  # fmt: skip


def _reason(error: GoogleAPICallError) -> str:
    """Return the reason of an error: `errors[0].reason` or, if that is missing, the reason in ErrorInfo."""
    for one in error.errors or ():
        if isinstance(one, Mapping) and one.get("reason"):
            return str(one["reason"])
    return str(error.reason or "")


def _after(headers: Mapping[str, Any]) -> float:
    said = str(headers.get("Retry-After", ""))
    return float(said) if said.isdigit() else 0.0


def _of_credentials(error: GoogleAuthError) -> CloudError:
    if isinstance(error, TransportError) or (isinstance(error, RefreshError) and error.retryable):
        return CloudError(M.UNAVAILABLE, "Google's token service could not be reached.", provider_code="auth")
    if isinstance(error, DefaultCredentialsError):
        text = "No application default credentials were found where Drydock runs."
        return CloudError(M.CREDENTIALS, text, provider_code="noCredentials")
    return CloudError(M.CREDENTIALS, f"Google did not issue a token: {str(error)[:300]}", provider_code="noToken")


def _of_connection(error: requests.RequestException, asked: str, *, writes: bool) -> CloudError:
    if isinstance(error, requests.exceptions.SSLError):
        text = "The endpoint's certificate is not trusted (see ca_bundle)."
        return CloudError(M.CREDENTIALS, text, provider_code="certificate")
    if isinstance(error, requests.exceptions.ConnectTimeout) or _never_sent(error):
        return CloudError(M.UNAVAILABLE, f"{asked} could not be reached.", provider_code="unreachable")
    found = M.AMBIGUOUS if writes else M.UNAVAILABLE
    return CloudError(found, f"The answer from {asked} was lost.", provider_code="noAnswer")


def _never_sent(error: BaseException) -> bool:
    """Return whether the request was certainly not sent, according to the causes that requests and urllib3 wrap."""
    seen: list[BaseException] = [error]
    while seen:
        one = seen.pop()
        if isinstance(one, NewConnectionError):
            return True
        seen += [cause for cause in (*one.args, getattr(one, "reason", None)) if isinstance(cause, BaseException)]
    return False
