"""Base of the kinds of cloud hosts. Each kind supplies the client, the credential and the image selectors."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from threading import Lock
from typing import Any, ClassVar

from blueprints.accounts import actions as accounts
from blueprints.accounts.kind import WithAccounts
from blueprints.cloud import actions, guest, inventory, market
from blueprints.cloud.check import problems
from blueprints.cloud.client import Api, Client, Quotas, Spot, Tags
from blueprints.cloud.config import MATCHES, CloudAttributes, CloudConfig, CloudRequirements
from blueprints.cloud.faults import CloudError, Meaning, SdkNotInstalled
from blueprints.cloud.inventory import same_account
from blueprints.cloud.launch_spec import instance
from blueprints.cloud.operations import Operates
from blueprints.cloud.values import Lifecycle, Market
from blueprints.contract import Allows, Lists, Offers, Plan, Step, Stops
from blueprints.hosts import HOST
from blueprints.offers import Account, Allowance, Offer, Place, Sought
from blueprints.specs import Asked, BlueprintView, Draft, Owned, Problem, ResourceView
from drydock.core.errors import NotSupported

_BOOT = 1200.0
"""Seconds for a machine to start running, and again to let us in (Brev's suite allows 20 and 10 minutes)."""
_ASKED = 1800.0
"""Seconds for a provider to complete a request. Azure's Retry-After alone is up to 20 minutes."""
_END = 3600.0
_KEPT = 64


class CloudHost(Operates, WithAccounts, Offers, Allows, Lists):
    """Base of the kinds of cloud hosts."""

    client_at: ClassVar[str]
    """Path of the client's class, such as `blueprints.ec2.client:Ec2`. It is imported at first use."""
    sdk: ClassVar[tuple[str, ...]] = ()
    """The packages that the client imports, as pip requirements. The error for a missing one names them."""
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
        """Return the client's class. The first call imports the provider's SDK. Raises SdkNotInstalled."""
        module, _, name = self.client_at.partition(":")
        try:
            found: type[Client] = getattr(import_module(module), name)
        except ImportError as error:
            if (error.name or "").startswith(module.partition(".")[0] + "."):
                raise
            raise SdkNotInstalled(self.name, self.sdk, error) from error
        return found

    def new_client(self, secrets: Mapping[str, Any]) -> Client:
        """Create a client for an account. Raises ValidationError for an incomplete credential."""
        made: Callable[[Any], Client] = self.client_class()
        return made(self.Credential.model_validate(dict(secrets)))

    def client(self, secrets: Mapping[str, Any]) -> Client:
        """Return the client for an account. The same client is returned until the credential changes."""
        digest = hashlib.sha256(json.dumps(dict(secrets), sort_keys=True, default=str).encode()).hexdigest()
        with self._guard:
            if digest not in self._clients:
                while len(self._clients) >= _KEPT:
                    self._clients.pop(next(iter(self._clients))).close()
                self._clients[digest] = self.new_client(secrets)
            return self._clients[digest]

    def client_of(self, resource: ResourceView) -> Client:
        """Return the client of a resource's account. Raises CloudError CREDENTIALS if the credential is missing."""
        return self.client_for(resource.blueprint)

    def client_for(self, blueprint: BlueprintView) -> Client:
        """Return the client of a blueprint's account. Raises CloudError CREDENTIALS if the credential is missing."""
        name = blueprint.config.credential
        if name not in blueprint.credentials:
            raise CloudError(Meaning.CREDENTIALS, f"Credential {name!r} does not exist.")
        return self.client(blueprint.credentials[name])

    def places(self, account: Account) -> Sequence[Place]:
        """Return the account's regions, or a single place if the provider lists all regions in one call."""
        client = self.client(account.secrets)
        if client.api is Api.GLOBAL:
            return [Place(name="")]
        return [
            Place(name=one.name, zones=one.zones, country=one.country, available=one.available)
            for one in client.locations()
        ]

    def inventory(self, account: Account, place: str) -> Sequence[Offer]:
        """Return an offer for every type, zone and market in a place."""
        client = self.client(account.secrets)
        spot = isinstance(client, Spot)
        found = [offer for one in client.types(place) for offer in market.offers(one, spot=spot)]
        if place:
            return found
        countries = {one.name: one.country for one in client.locations()}
        return [replace(offer, country=countries.get(offer.location, "")) for offer in found]

    def allowances(self, account: Account, place: str) -> Sequence[Allowance]:
        """Return the account's quotas, or nothing if the cloud does not report them."""
        client = self.client(account.secrets)
        return market.allowances(client.quotas(place)) if isinstance(client, Quotas) else ()

    def observe(self, account: Account, place: str, installation: str) -> Sequence[Owned]:
        """Return every instance that has the installation's tag."""
        tags = {"drydock-installation": installation}
        return [inventory.machine(one) for one in self.client(account.secrets).instances(place, tags)]

    def read(self, account: Account, resource: ResourceView) -> Owned:
        """Read the instance by its id.

        A spot instance that stopped without our request counts as reclaimed if its cloud reclaims instances by stopping
        them.
        """
        client, there = self.client(account.secrets), instance(resource)
        if not there.id:
            raise CloudError(Meaning.UNAVAILABLE, f"{there.key} cannot be read, because its id is not known.")
        found = client.instance(there.location, there.zone, there.key, there.id)
        if found is None:
            same_account(client, resource)
            gone = client.ended(there)
            return replace(inventory.machine(gone), absent=not gone.preempted)
        taken = found.market is Market.SPOT and found.state is Lifecycle.STOPPED and resource.power_wanted != "off"
        if client.stops_spot and taken:
            found = replace(found, preempted=True, reason=found.reason or client.stops_spot)
        return inventory.machine(found)

    def mark(self, account: Account, resource: ResourceView, tags: Mapping[str, str]) -> None:
        """Set tags on the instance, which is found by its id. Raises CloudError."""
        client = self.client(account.secrets)
        if not isinstance(client, Tags):
            raise NotSupported(f"{client.provider} does not support setting tags.")
        client.set_tags(instance(resource), tags)

    def stops(self, config: Any) -> Stops:
        """Return the config's handling of machines that were stopped outside Drydock."""
        return Stops(grace=config.stopped_seconds, restart=config.start_stopped)

    def owned(self, blueprint: BlueprintView, installation: str) -> Sequence[Owned]:
        """Return the machines of all places that are not being terminated, and the objects without a machine."""
        account = Account(name=blueprint.config.credential, secrets=dict(self._secrets(blueprint)))
        places = [place.name for place in self.places(account) if place.available]
        return inventory.owned(self.client(account.secrets), places, {"drydock-installation": installation})

    def _secrets(self, blueprint: BlueprintView) -> Mapping[str, Any]:
        self.client_for(blueprint)
        return blueprint.credentials[blueprint.config.credential]

    def located(self, config: Any) -> Sequence[str]:
        """Return the config's regions."""
        return tuple(config.regions)

    def sought(self, config: Any, asked: Asked | None) -> Sought:
        """Return the catalogue query: the offers that the blueprint allows, narrowed by the request."""
        return market.sought(config, asked)

    def draft(self, config: Any, asked: Asked | None, offer: Offer) -> Draft:
        """Return the draft of a machine for an offer."""
        return market.draft(config, asked, offer, self.surcharge)

    def surcharge(self, offer: Offer) -> float | None:
        """Return the cost of a confidential guest in addition to the offer's price, in US dollars per hour.

        Return None if the cost is unknown. The price's `source` then says that this cost is not included.
        """
        return None

    def build(self) -> Plan:
        """Return the plan that builds a machine: keys, image, network, instance, boot, first boot, and comparison."""
        call = self._call
        return (
            Step(name="decide", act=actions.decide),
            Step(name="image", act=call(actions.choose_image)),
            Step(name="network", act=call(actions.prepare), deadline=_ASKED),
            Step(name="create", act=call(actions.create), find=call(actions.find), deadline=_ASKED),
            Step(name="boot", act=call(actions.boot), deadline=_BOOT),
            Step(name="pin", act=actions.with_console(self.client_of, call(guest.pin), _BOOT), deadline=_BOOT),
            Step(name="reach", act=actions.with_console(self.client_of, guest.reach, _BOOT), deadline=_BOOT),
            Step(name="compare", act=guest.compare),
            Step(name="prepare", act=accounts.prepare),
        )

    def activate(self) -> Plan:
        """Return the plan that creates the account and opens the ports that the lease requested."""
        return (*super().activate(), Step(name="ports", act=self._call(actions.open_ports)))

    def deactivate(self) -> Plan:
        """Return the plan that closes the ports and removes the account."""
        return (Step(name="ports", act=self._call(actions.close_ports)), *super().deactivate())

    def check(self) -> Plan:
        """Return the plan that checks the last listing, whether the host answers, and what the guest reports."""
        reach, *others = super().check()
        return (
            Step(name="listed", act=actions.check_listing),
            reach,
            Step(name="notice", act=guest.check_notice),
            *others,
        )

    def destroy(self) -> Plan:
        """Return the plan that terminates the instance and deletes everything else under its key."""
        return (
            Step(name="terminate", act=self._call(actions.terminate), deadline=_END),
            Step(name="sweep", act=self._call(actions.sweep), deadline=_END),
        )

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Check that the account accepts the credential and has the regions, image and types of the config."""
        found = list(super().check_blueprint(blueprint))
        try:
            return [*found, *problems(self.client_for(blueprint), blueprint.config)]
        except (CloudError, ValueError) as error:
            return [*found, Problem(message=str(error), field="credential")]

    def _call(self, calls: actions.Calls) -> Any:
        return actions.called(self.client_of, calls)
