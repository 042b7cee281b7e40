"""Compare costs with budgets. All values are frozen, and all amounts are in US dollars per hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from blueprints.specs import Draft
from leases.engine.placement.constraints import TINY, PlacementRequest


@dataclass(frozen=True, kw_only=True)
class BudgetState:
    """A budget, and how much of it is spent."""

    holder: str
    maximum: float
    used: float

    @property
    def left(self) -> float:
        """The amount that may still be spent, in US dollars per hour."""
        return max(self.maximum - self.used, 0.0)

    def affords(self, cost: float) -> bool:
        """Return whether the budget allows this additional cost."""
        return cost <= TINY or self.used + cost <= self.maximum + TINY

    def sentence(self, what: str, cost: float) -> str:
        """Return a sentence that says why the budget does not allow a cost, with the limit and the amount in use."""
        needed = "has no known price" if cost == UNKNOWN else f"costs {dollars(cost)}/h"
        return f"{self.standing}; {what} {needed}"

    @property
    def standing(self) -> str:
        """A clause that states the limit of the budget and the amount in use."""
        return f"the budget of {self.holder} is {dollars(self.maximum)}/h, of which {dollars(self.used)}/h is in use"


UNKNOWN = float("inf")
"""The cost of an offer without a known price. No budget allows it, just as `max_price` excludes it."""


def dollars(amount: float) -> str:
    """Format an amount in dollars with two decimals, or with more decimals if they are needed."""
    exact = f"{amount:.6f}".rstrip("0")
    cents = f"{amount:.2f}"
    return f"${exact if len(exact) > len(cents) else cents}"


def price_of(draft: Draft) -> float:
    """Return the hourly price of the whole resource, or `UNKNOWN` if its offer has no price."""
    if draft.price is None:
        return UNKNOWN if draft.offer else 0.0
    return draft.price


@dataclass(frozen=True, kw_only=True)
class BudgetCheck:
    """The budgets that a lease is charged to, and how much of a resource the lease would take."""

    budgets: Sequence[BudgetState] = ()
    slots: int = 1
    exclusive: bool = False

    def cost(self, draft: Draft) -> float:
        """Return the hourly cost of the lease on a resource that is built from the draft."""
        return price_of(draft) * (1.0 if self.exclusive else min(self.slots / max(draft.capacity.slots, 1), 1.0))

    def against(self, draft: Draft) -> str:
        """Return why the budgets do not allow the lease on a resource of this draft, or an empty string if they do."""
        cost = self.cost(draft)
        short = next((budget for budget in self.budgets if not budget.affords(cost)), None)
        return "" if short is None else short.sentence(draft.offer or "the resource", cost)

    @property
    def left(self) -> float | None:
        """The highest hourly cost that the budgets allow, or None if the lease has no budget."""
        return min((budget.left for budget in self.budgets), default=None)

    def bounding(self, placement: PlacementRequest) -> PlacementRequest:
        """Return the request, restricted to resources that the budgets allow."""
        return placement if self.left is None else replace(placement, at_most_price=self.left)


UNBOUNDED = BudgetCheck()
"""The check of a lease that has no budget."""
