"""The client token: what makes a launch idempotent, and what tells under which name an instance was made.

EC2 takes 64 ASCII characters (https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html), keeps a token
for at least a day after its instance has ended, and counts it per zone where a zone or subnet is named, else per
region; an order's own token names them, so one of ours is never sent to two places. "Launch more like this" copies
tags but not the token, so the name in it is proof that the instance itself was made under it.
"""

from __future__ import annotations

import hashlib
import re

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Order

LONGEST = 64
_LEAST = 20
_OURS = re.compile(r"([a-z0-9][a-z0-9-]*)\.([0-9a-f]{20,})")


def client_token(order: Order) -> str:
    """The order's name, a dot, and as much of its token's SHA-256 in hex as there is room for (80 bits at least).
    Raises CloudError INVALID for a name of more than 43 characters or with characters that are not DNS's."""
    token = f"{order.key}.{hashlib.sha256(order.token.encode()).hexdigest()}"[:LONGEST]
    if key_in(token) != order.key:
        raise CloudError(
            Meaning.INVALID,
            f"The name {order.key!r} does not fit into a client token: at most {LONGEST - _LEAST - 1} of a-z, 0-9, -.",
        )
    return token


def key_in(token: str) -> str:
    """The name in a client token of ours; empty for anybody else's."""
    ours = _OURS.fullmatch(token)
    return ours[1] if ours else ""
