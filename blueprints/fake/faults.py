"""The fault plan: what goes wrong at which call, how often, for which resource. Part of a config."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from blueprints.answers import Maintenance, NeededLease, Scope
from blueprints.contract import Fields
from blueprints.fake.capacity import Capacity
from blueprints.specs import LeaseView


class _Where(Fields):
    at: str = Field(description='Which calls: "build.create", "create", "build.create.find"; * and ? match.')
    keys: str = Field(default="*", description="Which resources, by key; * and ? match.")
    offers: str = Field(default="*", description="Which offers; * and ? match.")

    def touches(self, call: str, key: str, offer: str) -> bool:
        """True when this fault is meant for the call on the resource with this key and offer."""
        return self.names(call) and fnmatchcase(key, self.keys) and fnmatchcase(offer, self.offers)

    def names(self, call: str) -> bool:
        """True when `at` names the call. A step's bare name means its act in any phase."""
        step = call.partition(".")[2]
        return fnmatchcase(call, self.at) or ("." not in step and fnmatchcase(step, self.at))


class _Fault(_Where):
    skip: int = Field(default=0, ge=0, description="How many matching calls go well first.")
    times: int | None = Field(default=1, ge=1, description="How often it strikes; null: for ever.")
    each: bool = Field(default=False, description="Count for every resource by itself.")
    name: str = Field(default="", description="Faults with the same name are counted together.")

    def identity(self, blueprint: str) -> str:
        """The name under which its strikes are counted."""
        return self.name or hashlib.sha256(f"{blueprint}:{self.model_dump_json()}".encode()).hexdigest()[:16]


class Slow(_Fault):
    """The step answers Wait `polls` times with a rising percent, or blocks for `seconds`."""

    does: Literal["slow"] = "slow"
    polls: int = Field(default=0, ge=0)
    after: float = Field(default=0.05, ge=0, description="Seconds until the next call of each Wait.")
    seconds: float = Field(default=0, ge=0, le=600)


class Fail(_Fault):
    """The step fails and nothing happened."""

    does: Literal["fail"] = "fail"
    scope: Scope = Scope.STEP
    message: str = "The fault plan says so."
    code: str = "fault"
    key: str = ""
    blames_request: bool = False
    remember: float | None = None


class Refuse(_Fault):
    """The provider has no capacity for this offer, or in this zone."""

    does: Literal["refuse"] = "refuse"
    scope: Literal[Scope.OFFER, Scope.ZONE] = Scope.OFFER
    remember: float | None = None


class Lose(_Fault):
    """The answer is lost: the act happened (or, with `happened` false, it did not), and nobody knows."""

    does: Literal["lose"] = "lose"
    happened: bool = True


class Kill(_Fault):
    """The worker's own process is ended by SIGKILL, before or after the act."""

    does: Literal["kill"] = "kill"
    when: Literal["before", "after"] = "after"


class Die(_Fault):
    """The instance dies by itself just before this call: at "check.look" with skip 3, after three checks."""

    does: Literal["die"] = "die"
    at: str = "check.look"
    each: bool = True


class PartDies(_Fault):
    """A part is dead whenever it is looked at; the instance lives on."""

    does: Literal["part_dies"] = "part_dies"
    at: str = "check.look"
    times: int | None = Field(default=None, ge=1, description="How often it is so; null: for ever.")
    part: str = Field(description="Its identity.")


class HoldFault(_Fault):
    """A person must do something; it goes on when the provider's `resolve` was called."""

    does: Literal["hold"] = "hold"
    who: str = "operator"
    what: str = "Resolve the hold at the fake provider."
    each: bool = True


class LeaseFields(Fields):
    """A lease that the step asks for."""

    name: str
    type: str
    requirements: Mapping[str, Any] = {}
    amounts: Capacity = Capacity()
    exclusive: bool = False
    lifetime: Literal["life", "phase"] = "life"
    same_resource_as: str = Field(default="", description="Another needed lease, which is asked for first.")

    def needed(self, parents: Mapping[str, LeaseView]) -> NeededLease | None:
        """As the contract has it; None as long as the lease whose resource it must share is not there."""
        if self.same_resource_as and self.same_resource_as not in parents:
            return None
        on = (parents[self.same_resource_as].resource.id,) if self.same_resource_as else ()
        said = self.model_dump(exclude={"amounts", "same_resource_as"})
        return NeededLease(**said, amounts=self.amounts.amounts(), on_resources=on)


class NeedLeases(_Where):
    """The step asks for leases, whenever one of them is not there."""

    does: Literal["need_leases"] = "need_leases"
    at: str = "build.reserve"
    leases: tuple[LeaseFields, ...]


class LockFields(Fields):
    """A slot lock that the step asks for."""

    name: str
    scope: str = ""
    candidates: tuple[str, ...] = ()
    part_class: str = ""


class NeedLocks(_Where):
    """The step asks for slot locks, whenever one of them is not there."""

    does: Literal["need_locks"] = "need_locks"
    at: str = "build.reserve"
    locks: tuple[LockFields, ...]


class NeedMaintenance(_Where):
    """The step asks for maintenance of a related resource, whenever it is not granted."""

    does: Literal["need_maintenance"] = "need_maintenance"
    relation: str = "parent"
    action: Literal["drain", "alone", "power_cycle"] = "alone"
    holders: Literal["tell", "wait", "refuse"] = "wait"

    def maintenance(self) -> Maintenance:
        """As the contract has it."""
        sentence = f"The fault plan wants its {self.relation} in maintenance."
        return Maintenance(relation=self.relation, action=self.action, holders=self.holders, sentence=sentence)


Fault: TypeAlias = Annotated[
    Slow | Fail | Refuse | Lose | Kill | Die | PartDies | HoldFault | NeedLeases | NeedLocks | NeedMaintenance,
    Field(discriminator="does"),
]
