"""Plans as files: what a client process is given, and what is kept of a run that failed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from chaos.orders import Order
from chaos.plan import Plan


def write_plan(plan: Plan, path: Path) -> None:
    """The whole plan as JSON."""
    path.write_text(json.dumps(asdict(plan), indent=1))


def read_orders(path: Path) -> list[Order]:
    """The orders of a plan's file."""
    return [Order(**one | {"requests": tuple(one["requests"])}) for one in json.loads(path.read_text())["orders"]]
