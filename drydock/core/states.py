"""State tables: the states of a model, the transitions between them, and the terminal states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

S = TypeVar("S", bound=StrEnum)


@dataclass(frozen=True, kw_only=True)
class StateTable(Generic[S]):
    """The states of a model, and the states that may follow each of them. A state without successors is terminal."""

    name: str
    transitions: Mapping[S, frozenset[S]]

    @property
    def terminal(self) -> frozenset[S]:
        """Return the states without successors."""
        return frozenset(state for state, following in self.transitions.items() if not following)

    def allows(self, old: S, new: S) -> bool:
        """Return whether `new` may follow `old`."""
        return new in self.transitions[old]

    def before(self, new: S) -> frozenset[S]:
        """Return the states from which `new` can be reached in one transition."""
        return frozenset(state for state, following in self.transitions.items() if new in following)

    def pairs(self) -> list[tuple[str, str]]:
        """Return all allowed (from, to) pairs, sorted, as the database's trigger lists them."""
        return sorted((old.value, new.value) for old, after in self.transitions.items() for new in after)

    def diagram(self) -> str:
        """Return the table as a Mermaid state diagram."""
        lines = [f"    {old} --> {new}" for old, new in self.pairs()]
        ends = [f"    {state.value} --> [*]" for state in self.transitions if state in self.terminal]
        first = next(iter(self.transitions)).value
        return "\n".join(["stateDiagram-v2", f"    [*] --> {first}", *lines, *ends])
