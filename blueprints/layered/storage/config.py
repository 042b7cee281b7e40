"""Config of blueprints of kind storage, attributes of storage resources, and requirements of leases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from blueprints.amounts import Amounts
from blueprints.contract import Fields
from blueprints.hosts import Words
from blueprints.layered.frame import fits
from blueprints.layered.host import OnHost
from blueprints.matching import Match
from blueprints.specs import Asked, Draft

Limit = Literal["loop", "checked"]


class Config(OnHost):
    """Config of a blueprint of kind storage. By default, folders of 1 GiB on any host."""

    disk_mib: PositiveInt = Field(default=1024, description="Default size of the storage, in MiB.")
    max_disk_mib: PositiveInt = Field(default=1 << 20, description="Maximum size of the storage, in MiB.")
    limit: Literal["auto", "loop", "checked"] = Field(
        default="auto",
        description="How the size is enforced. loop: by a separate file system, which requires root on the host; "
        "checked: by measuring before writes; auto: loop if possible.",
    )

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        if self.disk_mib > self.max_disk_mib:
            raise ValueError("disk_mib is more than max_disk_mib")
        return self


class Attributes(Fields):
    """Attributes of a storage resource."""

    limit: Limit | None = Field(
        default=None, description="How the size is enforced. loop: by the kernel; checked: by measuring before writes."
    )
    disk_mib: int | None = Field(default=None, description="Size in MiB.")


class Requirements(Fields):
    """Requirements that a lease may set for its storage."""

    disk_mib: PositiveInt | None = Field(default=None, description="Minimum size in MiB.")
    limit: Words | None = Field(default=None, description="How the size must be enforced: loop or checked.")


MATCHES = (Match("disk_mib", ">=", "disk_mib"), Match("limit", "in", "limit"))


def drafts(config: Config, asked: Asked | None) -> Iterator[Draft]:
    """Yield a draft for storage of the requested size."""
    size = _size(config, asked)
    if size > config.max_disk_mib:
        return
    for limit in _limits(config, asked):
        attributes: dict[str, Any] = {"disk_mib": size} | ({"limit": limit} if limit else {})
        draft = Draft(attributes=attributes, capacity=Amounts(disk_mib=size))
        if asked is None or fits(MATCHES, draft, asked):
            yield draft
            return


def _size(config: Config, asked: Asked | None) -> int:
    wished = (asked.amounts.disk_mib, asked.requirements.disk_mib or 0) if asked else (0, 0)
    return max(wished) or config.disk_mib


def _limits(config: Config, asked: Asked | None) -> tuple[Limit | None, ...]:
    """Return the limits that can be promised in advance; None if the limit is known only after the build."""
    if config.limit != "auto":
        return (config.limit,)
    return (None,) if asked is None or asked.requirements.limit is None else ("loop", "checked")
