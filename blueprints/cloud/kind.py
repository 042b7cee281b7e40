"""Hosts of a cloud, whatever the cloud: its folder gives the client, the credential and the words for images."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from threading import Lock
from typing import Any, ClassVar

from blueprints.accounts import acts as accounts
from blueprints.accounts.kind import WithAccounts
from blueprints.cloud import acts, belongings, guest, hostkeys, market, ports
from blueprints.cloud.check import problems
from blueprints.cloud.client import Api, Client, Quotas, Spot, Tags
from blueprints.cloud.config import MATCHES, CloudAttributes, CloudConfig, CloudRequirements
from blueprints.cloud.faults import CloudError, Meaning, SdkNotInstalled
from blueprints.cloud.operations import Operates
from blueprints.cloud.order import instance
from blueprints.cloud.values import Lifecycle, Market
from blueprints.contract import Allows, Lists, Offers, Plan, Step, Stops
from blueprints.hosts import HOST
from blueprints.offers import Account, Allowance, Offer, Place, Sought
from blueprints.specs import Asked, BlueprintView, Draft, Owned, Problem, ResourceView
from drydock.core.errors import NotSupported

_BOOT = 1200.0
"""Seconds until a machine must run and let us in (Brev's suite waits 20 min for the one and 10 for the other)."""
_ASKED = 1800.0
"""Seconds for what is asked of a provider to be done: Azure's Retry-After alone is up to 20 minutes."""
_END = 3600.0
_KEPT = 64


class CloudHost(Operates, WithAccounts, Offers, Allows, Lists):
    """Base of the kinds of cloud hosts."""

    client_at: ClassVar[str]
    """Where the client's class is, `blueprints.ec2.client:Ec2`: made of a credential, and loaded when it is used."""
    sdk: ClassVar[tuple[str, ...]] = ()
    """The packages that the client imports, as pip requirements; the error message for a missing one names them."""
    resource_type: ClassVar[str] = HOST
    idle_timeout: ClassVar[dt.timedelta | None] = dt.timedelta(minutes=15)
    Config = CloudConfig
    Requirements = CloudRequirements
    Attributes = CloudAttributes
    matches = MATCHES

    def __init__(self) -> None:
        self._clients: dict[str, Client] = {}
        self._guard = Lock()

    def client_class(self) -> type[Client]:
        """Return the client's class. The provider's SDK is imported by the first call. Raises SdkNotInstalled."""
        module, _, name = self.client_at.partition(":")
        try:
            found: type[Client] = getattr(import_module(module), name)
        except ImportError as error:
            if (error.name or "").startswith(module.partition(".")[0] + "."):
                raise
            raise SdkNotInstalled(self.name, self.sdk, error) from error
        return found

    def new_client(self, secrets: Mapping[str, Any]) -> Client:
        """A client for an account. Raises ValidationError where the credential does not hold what it must."""
        made: Callable[[Any], Client] = self.client_class()
        return made(self.Credential.model_validate(dict(secrets)))

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

    def allowances(self, account: Account, place: str) -> Sequence[Allowance]:
        """The account's quotas, where the cloud tells of them."""
        client = self.client(account.secrets)
        return market.allowances(client.quotas(place)) if isinstance(client, Quotas) else ()

    def observe(self, account: Account, place: str, installation: str) -> Sequence[Owned]:
        """Every instance that bears the installation's tag."""
        tags = {"drydock-installation": installation}
        return [belongings.machine(one) for one in self.client(account.secrets).instances(place, tags)]

    def read(self, account: Account, resource: ResourceView) -> Owned:
        """The instance by its own id. A spot instance that is stopped though nobody here stopped it was taken back,
        where its cloud does so by stopping."""
        client, there = self.client(account.secrets), instance(resource)
        if not there.id:
            raise CloudError(Meaning.UNAVAILABLE, f"The id of {there.key} is not known.")
        found = client.instance(there.location, there.zone, there.key, there.id)
        if found is None:
            gone = client.ended(there)
            return replace(belongings.machine(gone), absent=not gone.preempted)
        taken = found.market is Market.SPOT and found.state is Lifecycle.STOPPED and resource.power_wanted != "off"
        if client.stops_spot and taken:
            found = replace(found, preempted=True, reason=found.reason or client.stops_spot)
        return belongings.machine(found)

    def mark(self, account: Account, resource: ResourceView, tags: Mapping[str, str]) -> None:
        """By the instance's own id. Raises CloudError."""
        client = self.client(account.secrets)
        if not isinstance(client, Tags):
            raise NotSupported(f"{client.provider} has no tags that can be set.")
        client.set_tags(instance(resource), tags)

    def stops(self, config: Any) -> Stops:
        """As the config says."""
        return Stops(grace=config.stopped_seconds, restart=config.start_stopped)

    def owned(self, blueprint: BlueprintView, installation: str) -> Sequence[Owned]:
        """The same over all places, without what is on its way out; and what stands there without its machine."""
        account = Account(name=blueprint.config.credential, secrets=dict(self._secrets(blueprint)))
        places = [place.name for place in self.places(account) if place.available]
        return belongings.owned(self.client(account.secrets), places, {"drydock-installation": installation})

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
        return market.draft(config, asked, offer, self.surcharge)

    def surcharge(self, offer: Offer) -> float | None:
        """US dollars an hour that a confidential guest costs besides the offer's price; None where that is not known,
        which is then said of the price."""
        return None

    def build(self) -> Plan:
        """Keys, image, network, the instance, its boot, its first boot, and whether it is what was asked."""
        call = self._call
        return (
            Step(name="decide", act=acts.decide),
            Step(name="image", act=call(acts.choose_image)),
            Step(name="network", act=call(acts.prepare), deadline=_ASKED),
            Step(name="create", act=call(acts.create), find=call(acts.find), deadline=_ASKED),
            Step(name="boot", act=call(acts.boot), deadline=_BOOT),
            Step(name="pin", act=acts.with_console(self.client_of, call(hostkeys.pin), _BOOT), deadline=_BOOT),
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
        """What the last listing told; then whether it answers, and what the guest tells."""
        reach, *others = super().check()
        return (Step(name="listed", act=acts.look), reach, Step(name="notice", act=guest.announced), *others)

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
