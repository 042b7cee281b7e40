"""What sizes cost, from a table: Azure's price list is an API of its own, and has no figures for what one account pays.

The bundled table is made from the Azure Retail Prices API as recorded in Azure/karpenter-provider-azure
(pkg/providers/pricing/zz_generated.pricing.go); its date, locations and commit are in prices.json. On demand, Linux,
US dollars per hour.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Market, Price

BUNDLED = Path(__file__).with_name("prices.json")


@dataclass(frozen=True, kw_only=True)
class Prices:
    """One table: size (without `Standard_`) -> figures in the order of `locations`."""

    source: str
    locations: tuple[str, ...]
    on_demand: dict[str, list[float | None]]
    spot: dict[str, list[float | None]]

    def of(self, size: str, location: str, *, spot: bool) -> tuple[Price, ...]:
        """Those of a size in a location; empty where the table has none.

        `spot`: the size can be had so. Without a figure of its own the price is the one on demand, which Azure never
        exceeds for a machine without a maximum (learn.microsoft.com, "Use Azure Spot Virtual Machines", pricing).
        """
        usual = self._figure(self.on_demand, size, location)
        if usual is None:
            return ()
        found = [Price(market=Market.ON_DEMAND, per_hour=usual, source=self.source)]
        if spot:
            known = self._figure(self.spot, size, location)
            source = self.source if known is not None else f"{self.source}, at most"
            found.append(Price(market=Market.SPOT, per_hour=usual if known is None else known, source=source))
        return tuple(found)

    def _figure(self, table: dict[str, list[float | None]], size: str, location: str) -> float | None:
        row = table.get(size.removeprefix("Standard_"))
        return row[self.locations.index(location)] if row and location in self.locations else None


@cache
def table(path: str = "") -> Prices:
    """The table in a file, or ours. Raises CloudError INVALID where it cannot be read."""
    try:
        return _read(json.loads(Path(path or BUNDLED).read_text(encoding="utf-8")), path)
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise CloudError(Meaning.INVALID, f"The prices in {path} cannot be read: {error!r}") from None


def _read(given: dict[str, Any], path: str) -> Prices:
    locations = tuple(given["locations"])
    tables = {name: dict(given.get(name, {})) for name in ("on_demand", "spot")}
    wrong = [size for rows in tables.values() for size, row in rows.items() if len(row) != len(locations)]
    if wrong:
        raise ValueError(f"{wrong[0]} has not one figure for each location")
    return Prices(source=f"{Path(path).name if path else 'bundled'} {given['read_at']}", locations=locations, **tables)
