"""One account at EC2 in the provider contract's words, on a connection that `client` makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from blueprints.cloud import client as cloud
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Image, Instance, InstanceType, Lifecycle, Location, Order, Quota, Remnant
from blueprints.ec2 import images, network, offers, permissions, places, prices, quotas, readings, regions, remains
from blueprints.ec2.acts import Acts
from blueprints.ec2.calls import filters, tagged
from blueprints.ec2.config import Credential
from blueprints.ec2.launches import launch
from blueprints.ec2.tokens import client_token
from blueprints.specs import Problem

RATES = {"read": (20.0, 100.0), "write": (5.0, 50.0), "launch": (2.0, 5.0)}
"""Calls per second and at once, the lowest of each sort in "Request throttling for the Amazon EC2 API"
(https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html); other services are counted as reads."""


class Account(
    Acts,
    cloud.Client,
    cloud.IdempotentCreate,
    cloud.UserData,
    cloud.Spot,
    cloud.ConfidentialGuests,
    cloud.Quotas,
    cloud.MachineImage,
    cloud.ListsRemains,
    cloud.Permissions,
    cloud.Networks,
):
    """Everything that `client.Ec2` can. Accounts in guests are made by cloud-init from the user data: `order.user` and
    `order.public_key` have no place of their own here."""

    provider: ClassVar[str] = "ec2"
    unseen_for: ClassVar[float] = 300.0
    """EC2 is eventually consistent and bids callers to try for five minutes ("Eventual consistency in the Amazon EC2
    API", https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html)."""
    types_every: ClassVar[float] = 600.0
    """A reading is about twenty calls; types and prices hardly change."""

    credential: Credential

    def identity(self) -> str:
        """The account's number."""
        return str(self.connection.call("get_caller_identity", self.credential.region, service="sts")["Account"])

    def locations(self) -> Sequence[Location]:
        """The regions enabled for the account, with their zones: one call, and one for each region."""
        given = self.credential
        return regions.locations_of(self.connection, given.region, given.regions, self.connection.descriptions())

    def types(self, location: str) -> Sequence[InstanceType]:
        """All types of a region with their zones, on-demand and spot prices (`prices` says where those are from)."""
        given = self.credential
        asked = (given.endpoint or "aws") if given.price_list else ""
        on_demand = prices.on_demand(self.connection, location, path=given.prices, cloud=asked)
        spot = prices.spot(self.connection, location)
        both = {name: [*spot.get(name, ())] for name in {*on_demand, *spot}}
        for name, price in on_demand.items():
            both[name].insert(0, price)
        return offers.types_of(self.connection, location, both)

    def instances(self, location: str, tags: Mapping[str, str]) -> Sequence[Instance]:
        """With those that ended within the last hour, as long as EC2 shows them: their reasons are told."""
        found = readings.described(self.connection, location, Filters=tagged(dict(tags)), MaxResults=1000)
        leaving = readings.leaving(self.connection, location, tags) if any(map(readings.is_spot, found)) else {}
        read = [readings.instance_of(one, location) for one in found]
        return [replace(one, leaving=leaving.get(one.id, "")) for one in read]

    def prepare(self, order: Order) -> Mapping[str, str]:
        """A security group of its own; where it stands, and what its image needs, is looked up and returned."""
        found = images.described(self.connection, order.location, order.image)
        vpc, subnet = network.place(self.connection, order)
        return {
            "group": network.group(self.connection, order, vpc),
            "vpc": vpc,
            "subnet": subnet,
            "root_device": found["RootDeviceName"],
            "disk_gib": str(readings.image_of(found).disk_gib or 1),
        }

    def create(self, order: Order, prepared: Mapping[str, str]) -> Instance:
        """One RunInstances. Where the token's instance has ended already, that one is returned, terminated: another
        attempt needs another token."""
        try:
            answer = self.connection.call("run_instances", order.location, **launch(order, prepared))
        except CloudError as error:
            ended = self.find(order) if error.provider_code == "IdempotentInstanceTerminated" else None
            if ended is None:
                raise
            return ended
        return readings.instance_of(answer["Instances"][0], order.location)

    def find(self, order: Order) -> Instance | None:
        """By client token; where EC2's filter has nothing (yet), by name, of which the token must be this order's."""
        token = client_token(order)
        by_name = [*tagged({network.NAME: order.key})]
        for wanted in (filters(client_token=token), by_name):
            found = [
                one for one in readings.described(self.connection, order.location, Filters=wanted)
                if one.get("ClientToken") == token
            ]  # fmt: skip
            if found:
                return readings.best_of(readings.instance_of(one, order.location) for one in found)
        return None

    def instance(self, location: str, zone: str, key: str, instance_id: str) -> Instance | None:
        """By its id; without one, as after a create whose answer was lost, by its key. None only where EC2 says of the
        id that it does not exist, and it is not found by its name either: reads may lag behind."""
        if not instance_id:
            return readings.best_of(remains.instances_of(self.connection, location, key))
        try:
            found = readings.described(self.connection, location, InstanceIds=[instance_id])
        except CloudError as error:
            if error.provider_code != "InvalidInstanceID.NotFound":
                raise
            by_name = tagged({network.NAME: key}) if key else filters(instance_id=instance_id)
            found = readings.described(self.connection, location, Filters=by_name)
            return next(
                (readings.instance_of(one, location) for one in found if one["InstanceId"] == instance_id), None
            )
        for one in found:
            if one["InstanceId"] == instance_id:
                return readings.instance_of(one, location)
        raise CloudError(Meaning.UNAVAILABLE, f"EC2's answer to a question about {instance_id} is not about it.")

    def ended(self, instance: Instance) -> Instance:
        said = f"EC2 says that there is no {instance.id or instance.key} (InvalidInstanceID.NotFound)."
        return replace(instance, state=Lifecycle.TERMINATED, reason=said)

    def terminate(self, instance: Instance) -> None:
        """Its disks and network card go with it. That EC2 does not know it is success here and no proof:
        `instance` tells."""
        try:
            self.connection.call("terminate_instances", instance.location, InstanceIds=[instance.id])
        except CloudError as error:
            if error.provider_code != "InvalidInstanceID.NotFound":
                raise

    def sweep(
        self, location: str, zone: str, key: str, tags: Mapping[str, str], *, known: Sequence[str] = (),
        report: Callable[[str], object] = cloud.ignore,
    ) -> Sequence[str]:  # fmt: skip
        """Instances of lost attempts, spot requests, disks, network cards and the security group under a key."""
        return remains.sweep(self.connection, location, key, tags, known=known, report=report)

    def remains(self, location: str, tags: Mapping[str, str]) -> Sequence[Remnant]:
        """Open spot requests, volumes and network cards that nothing uses, and all security groups."""
        wanted = [location] if location else [one.name for one in self.locations() if one.available]
        return [one for place in wanted for one in remains.remains(self.connection, place, tags)]

    def image(self, location: str, wanted: Mapping[str, str], arch: str) -> Image:
        """`wanted` has the fields of `config.Image`."""
        return images.newest(self.connection, location, wanted, arch)

    def images(self, location: str, name: str) -> Sequence[Image]:
        """Ours, Amazon's, Debian's and Ubuntu's."""
        return images.fitting(self.connection, location, name)

    def quotas(self, location: str) -> Sequence[Quota]:
        """Needs the permission servicequotas:ListServiceQuotas."""
        if location:
            return quotas.quotas_of(self.connection, location)
        return [one for there in self.locations() if there.available for one in self.quotas(there.name)]

    def permissions(self, order: Order) -> Sequence[cloud.Permission]:
        """By calls with DryRun, in the order's region; some thirty."""
        given = self.credential
        order = replace(order, location=order.location or given.region)
        return permissions.permissions(self.connection, order, price_list=given.price_list, amazon=not given.endpoint)

    def network_problems(self, order: Order, zones: Sequence[str]) -> Sequence[Problem]:
        """The subnet, or the default VPC's subnets."""
        return places.problems(self.connection, order, zones)
