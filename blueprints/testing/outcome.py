"""The results of the driver of plans, and the mishaps that it can simulate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from blueprints.answers import Answer, Json
from blueprints.specs import Spec

Ended: TypeAlias = Literal["ready", "failed", "held", "crashed", "stopped"]


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call that the driver made."""

    step: str
    made: Literal["act", "find"]
    answer: Answer


@dataclass(frozen=True, kw_only=True)
class Position:
    """The part of a plan that has been committed.

    After a crash, another process continues from here or begins to destroy.
    """

    step: int = 0
    memo: Json = field(default_factory=dict)
    looking: bool = False
    """Whether the answer of the last act was lost, so that `find` comes first."""
    facts: Json = field(default_factory=dict)
    secrets: Json = field(default_factory=dict)
    resource_facts: Json = field(default_factory=dict)
    """The facts that steps stored with the resource, whatever the phase (`Ready.resource_facts`)."""
    resource_secrets: Json = field(default_factory=dict)
    own_credential: Json = field(default_factory=dict)
    """The secrets that steps stored in the resource's own credential (`Ready.own_credential`)."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The progress and the result of a plan. `spec` has the facts, secrets and parents that the plan has gathered."""

    ended: Ended
    spec: Spec
    position: Position
    calls: tuple[Call, ...]
    step: str = ""
    answer: Answer | None = None

    @property
    def facts(self) -> Json:
        """The facts of the resource or lease so far."""
        return self.position.facts

    @property
    def secrets(self) -> Json:
        """The secrets of the resource or lease so far."""
        return self.position.secrets


@dataclass(frozen=True, kw_only=True)
class Mishap:
    """A mishap at the n-th call, counted from 0.

    `crash`: the process dies before the answer is committed. `lose`: the answer is lost on the way. `stop`: the answer
    is committed, and nothing follows.
    """

    does: Literal["crash", "lose", "stop"]
    at: int
