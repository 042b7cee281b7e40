"""Meanings of EC2's error codes.

Sources: "Error codes for the Amazon EC2 API" (https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-error-codes.html)
for the codes, the same page's table "Server error codes" for those sent with HTTP 5xx, and the docs/kinds pages for the
consequences of each meaning. STS, Service Quotas and the Price List share the common codes at the end.
"""

from __future__ import annotations

from blueprints.cloud.faults import CloudError, Meaning, Reach

UNAUTHENTICATED = (
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "InvalidSecurityToken",
    "MissingAuthenticationToken",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
)
"""Codes for a caller that EC2 cannot authenticate, as opposed to one that lacks a permission."""
CODES: dict[Meaning, tuple[str, ...]] = {
    Meaning.NO_CAPACITY: (
        # These come with HTTP 500: they are looked up before the status is.
        "InsufficientInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientVolumeCapacity",
        "InsufficientAddressCapacity",
        "ReservationCapacityExceeded",
        "UnfulfillableCapacity",
        "SpotMaxPriceTooLow",
    ),
    Meaning.QUOTA: (
        "VcpuLimitExceeded",
        "InstanceLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "HostLimitExceeded",
        "VolumeLimitExceeded",
        "MaxIOPSLimitExceeded",
        "AddressLimitExceeded",
        "PrivateIpAddressLimitExceeded",
        "NetworkInterfaceLimitExceeded",
        "SecurityGroupLimitExceeded",
        "RulesPerSecurityGroupLimitExceeded",
        "SecurityGroupsPerInstanceLimitExceeded",
        "VolumeModificationSizeLimitExceeded",
        "ResourceLimitExceeded",
        "InsufficientFreeAddressesInSubnet",
    ),
    Meaning.NOT_OFFERED: (
        "Unsupported",
        "UnsupportedOperation",
        "UnsupportedInstanceAttribute",
        "UnsupportedHostConfiguration",
        "UnsupportedTenancy",
        "EncryptedVolumesNotSupported",
        "InvalidInstanceType",
        "InvalidInstanceType.NotFound",
        "InvalidAvailabilityZone",
        "InvalidParameterCombination",
    ),
    Meaning.THROTTLED: (
        "RequestLimitExceeded",
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "PriorRequestNotComplete",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
    ),
    Meaning.CREDENTIALS: (
        *UNAUTHENTICATED,
        "UnauthorizedOperation",
        "OptInRequired",
        "PendingVerification",
        "Blocked",
        "AccessDenied",
        "AccessDeniedException",
        "RegionDisabledException",
    ),
    Meaning.NOT_FOUND: ("InvalidAMIID.Unavailable",),
    Meaning.CONFLICT: (
        "ConcurrentTagAccess",
        "DependencyViolation",
        "IdempotentInstanceTerminated",
        "IncorrectInstanceState",
        "IncorrectModificationState",
        "IncorrectSpotRequestState",
        "IncorrectState",
        "InvalidGroup.Duplicate",
        "InvalidGroup.InUse",
        "InvalidNetworkInterface.InUse",
        "InvalidPermission.Duplicate",
        "ResourceInUse",
        "VolumeInUse",
        "VolumeModificationRateExceeded",
    ),
    Meaning.INVALID: (
        "DefaultVpcDoesNotExist",
        "FilterLimitExceeded",
        "IdempotentParameterMismatch",
        "OperationNotPermitted",
        "TagLimitExceeded",
        "UnknownParameter",
        "ValidationError",
        "ValidationException",
        "VPCIdNotSpecified",
    ),
    Meaning.UNAVAILABLE: (
        # Of a call that changes something nobody knows what became: AMBIGUOUS there.
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "RequestTimeout",
        "ServiceException",
        "ServiceUnavailable",
        "Unavailable",
    ),
}
ZONE_WIDE = frozenset({"InsufficientFreeAddressesInSubnet"})
"""Codes that exclude the whole zone, whatever the instance type."""
OF_FAMILY = frozenset({"VcpuLimitExceeded", "MaxSpotInstanceCountExceeded", "InstanceLimitExceeded"})
"""Codes of quotas that limit one family of types in one market. Other quotas limit a whole region, whatever the
type."""
_MEANINGS = {code: meaning for meaning, codes in CODES.items() for code in codes}
_LONGEST = 500
_ENCODED = "Encoded authorization failure message:"


def meaning_of(code: str, status: int = 400, *, changes: bool = False) -> Meaning:
    """Return the meaning of an error code with its HTTP status. `changes` is true if the call was not a read."""
    known = _MEANINGS.get(code) or _by_form(code)
    if known is None and status >= 500:
        known = Meaning.UNAVAILABLE
    if known is Meaning.UNAVAILABLE and changes:
        return Meaning.AMBIGUOUS
    return known or Meaning.OTHER


def _by_form(code: str) -> Meaning | None:
    """Return the meaning of a code by its form, such as Invalid<Thing>.NotFound, or None for any other form."""
    if code.endswith((".NotFound", ".Unknown")):
        return Meaning.NOT_FOUND
    if code.startswith(("Invalid", "Malformed", "Missing")) or code.endswith(".Malformed"):
        return Meaning.INVALID
    return None


def refused(code: str, message: str, status: int = 400, *, changes: bool = False) -> CloudError:
    """Return the error for a refusal by EC2, with EC2's message but without the encoded part that only EC2 can read."""
    words = message.partition(_ENCODED)[0].strip()[:_LONGEST] or f"EC2 answered {status}."
    meaning, zone_wide = meaning_of(code, status, changes=changes), code in ZONE_WIDE
    reach = None
    if meaning is Meaning.QUOTA and not zone_wide:
        reach = Reach.FAMILY if code in OF_FAMILY else Reach.LOCATION
    return CloudError(meaning, words, provider_code=code, zone_wide=zone_wide, reach=reach)
