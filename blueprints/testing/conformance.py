"""The conformance suite, which tests every line of the contract for any kind.

    class TestMine(KindConformance):
        kind = Mine()
        def config(self): ...
        def outside(self): ...

The hooks to implement are in `blueprints.testing.hooks`. Tests for capabilities that the kind lacks are not collected.
"""

from __future__ import annotations

from typing import Any

from blueprints.testing.acting import Acting
from blueprints.testing.declared import Declared
from blueprints.testing.drafting import Drafting
from blueprints.testing.following import Following
from blueprints.testing.hooks import Outside
from blueprints.testing.leasing import Leasing
from blueprints.testing.leftovers import Leftovers
from blueprints.testing.making import Making
from blueprints.testing.offering import Offering
from blueprints.testing.operating import Operating
from blueprints.testing.phases import applies
from blueprints.testing.watching import Watching


class KindConformance(Declared, Drafting, Offering, Making, Leasing, Leftovers, Watching, Following, Operating, Acting):
    """The suite. Subclass it under a name that begins with Test, set `kind`, and implement the hooks."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if (kind := getattr(cls, "kind", None)) is None:
            return
        if not cls.on_host:
            cls.test_nothing_that_a_lease_plants_outlives_it = None  # type: ignore[assignment]
        for name in dir(cls):
            if name.startswith("test_") and not applies(getattr(cls, name), kind):
                setattr(cls, name, None)


__all__ = ["KindConformance", "Outside"]
