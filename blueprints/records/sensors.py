"""Sensor readings of a machine, as a step reports them. Depends on no database, queue or provider."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

SensorState: TypeAlias = Literal["ok", "warning", "critical", "unknown"]


@dataclass(frozen=True, kw_only=True)
class SensorReading:
    """A reading of one sensor of a machine."""

    name: str
    value: float | None = None
    """A finite number; None if the sensor has no value now."""
    unit: str = ""
    """Cel, RPM, W, V, A, % or what the machine calls it."""
    state: SensorState = "unknown"

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a reading needs the name of its sensor")
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"the reading of {self.name} is {self.value}, which is not a finite number")


@dataclass(frozen=True, kw_only=True)
class SensorReport:
    """The readings of all sensors of a resource at one time, which the engine keeps for a while.

    The engine keeps a limited number of readings, and cuts long texts. From the power draw in two successive reports it
    computes the energy used by the lease that holds the whole resource.
    """

    at: dt.datetime
    """When the sensors were read, with a time zone."""
    readings: tuple[SensorReading, ...] = ()
    power_watts: float | None = None
    """The power that the whole resource draws, in watts; None if it is not measured."""
    interval: float
    """The time after which the next report is due, in seconds.

    Energy is computed only between reports that are at most twice this time apart, or twice the interval of the
    blueprint's checks if that is longer.
    """

    def __post_init__(self) -> None:
        if self.at.tzinfo is None:
            raise ValueError("the time of a sensor report needs a time zone")
        if self.power_watts is not None and not (math.isfinite(self.power_watts) and self.power_watts >= 0):
            raise ValueError(f"a power draw of {self.power_watts} W is impossible")
        if not (math.isfinite(self.interval) and self.interval >= 0):
            raise ValueError(f"sensors cannot be read every {self.interval} seconds")
