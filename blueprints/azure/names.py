"""Names of what is made at Azure, all of the order's key, and their limits.

Source of the limits: learn.microsoft.com, "Naming rules and restrictions for Azure resources" (a Linux machine 64
characters, network objects and disks 80) and "Use tags to organize your Azure resources".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from blueprints.cloud import values
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Order

ATTEMPT = "drydock-attempt"
"""The tag with the order's token: which attempt made a machine."""
INSTALLATION = "drydock-installation"
MOST_TAGS, LONGEST_TAG, LONGEST_VALUE = 50, 512, 256
_KEY = re.compile(r"^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$")

SUFFIXES = {"machine": "", "nic": "-nic", "ip": "-ip", "nsg": "-nsg", "disk": "-disk"}
"""In the order in which they can go."""


def name(part: str, key: str) -> str:
    """The name of one part of what stands under a key."""
    return key + SUFFIXES[part]


def check(order: Order) -> None:
    """Raises CloudError INVALID where Azure would not take the key or the tags."""
    if not _KEY.match(order.key):
        raise _invalid(f"{order.key!r} is not a name for a machine: 1 to 64 of a-z, 0-9 and -.")
    check_tags({**order.tags, ATTEMPT: order.token})


def check_tags(tags: Mapping[str, str]) -> None:
    """Raises CloudError INVALID where Azure would not take the tags."""
    if len(tags) > MOST_TAGS:
        raise _invalid(f"{len(tags)} tags are too many: Azure takes {MOST_TAGS}, one of which is ours.")
    for tag, value in tags.items():
        if not tag or len(tag) > LONGEST_TAG or set(tag) & set("<>%&\\?/"):
            raise _invalid(f"{tag!r} is not a name for a tag: up to {LONGEST_TAG} characters, without <>%&\\?/.")
        if len(value) > LONGEST_VALUE:
            raise _invalid(f"The tag {tag} has {len(value)} characters; {LONGEST_VALUE} are allowed.")


def bears(found: Mapping[str, Any], tags: Mapping[str, str]) -> bool:
    """Whether an object bears these tags."""
    there = _tags(found)
    return all(there.get(tag.lower()) == value for tag, value in tags.items())


def of_owner(found: Mapping[str, Any], tags: Mapping[str, str]) -> bool:
    """Whether an object bears those of these tags that say whose it is."""
    return values.same_owner(_tags(found), {tag.lower(): value for tag, value in tags.items()})


def lost_tags(found: Mapping[str, Any]) -> bool:
    """Whether an object bears no tag of any Drydock."""
    return values.lost_tags(_tags(found))


def _tags(found: Mapping[str, Any]) -> dict[str, str]:
    """Azure keeps the case of a tag's name, and takes each for the same."""
    return {tag.lower(): value for tag, value in (found.get("tags") or {}).items()}


def _invalid(message: str) -> CloudError:
    return CloudError(Meaning.INVALID, message)
