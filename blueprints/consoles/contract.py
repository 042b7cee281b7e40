"""The contract of console drivers: how the line to a serial console is opened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from blueprints.contract import Fields
from interfaces.console.contract import Line
from interfaces.deadline import Deadline


class ConsoleDriver(ABC):
    """Opens lines to serial consoles of one sort. Stateless.

    Drivers of other packages are found by their entry point in the group `drydock.consoles`. They need only this module
    and `interfaces.console`.
    """

    name: ClassVar[str]
    Access: ClassVar[type[Fields]] = Fields
    """How one console is reached. Part of a registration, beside the name of the driver."""
    Credential: ClassVar[type[Fields] | None] = None
    """The secrets of one console, or of all; None if there are none."""

    @abstractmethod
    def connect(self, access: Any, credential: Mapping[str, str], *, deadline: Deadline, take: bool) -> Line:
        """Open the line to a console within the deadline.

        `access` is an instance of `Access`, and `credential` has the fields of `Credential`. If `take` is true, a
        session of somebody else is ended, as far as the console allows it. Raises ConsoleBusy if somebody else uses the
        console, and other subclasses of DrydockError.
        """
