"""What the driver of plans reports, and what it can be told to let happen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from blueprints.answers import Answer, Json
from blueprints.specs import Spec

Ended: TypeAlias = Literal["ready", "failed", "held", "crashed", "stopped"]


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call that the driver made."""

    step: str
    made: Literal["act", "find"]
    answer: Answer


@dataclass(frozen=True, kw_only=True)
class Position:
    """What is committed: a process that dies goes on from here, or another begins to destroy."""

    step: int = 0
    memo: Json = field(default_factory=dict)
    looking: bool = False
    """The answer of the last act was lost: `find` comes first."""
    facts: Json = field(default_factory=dict)
    secrets: Json = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How far a plan came. `spec` has the facts, secrets and parents gathered on the way."""

    ended: Ended
    spec: Spec
    position: Position
    calls: tuple[Call, ...]
    step: str = ""
    answer: Answer | None = None

    @property
    def facts(self) -> Json:
        return self.position.facts

    @property
    def secrets(self) -> Json:
        return self.position.secrets


@dataclass(frozen=True, kw_only=True)
class Mishap:
    """What happens to the n-th call (from 0). `crash`: the process dies and the answer was never committed;
    `lose`: the answer is lost on the way; `stop`: the answer is committed, and nothing follows."""

    does: Literal["crash", "lose", "stop"]
    at: int
