"""Figures of a bench: measured, compared, shown and kept."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure; `ratio` compares it with something of the same run, which `against` names."""

    name: str
    value: float
    unit: str
    against: str = ""
    ratio: float | None = None


def figure(name: str, value: float, unit: str, against: str = "", ratio: float | None = None) -> Figure:
    """A figure, rounded to what one can read."""
    rounded = None if ratio is None else round(ratio, 3)
    return Figure(name=name, value=round(value, 3), unit=unit, against=against, ratio=rounded)


def timed(work: Callable[[], object], times: int) -> float:
    """The median of the seconds that `work` takes, after two calls that do not count."""
    work(), work()
    return statistics.median(seconds(work) for _ in range(times))


def median(work: Callable[[], float], times: int) -> float:
    """The median of what `work` measured, after two calls that do not count."""
    work(), work()
    return statistics.median(work() for _ in range(times))


def seconds(work: Callable[[], object]) -> float:
    """The seconds that one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def against(work: Callable[[], object], baseline: Callable[[], object], times: int) -> tuple[float, float]:
    """Seconds of `work`, and their ratio to those of `baseline`; the two take turns and meet the same noise."""
    pairs = [(seconds(work), seconds(baseline)) for _ in range(times + 2)][2:]
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    return ours, ours / theirs


def show(figures: Iterable[Figure]) -> None:
    """A table on the terminal."""
    table = Table("figure", "value", "unit", "against", "ratio", title="make bench")
    for one in figures:
        table.add_row(one.name, f"{one.value:g}", one.unit, one.against, "" if one.ratio is None else f"{one.ratio:g}")
    Console(width=150).print(table)


def keep(figures: Iterable[Figure], path: Path) -> None:
    """The same as a JSON list."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(one) for one in figures], indent=1) + "\n")
