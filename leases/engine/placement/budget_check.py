"""Whether budgets allow a cost: pure values, which decisions work on. All amounts are US dollars an hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from blueprints.specs import Draft
from leases.engine.placement.constraints import TINY, PlacementRequest


@dataclass(frozen=True, kw_only=True)
class BudgetState:
    """A budget, and what is spent of it."""

    holder: str
    maximum: float
    used: float

    @property
    def left(self) -> float:
        """What may still be spent."""
        return max(self.maximum - self.used, 0.0)

    def affords(self, cost: float) -> bool:
        """Whether so much more may be spent."""
        return cost <= TINY or self.used + cost <= self.maximum + TINY

    def sentence(self, what: str, cost: float) -> str:
        """Why it does not: what it allows, what is spent, what would be needed."""
        needed = "has no known price" if cost == UNKNOWN else f"costs {dollars(cost)}/h"
        return f"{self.standing}; {what} {needed}"

    @property
    def standing(self) -> str:
        """What it allows, and what is in use of it."""
        return f"the budget of {self.holder} is {dollars(self.maximum)}/h, of which {dollars(self.used)}/h is in use"


UNKNOWN = float("inf")
"""The cost of an offer whose price nobody knows: no budget affords it, as `max_price` leaves it out."""


def dollars(amount: float) -> str:
    """An amount as people write it: at least cents, and as many places more as it has."""
    exact = f"{amount:.6f}".rstrip("0")
    cents = f"{amount:.2f}"
    return f"${exact if len(exact) > len(cents) else cents}"


def price_of(draft: Draft) -> float:
    """What the whole of it would cost."""
    if draft.price is None:
        return UNKNOWN if draft.offer else 0.0
    return draft.price


@dataclass(frozen=True, kw_only=True)
class BudgetCheck:
    """The budgets that a lease is charged to, and how much of a resource it asks for."""

    purses: Sequence[BudgetState] = ()
    slots: int = 1
    exclusive: bool = False

    def cost(self, draft: Draft) -> float:
        """What the lease would cost on it."""
        return price_of(draft) * (1.0 if self.exclusive else min(self.slots / max(draft.capacity.slots, 1), 1.0))

    def against(self, draft: Draft) -> str:
        """Why the budgets do not allow it, or an empty string."""
        cost = self.cost(draft)
        short = next((purse for purse in self.purses if not purse.affords(cost)), None)
        return "" if short is None else short.sentence(draft.offer or "what it builds", cost)

    @property
    def left(self) -> float | None:
        """What the lease may cost at most; None: any amount."""
        return min((purse.left for purse in self.purses), default=None)

    def bounding(self, placement: PlacementRequest) -> PlacementRequest:
        """The question such that what answers it stays within the budgets."""
        return placement if self.left is None else replace(placement, at_most_price=self.left)


UNBOUNDED = BudgetCheck()
"""No budget bounds it."""
