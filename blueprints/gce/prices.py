"""Prices per hour, from the table that ships with us or from a file of the operator's in the same form.

Google prices most series by vCPU and GiB, so the table has rates for each series and region; types that do not follow
their series (shared cores, local disks, built-in GPUs) have prices of their own, attached GPUs one for each card.
The file says its date and source. Compute Engine itself tells no prices.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from blueprints.cloud.values import Market, Price
from blueprints.gce.series import series_of, split
from drydock.core.errors import InvalidRequest

BUNDLED = Path(__file__).with_name("prices.json")
Rows = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True, kw_only=True)
class Table:
    """One file of prices."""

    source: str
    rates: Rows = field(default_factory=dict)
    types: Rows = field(default_factory=dict)
    gpus: Rows = field(default_factory=dict)

    def prices(self, region: str, type_name: str, vcpus: int, ram_mib: int) -> tuple[Price, ...]:
        """On demand and spot, in US dollars; empty where the table does not say."""
        machine, accelerator, count = split(type_name)
        pair = self._machine(region, machine, vcpus, ram_mib)
        cards = self.gpus.get(region, {}).get(accelerator) if accelerator else (0.0, 0.0)
        if pair is None or cards is None:
            return ()
        return tuple(
            Price(market=market, per_hour=round(base + count * card, 6), source=self.source)
            for market, base, card in zip((Market.ON_DEMAND, Market.SPOT), pair, cards, strict=True)
        )

    def _machine(self, region: str, machine: str, vcpus: int, ram_mib: int) -> tuple[float, float] | None:
        own = self.types.get(region, {}).get(machine)
        if own is not None:
            return own[0], own[1]
        rate = self.rates.get(region, {}).get(series_of(machine))
        if rate is None or "custom" in machine or machine.endswith(("-lssd", "-metal")):
            return None
        gib = ram_mib / 1024
        return rate[0] * vcpus + rate[1] * gib, rate[2] * vcpus + rate[3] * gib


@cache
def table(path: str = "") -> Table:
    """The operator's file, or ours. Raises InvalidRequest where it cannot be read."""
    where = Path(path) if path else BUNDLED
    try:
        said: dict[str, Any] = json.loads(where.read_text())
        rows = {name: said.get(name, {}) for name in ("rates", "types", "gpus")}
        source = f"{'file' if path else 'bundled'} {said['date']}"
    except (OSError, ValueError, KeyError) as error:
        raise InvalidRequest(
            f"The prices in {where.name} cannot be read: {type(error).__name__}.",
            field="prices",
            hint="It is JSON with date, rates, types and gpus, as blueprints/gce/prices.json.",
        ) from None
    return Table(source=source, **rows)
