"""Hosts of a cloud, whatever the cloud: its folder gives the client, the credential and the words for images."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any, ClassVar

from blueprints.accounts import acts as accounts
from blueprints.accounts.kind import WithAccounts
from blueprints.cloud import acts, guest, market, ports
from blueprints.cloud.check import problems
from blueprints.cloud.client import Api, Client, Spot
from blueprints.cloud.config import MATCHES, CloudAttributes, CloudConfig, CloudRequirements
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Instance, Lifecycle
from blueprints.contract import Lists, Offers, Plan, Powers, Step
from blueprints.hosts import HOST
from blueprints.offers import Account, Offer, Place, Sought
from blueprints.specs import Asked, BlueprintView, Draft, Owned, Problem, ResourceView

_BOOT = 1200.0
"""Seconds until a machine must run and let us in (Brev's suite waits 20 min for the one and 10 for the other)."""
_END = 3600.0
_KEPT = 64


class CloudHost(WithAccounts, Offers, Lists, Powers):
    """Base of the kinds of cloud hosts."""

    resource_type: ClassVar[str] = HOST
    Config = CloudConfig
    Requirements = CloudRequirements
    Attributes = CloudAttributes
    matches = MATCHES

    def __init__(self) -> None:
        self._clients: dict[str, Client] = {}
        self._guard = Lock()

    @abstractmethod
    def client_class(self) -> type[Client]:
        """The client's class; only now is the cloud's SDK loaded."""

    @abstractmethod
    def new_client(self, secrets: Mapping[str, Any]) -> Client:
        """A client for an account. Raises ValidationError where the credential does not hold what it must."""

    def client(self, secrets: Mapping[str, Any]) -> Client:
        """The client for an account; the same one as long as the credential is the same."""
        digest = hashlib.sha256(json.dumps(dict(secrets), sort_keys=True, default=str).encode()).hexdigest()
        with self._guard:
            if digest not in self._clients:
                while len(self._clients) >= _KEPT:
                    self._clients.pop(next(iter(self._clients))).close()
                self._clients[digest] = self.new_client(secrets)
            return self._clients[digest]

    def client_of(self, resource: ResourceView) -> Client:
        """The client of a resource's account. Raises CloudError CREDENTIALS without it."""
        return self.client_for(resource.blueprint)

    def client_for(self, blueprint: BlueprintView) -> Client:
        """The client of a blueprint's account. Raises CloudError CREDENTIALS without it."""
        name = blueprint.config.credential
        if name not in blueprint.credentials:
            raise CloudError(Meaning.CREDENTIALS, f"There is no credential {name!r}.")
        return self.client(blueprint.credentials[name])

    def places(self, account: Account) -> Sequence[Place]:
        """Its regions; one for all where the provider tells of all in one call."""
        client = self.client(account.secrets)
        if client.api is Api.GLOBAL:
            return [Place(name="")]
        return [
            Place(name=one.name, zones=one.zones, country=one.country, available=one.available)
            for one in client.locations()
        ]

    def inventory(self, account: Account, place: str) -> Sequence[Offer]:
        """An offer for every type, zone and market."""
        client = self.client(account.secrets)
        spot = isinstance(client, Spot)
        found = [offer for one in client.types(place) for offer in market.offers(one, spot=spot)]
        if place:
            return found
        countries = {one.name: one.country for one in client.locations()}
        return [replace(offer, country=countries.get(offer.location, "")) for offer in found]

    def observe(self, account: Account, place: str, installation: str) -> Sequence[Owned]:
        """Every instance that bears the installation's tag."""
        tags = {"drydock-installation": installation}
        return [_owned(one) for one in self.client(account.secrets).instances(place, tags)]

    def owned(self, blueprint: BlueprintView, installation: str) -> Sequence[Owned]:
        """The same over all places."""
        account = Account(name=blueprint.config.credential, secrets=dict(self._secrets(blueprint)))
        return [one for place in self.places(account) for one in self.observe(account, place.name, installation)]

    def _secrets(self, blueprint: BlueprintView) -> Mapping[str, Any]:
        self.client_for(blueprint)
        return blueprint.credentials[blueprint.config.credential]

    def located(self, config: Any) -> Sequence[str]:
        """The config's regions."""
        return tuple(config.regions)

    def sought(self, config: Any, asked: Asked | None) -> Sought:
        """What the blueprint allows, narrowed by what is asked."""
        return market.sought(config, asked)

    def draft(self, config: Any, asked: Asked | None, offer: Offer) -> Draft:
        """A machine of an offer."""
        return market.draft(config, asked, offer)

    def build(self) -> Plan:
        """Keys, image, network, the instance, its boot, its first boot, and whether it is what was asked."""
        call = self._call
        return (
            Step(name="decide", act=acts.decide),
            Step(name="image", act=call(acts.choose_image)),
            Step(name="network", act=call(acts.prepare)),
            Step(name="create", act=call(acts.create), find=call(acts.find)),
            Step(name="boot", act=call(acts.boot), deadline=_BOOT),
            Step(name="reach", act=acts.with_console(self.client_of, guest.reach, _BOOT), deadline=_BOOT),
            Step(name="compare", act=guest.compare),
            Step(name="prepare", act=accounts.prepare),
        )

    def activate(self) -> Plan:
        """An account, and the ports that the lease asked for."""
        return (*super().activate(), Step(name="ports", act=self._call(ports.open_ports)))

    def deactivate(self) -> Plan:
        """Its ports and its account."""
        return (Step(name="ports", act=self._call(ports.close_ports)), *super().deactivate())

    def check(self) -> Plan:
        """What the last listing told; then whether it answers."""
        return (Step(name="listed", act=acts.look), *super().check())

    def power(self) -> Plan:
        """Stop, start, or both."""
        off = acts.switch(("off", "cycle"), Lifecycle.STOPPED)
        on = acts.switch(("on", "cycle"), Lifecycle.RUNNING)
        return (Step(name="stop", act=self._call(off)), Step(name="start", act=self._call(on)))

    def destroy(self) -> Plan:
        """The instance, then whatever else was made under its key, until a read shows that nothing is left."""
        return (
            Step(name="terminate", act=self._call(acts.terminate), deadline=_END),
            Step(name="sweep", act=self._call(acts.sweep), deadline=_END),
        )

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Whether the account lets us in, and has the regions, the image and the types that the config names."""
        found = list(super().check_blueprint(blueprint))
        try:
            return [*found, *problems(self.client_for(blueprint), blueprint.config)]
        except (CloudError, ValueError) as error:
            return [*found, Problem(message=str(error), field="credential")]

    def _call(self, calls: acts.Calls) -> Any:
        return acts.called(self.client_of, calls)


def _owned(found: Instance) -> Owned:
    over = found.state in (Lifecycle.TERMINATED, Lifecycle.TERMINATING, Lifecycle.FAILED)
    why = "It was taken back by the provider." if found.preempted else f"It is {found.state}."
    return Owned(
        key=found.key,
        tags=found.tags,
        facts=acts.seen_of(found),
        state=found.state.value,
        power="off" if found.state is Lifecycle.STOPPED else "on" if found.state is Lifecycle.RUNNING else "",
        lost=f"{why} {found.reason}".strip() if over or found.preempted else "",
    )
