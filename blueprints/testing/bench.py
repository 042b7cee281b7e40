"""Builds, from the hooks, the frozen values that the engine would pass to a kind."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from blueprints.answers import Json
from blueprints.contract import Builds, Controls, DeclaredAct, Offers, Registers
from blueprints.offers import Account, Offer, Sought
from blueprints.specs import Asked, BlueprintView, Control, Draft, LeaseView, ResourceView, Spec
from blueprints.testing.driver import Driver
from blueprints.testing.hooks import Hooks
from drydock.core.errors import NotSupported
from interfaces.contract import Interface

TAGS = {"drydock-owner": "conformance", "drydock-installation": "conform1", "drydock-resource": "1"}


def always_mine() -> None:
    """Accept every operation, as the still_mine() check of an active lease does."""


class Bench(Hooks):
    """Views, specs and drafts of one kind."""

    def driver(self) -> Driver:
        """Return a driver whose surroundings are this bench."""
        return Driver(self, pace=self.pace)

    def needed_types(self) -> frozenset[str]:
        """Return the resource types that the kind may lease, according to its `needed_types`."""
        return self.kind.needed_types(self.blueprint().config)

    def blueprint(self, generation: int = 1) -> BlueprintView:
        """Return a blueprint with the bench's config."""
        config = self.kind.Config.model_validate(self.config())
        return BlueprintView(
            id=1,
            name="conformance",
            kind=self.kind.name,
            generation=generation,
            config=config,
            credentials=self.credentials(),
        )

    def asked(self, requirements: Json | None = None) -> Asked:
        """Return a lease's request."""
        wanted = self.requirements() if requirements is None else requirements
        return Asked(
            type=self.kind.resource_type,
            requirements=self.kind.Requirements.model_validate(wanted),
            amounts=self.amounts(),
        )

    def draft(self) -> Draft:
        """Return the draft for the suite: to be built if the kind builds, else registered, else discovered."""
        kind: Any = self.kind
        if isinstance(kind, Builds):
            return kind.drafts(self.blueprint().config, self.asked())[0]
        if isinstance(kind, Offers):
            return kind.draft(self.blueprint().config, self.asked(), self.offers()[0])
        if isinstance(kind, Registers):
            return self.registered()
        self.plant()
        found: Sequence[Draft] = kind.discover(self.blueprint())
        return found[0]

    def offering(self) -> Offers:
        """Return the kind, which must build what a provider offers."""
        assert isinstance(self.kind, Offers)
        return self.kind

    def account(self) -> Account:
        """Return the account that the config names."""
        name = self.offering().sought(self.blueprint().config, None).account
        return Account(name=name, secrets=self.credentials()[name])

    def offers(self) -> Sequence[Offer]:
        """Return the offers that could hold the request."""
        kind, account = self.offering(), self.account()
        found = [offer for place in kind.places(account) for offer in kind.inventory(account, place.name)]
        wanted = kind.sought(self.blueprint().config, self.asked())
        return [one for one in found if _could_be(one, wanted)]

    def registered(self) -> Draft:
        """Return the draft of the bench's registration."""
        kind: Any = self.kind
        registration = kind.Registration.model_validate(self.registration())
        draft: Draft = kind.register(self.blueprint().config, registration)
        return draft

    def resource(self, draft: Draft | None = None, *, generation: int = 1) -> ResourceView:
        """Return a resource as its row would be before it is built, with a new key."""
        made = draft or self.draft()
        key = f"conf-{uuid.uuid4().hex[:12]}"
        return ResourceView(
            id=1,
            key=key,
            name=made.name or key,
            type=self.kind.resource_type,
            origin=self.origin(made),
            blueprint=self.blueprint(generation),
            attributes=made.attributes,
            capacity=made.capacity,
            traits=made.traits,
            parts=made.parts,
            identity=made.identity,
            facts=made.facts,
            offer=made.offer,
        )

    def origin(self, draft: Draft) -> str:
        """Return the origin of a draft's resource: built, registered or discovered."""
        if not draft.identity:
            return "built"
        return "registered" if isinstance(self.kind, Registers) else "discovered"

    def lease(self, resource: ResourceView) -> LeaseView:
        """Return a lease on the resource."""
        return LeaseView(
            id=1,
            key=f"{resource.key}-lease",
            owner="conformance",
            asked=self.asked(),
            resource=resource,
            opener=self.opener(always_mine),
            controlled=self.control_of,
        )

    def opener(self, still_mine: Callable[[], None]) -> Callable[[LeaseView, str], Interface]:
        """Return a function that opens the kind's interfaces as the engine would."""

        def open_it(lease: LeaseView, name: str) -> Interface:
            openers = self.kind.interfaces()
            if name not in openers:
                raise NotSupported(f"The kind {self.kind.name} has no interface {name!r}.")
            return openers[name](lease, still_mine)

        return open_it

    def control_of(self, lease: LeaseView) -> Control | None:
        """Return a control connection to the lease's host, as the engine would, or None."""
        return self.kind.control(lease) if isinstance(self.kind, Controls) else None

    def spec(self, phase: str, resource: ResourceView, lease: LeaseView | None = None, **wanted: Any) -> Spec:
        """Return the spec for the steps of a phase."""
        return Spec(
            phase=phase,
            key=f"{lease.key if lease else resource.key}-{phase}",
            resource=resource,
            lease=lease,
            asked=self.asked() if phase == "build" else None,
            tags=TAGS,
            parents={**resource.parents, **(lease.parents if lease else {})},
            locks=resource.locks,
            wanted=wanted,
        )

    def act_spec(self, act: DeclaredAct, resource: ResourceView) -> Spec:
        """Return the spec for the steps of an act, with the arguments of the bench."""
        given = self.act_arguments(act.name)
        spec = self.spec("act", resource, act=act.name, arguments=given)
        return replace(spec, act=act.name, arguments=act.Arguments.model_validate(given))


def _could_be(offer: Offer, wanted: Sought) -> bool:
    """Return whether an offer is large enough and matches the other conditions of a query."""
    amounts = wanted.amounts
    return (
        offer.available
        and (not wanted.locations or offer.location in wanted.locations)
        and (not wanted.names or offer.type in wanted.names)
        and (not wanted.types or any(fnmatchcase(offer.type, one) for one in wanted.types))
        and offer.market in wanted.markets
        and wanted.arch in ("", offer.arch)
        and 1000 * offer.vcpus >= amounts.cpu_millicores
        and offer.ram_mib >= amounts.ram_mib
    )
