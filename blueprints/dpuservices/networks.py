"""The ranges of addresses that the config of a blueprint lets owners use."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network
from typing import Annotated

from pydantic import AfterValidator

from blueprints.dpuservices.chains import ChainConfig


def _checked(ranges: tuple[str, ...]) -> tuple[str, ...]:
    for one in ranges:
        try:
            IPv4Network(one)
        except ValueError as error:
            raise ValueError(f"{one[:60]!r} is not an IPv4 range, such as 10.20.0.0/16: {error}") from None
    return ranges


Ranges = Annotated[tuple[str, ...], AfterValidator(_checked)]
"""IPv4 ranges, such as 10.20.0.0/16."""


def networks_need_chains(ranges: Sequence[str], chains: ChainConfig | None) -> None:
    """Raise ValueError for ranges without chains, which alone use networks."""
    if ranges and chains is None:
        raise ValueError("networks: they are of use with `chains` only.")
