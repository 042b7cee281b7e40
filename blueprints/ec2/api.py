"""Calls to the EC2 API: the connection that this package needs, filters, tags, and the client token.

The client token makes a launch idempotent, and proves the name under which an instance was created. EC2 accepts 64
ASCII characters (https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html) and keeps a token for at
least a day after its instance has ended. A token is scoped to the zone if the call names a zone or subnet, else to the
region. An order's token contains both, so a token is never sent to two places. "Launch more like this" copies tags but
not the token: the name in the token proves that the instance itself was created under it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Order

Answer = dict[str, Any]


class Calls(Protocol):
    """The calls for one account. Every method raises only `blueprints.cloud.faults.CloudError`."""

    def call(self, operation: str, region: str, *, service: str = "ec2", **parameters: Any) -> Answer:
        """Make one call, within its deadline and the account's rate."""

    def pages(self, operation: str, region: str, *, service: str = "ec2", **parameters: Any) -> Iterator[Answer]:
        """Yield the pages of a list, with one call for each page."""

    def descriptions(self) -> dict[str, str]:
        """Return AWS's name for each region."""


def listed(calls: Calls, operation: str, region: str, field: str, **parameters: Any) -> Iterator[Answer]:
    """Yield every item from a describe call, over all its pages.

    EC2 may answer with an empty page and a token for the next one, so an empty answer alone proves nothing (EC2 API
    reference, "Pagination").
    """
    for page in calls.pages(operation, region, **parameters):
        yield from page.get(field) or ()


def filters(**wanted: str | Sequence[str]) -> list[dict[str, Any]]:
    """Return filters in EC2's form; `_` in a name stands for `-`."""
    return [
        {"Name": name.replace("_", "-"), "Values": [values] if isinstance(values, str) else list(values)}
        for name, values in wanted.items()
    ]


def tagged(tags: dict[str, str]) -> list[dict[str, Any]]:
    """Return the filter for objects that have all these tags."""
    return [{"Name": f"tag:{name}", "Values": [value]} for name, value in tags.items()]


def tag_list(tags: dict[str, str]) -> list[dict[str, str]]:
    """Return tags in EC2's form."""
    return [{"Key": name, "Value": value} for name, value in tags.items()]


def tags_of(found: Answer, field: str = "Tags") -> dict[str, str]:
    """Return the tags of an object that EC2 has described."""
    return {tag["Key"]: tag["Value"] for tag in found.get(field) or ()}


LONGEST = 64
_LEAST = 20
_OURS = re.compile(r"([a-z0-9][a-z0-9-]*)\.([0-9a-f]{20,})")


def client_token(order: Order) -> str:
    """Return the order's name, a dot, and as much of its token's SHA-256 in hex as fits (at least 80 bits).

    Raises CloudError INVALID for a name of more than 43 characters or with characters that DNS does not allow.
    """
    token = f"{order.key}.{hashlib.sha256(order.token.encode()).hexdigest()}"[:LONGEST]
    if key_in(token) != order.key:
        raise CloudError(
            Meaning.INVALID,
            (
                f"The name {order.key!r} is not valid in a client token: use at most {LONGEST - _LEAST - 1} "
                "characters of a-z, 0-9 and -."
            ),
        )
    return token


def key_in(token: str) -> str:
    """Return the name in a client token that Drydock created, or an empty string for any other token."""
    ours = _OURS.fullmatch(token)
    return ours[1] if ours else ""
