"""What the modules of this kind ask of the connection: one call of the API, or all pages of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

Answer = dict[str, Any]


class Calls(Protocol):
    """One account. Every method raises `blueprints.cloud.faults.CloudError` and nothing else."""

    def call(self, operation: str, region: str, *, service: str = "ec2", **parameters: Any) -> Answer:
        """One call, within its deadline and the account's rate."""

    def pages(self, operation: str, region: str, *, service: str = "ec2", **parameters: Any) -> Iterator[Answer]:
        """One call for each page."""

    def descriptions(self) -> dict[str, str]:
        """Region -> what AWS calls it."""


def listed(calls: Calls, operation: str, region: str, field: str, **parameters: Any) -> Iterator[Answer]:
    """Every item of a describe call, over all its pages. EC2 may answer with an empty page and a token for the next
    one, so an empty answer alone proves nothing (EC2 API reference, "Pagination")."""
    for page in calls.pages(operation, region, **parameters):
        yield from page.get(field) or ()


def filters(**wanted: str | Sequence[str]) -> list[dict[str, Any]]:
    """EC2's form of filters; `_` in a name stands for `-`."""
    return [
        {"Name": name.replace("_", "-"), "Values": [values] if isinstance(values, str) else list(values)}
        for name, values in wanted.items()
    ]


def tagged(tags: dict[str, str]) -> list[dict[str, Any]]:
    """The filter for what bears all these tags."""
    return [{"Name": f"tag:{name}", "Values": [value]} for name, value in tags.items()]


def tag_list(tags: dict[str, str]) -> list[dict[str, str]]:
    """EC2's form of tags."""
    return [{"Key": name, "Value": value} for name, value in tags.items()]


def tags_of(found: Answer, field: str = "Tags") -> dict[str, str]:
    """The tags of something that EC2 has described."""
    return {tag["Key"]: tag["Value"] for tag in found.get(field) or ()}
