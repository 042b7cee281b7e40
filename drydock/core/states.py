"""State tables: which states there are, which follow which, which are the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

S = TypeVar("S", bound=StrEnum)


@dataclass(frozen=True, kw_only=True)
class StateTable(Generic[S]):
    """The states of one model. Each may go to those named behind it; a state that goes nowhere is terminal."""

    name: str
    transitions: Mapping[S, frozenset[S]]

    @property
    def terminal(self) -> frozenset[S]:
        return frozenset(state for state, following in self.transitions.items() if not following)

    def allows(self, old: S, new: S) -> bool:
        return new in self.transitions[old]

    def before(self, new: S) -> frozenset[S]:
        """The states from which `new` can be reached in one transition."""
        return frozenset(state for state, following in self.transitions.items() if new in following)

    def pairs(self) -> list[tuple[str, str]]:
        """All allowed (from, to), sorted, as the database's trigger lists them."""
        return sorted((old.value, new.value) for old, after in self.transitions.items() for new in after)

    def diagram(self) -> str:
        """The table as a Mermaid state diagram."""
        lines = [f"    {old} --> {new}" for old, new in self.pairs()]
        ends = [f"    {state.value} --> [*]" for state in self.transitions if state in self.terminal]
        first = next(iter(self.transitions)).value
        return "\n".join(["stateDiagram-v2", f"    [*] --> {first}", *lines, *ends])
