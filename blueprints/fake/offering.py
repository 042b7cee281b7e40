"""The kind `fake_cloud`: offers that the fake provider sells in its places, read through the catalogue."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from blueprints.amounts import Amounts
from blueprints.contract import Allows, Fields, Kind, Lists, Offers, Opener, Plan
from blueprints.fake import actions, config, openers
from blueprints.fake.faults import step
from blueprints.fake.machine import Retypable
from blueprints.fake.provider import Instance, Provider
from blueprints.matching import Match
from blueprints.offers import Account, Allowance, Offer, Place, Sought
from blueprints.specs import Asked, BlueprintView, Draft, Owned, ResourceView


class Credential(Fields):
    """The secrets of an account at the fake provider."""

    provider: str = Field(default="default", description="Name of the fake provider.")
    password: str = Field(default="", description="Any password except `wrong`.")


class Config(config.Config):
    """Config of a blueprint of kind fake_cloud."""

    credential: str = Field(min_length=1, description="Name of the credential.")
    regions: tuple[str, ...] = Field(default=(), description="Allowed places. Empty: all.")


class Attributes(config.Attributes):
    """Attributes of a fake cloud machine."""

    region: str | None = None
    price: float | None = None


class Requirements(config.Requirements):
    """Requirements that a lease may set for its fake cloud machine."""

    region: tuple[str, ...] | None = Field(default=None, description="Allowed places.")
    max_price: float | None = Field(default=None, description="Maximum price per hour.")


class FakeCloud(Retypable, Kind, Offers, Allows, Lists):
    """A fake machine that a provider sells."""

    name: ClassVar[str] = "fake_cloud"
    resource_type: ClassVar[str] = "fake_cloud"
    Config = Config
    Credential = Credential
    Attributes = Attributes
    Requirements = Requirements
    matches = (*config.MATCHES, Match("region", "in", "region"), Match("price", "<=", "max_price"))
    inventory_every: ClassVar[float] = 60.0
    status_every: ClassVar[float] = 5.0

    def places(self, account: Account) -> Sequence[Place]:
        """Return the places with offers."""
        return [Place(name=name) for name in _provider(account).places()]

    def inventory(self, account: Account, place: str) -> Sequence[Offer]:
        """Return the offers in a place."""
        return [Offer(**json.loads(said)) for said in _provider(account).sold(place)]

    def allowances(self, account: Account, place: str) -> Sequence[Allowance]:
        """Return the account's limits in a place."""
        return [Allowance(**json.loads(said)) for said in _provider(account).allowed(place)]

    def observe(self, account: Account, place: str, installation: str) -> Sequence[Owned]:
        """Return every instance of this installation in a place."""
        found = _provider(account).listed(place)
        return [_owned(one) for one in found if one.tags.get("drydock-installation") == installation]

    def read(self, account: Account, resource: ResourceView) -> Owned:
        """Return the instance with the resource's key."""
        found = _provider(account).look(resource.key)
        if found is None:
            return Owned(
                key=resource.key, tags={}, lost=f"The provider reports that {resource.key} does not exist.", absent=True
            )
        return _owned(found)

    def owned(self, blueprint: BlueprintView, installation: str) -> Sequence[Owned]:
        """Return every instance of this installation in all places."""
        found = Provider(blueprint.config.provider).everything()
        return [_owned(one) for one in found if one.tags.get("drydock-installation") == installation]

    def located(self, config: Any) -> Sequence[str]:
        """Return the config's places."""
        return tuple(config.regions)

    def sought(self, config: Any, asked: Asked | None) -> Sought:
        """Return the search that satisfies both the config and the lease's requirements."""
        if asked is None:
            return Sought(account=config.credential, locations=config.regions)
        wants = asked.requirements
        return Sought(
            account=config.credential,
            locations=wants.region or config.regions,
            amounts=asked.amounts,
            max_price=wants.max_price,
        )

    def draft(self, config: Any, asked: Asked | None, offer: Offer) -> Draft:
        """Return the draft for an offer."""
        said = {"region": offer.location, "zone": offer.zone or None, "price": offer.price}
        return Draft(
            attributes={name: value for name, value in said.items() if value is not None},
            capacity=Amounts(slots=config.capacity.slots, cpu_millicores=1000 * offer.vcpus, ram_mib=offer.ram_mib),
            offer=offer.name,
            zone=offer.place,
            counted=offer.counted,
            price=offer.price,
            boot_seconds=offer.boot_seconds,
        )

    def build(self) -> Plan:
        """Return the plan that reserves, creates and boots the instance."""
        return (
            step("build", "reserve", actions.reserve),
            step("build", "create", actions.create, actions.find_created),
            step("build", "boot", actions.boot),
        )

    def destroy(self) -> Plan:
        """Return the plan that deletes the instance and waits until it no longer exists."""
        return (step("destroy", "delete", actions.delete), step("destroy", "confirm", actions.confirm))

    def interfaces(self) -> Mapping[str, Opener]:
        """Return functions that open fakes of all interfaces."""
        return openers.OPENERS


def _provider(account: Account) -> Provider:
    said = Credential.model_validate(dict(account.secrets))
    if said.password == "wrong":  # noqa: S105
        raise PermissionError("The provider does not know this account.")
    return Provider(said.provider)


def _owned(found: Instance) -> Owned:
    lost = "The instance failed." if found.state == "dead" else ""
    facts = {"cycles": found.cycles}
    return Owned(key=found.key, tags=found.tags, state=found.state, power=found.power, lost=lost, facts=facts)
