"""The steps of the fake kinds."""

from __future__ import annotations

from blueprints.contract import Act, Step
from blueprints.fake.strikes import faulty


def step(phase: str, name: str, act: Act, find: Act | None = None, *, interruptible: bool = True) -> Step:
    """A step that the fault plan may strike, under the name `PHASE.NAME`."""
    call = f"{phase}.{name}"
    return Step(
        name=name,
        act=faulty(call, act),
        find=faulty(f"{call}.find", find) if find else None,
        interruptible=interruptible,
    )
