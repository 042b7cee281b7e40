"""Named parts of resources."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["ok", "dead", "missing"]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A named part of a resource that is claimed by name: a GPU (its UUID), a port, a virtual function.

    The capacity class named `part_class` is the number of healthy parts of this class.
    """

    part_class: str
    identity: str
    attributes: dict[str, Any] = field(default_factory=dict)
    state: State = "ok"
    """The health of the part. A `dead` part is not leased, but the rest of the resource is. A `missing` part is no
    longer reported; only the engine sets this state.
    """
