"""The chains, networks, volumes and VPCs of a lease on a DPU, as objects on the API server of DPF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic

from blueprints.dpf import Site, cards
from blueprints.dpf.chains import CHAINS
from blueprints.dpf.networks import NETWORKS
from blueprints.dpf.objects import D, Place, Written, is_part
from blueprints.dpf.volumes import VOLUMES
from blueprints.dpf.vpcs import VPCS
from blueprints.dpu.dpf.actions import CARD, CLUSTER
from blueprints.dpu.dpf.connection import Connected
from blueprints.dpuservices import ChainConfig, VolumeConfig, VpcConfig, limits, volume_limits
from blueprints.kube import Json, Object, ObjectExists, has_labels, selector
from blueprints.specs import LeaseView
from drydock.core.errors import Conflict, NotSupported
from interfaces.deadline import Deadline
from interfaces.dpu_services import (
    Chain,
    ChainBackend,
    ChainLimits,
    Found,
    Network,
    NetworkBackend,
    ObjectBackend,
    Volume,
    VolumeBackend,
    Vpc,
    VpcBackend,
)
from interfaces.errors import ServiceChanged

_PORTS = 2
"""Network ports of a card that does not say how many it has."""


class DpfObjects(Connected, ObjectBackend[D], Generic[D]):
    """The objects of one lease on a DPU for definitions of one type."""

    written: Written[D]

    def __init__(self, lease: LeaseView, proof: Mapping[str, str], network: str = "") -> None:
        super().__init__(lease, proof)
        self.dpu, self.lease = lease.resource.key, lease.key
        self._network = network
        card = lease.resource.parents.get(CARD)
        self._host = "" if card is None else str(card.resource.facts.get("node") or "")

    def list(self, deadline: Deadline) -> Sequence[Found[D]]:
        """Return what the lease has, sorted by name."""
        with self._opened(deadline) as site:
            return self.written.found(self._place(site), self._objects(site))

    def find(self, name: str, deadline: Deadline) -> Found[D] | None:
        """Return the one of this name; None if no object of it exists."""
        with self._opened(deadline) as site:
            return next(iter(self.written.found(self._place(site), self._objects(site, name))), None)

    def create(self, definition: D, deadline: Deadline) -> Found[D]:
        """Create its objects. Those of it that exist already are used.

        Raises ServiceChanged if an object of the lease is in the way, Conflict for one of somebody else, NotSupported
        where the server or the host cannot have any, and InvalidRequest, with the field, for what the server cannot
        express.
        """
        with self._opened(deadline) as site:
            self.written.check_known(site.dialect)
            self.check_host(site)
            held = self._lease.resource.parents.get(CLUSTER)
            cluster = None if held is None else site.find("DPUCluster", held.resource.facts["name"])
            place = self._place(site, cluster.labels if cluster is not None else {})
            made = []
            for manifest in self.written.manifests(place, definition):
                deadline.check("Writing the objects")
                made.append((manifest["kind"], self._ensured(site, manifest)))
            found = self.written.found(place, made)
        if not found:
            raise ServiceChanged(f"{definition.name} was changed by others while it was written.")
        return found[0]

    def remove(self, found: Found[D], deadline: Deadline) -> bool:
        """Begin to remove exactly these objects. Return whether no object of this name is left."""
        exactly, left = set(found.version.split()), list[str]()
        with self._opened(deadline) as site:
            for kind, one in self._objects(site, found.definition.name):
                deadline.check("Removing the objects")
                type_ = site.dialect.type(kind)
                kept = one.uid not in exactly or self.written.waits(kind, one, left)
                if kept or site.cluster.delete(type_, one.name, one.namespace, uid=one.uid) is not None:
                    left.append(kind)
        return not left

    def check_host(self, site: Site) -> None:
        """Raise NotSupported if the objects cannot be for exactly this DPU in its host."""

    def _ensured(self, site: Site, manifest: Json) -> Object:
        type_, name = site.dialect.known(manifest).type, manifest["metadata"]["name"]
        try:
            return site.cluster.create(type_, manifest)
        except ObjectExists:
            there = site.cluster.find(type_, name, site.namespace)
        if there is None:
            raise ServiceChanged(f"{type_.kind} {name} was removed while it was written.")
        if not has_labels(self._labels)(there.labels):
            raise Conflict(
                f"{type_.kind} {name} in namespace {site.namespace} is not one that Drydock can use.",
                hint="An operator can delete it if nobody needs it.",
            )
        if there.deleting:
            raise ServiceChanged(f"{type_.kind} {name} from before is still being removed.")
        if not is_part(there, manifest):
            raise ServiceChanged(f"{type_.kind} {name} was written by another request, or changed by others.")
        return there

    def _place(self, site: Site, cluster: Mapping[str, str] | None = None) -> Place:
        return Place(
            dialect=site.dialect, lease=self._lease.key, namespace=site.namespace, proof=self._proof,
            cluster=cluster or {}, network=self._network, host=self._host,
        )  # fmt: skip

    def _objects(self, site: Site, name: str = "") -> Sequence[tuple[str, Object]]:
        """Return the objects of the lease, or of one definition, each with its kind."""
        labels = selector({**self._labels, **({self.written.name: name} if name else {})})
        return [
            (kind, one)
            for kind in self.written.kinds
            if site.dialect.has(kind)
            for one in site.cluster.list(site.dialect.type(kind), site.namespace, labels=labels)
        ]


class DpfChains(DpfObjects[Chain], ChainBackend):
    """The chains of one lease on a DPU."""

    written = CHAINS

    def __init__(self, lease: LeaseView, proof: Mapping[str, str], config: ChainConfig) -> None:
        super().__init__(lease, proof, config.network)
        self.limits = _limits(lease, config)


class DpfNetworks(DpfObjects[Network], NetworkBackend):
    """The networks of one lease on a DPU."""

    written = NETWORKS

    def __init__(self, lease: LeaseView, proof: Mapping[str, str], ranges: Sequence[str]) -> None:
        super().__init__(lease, proof)
        self.ranges = ranges


class DpfVolumes(DpfObjects[Volume], VolumeBackend):
    """The volumes of one lease on a DPU."""

    written = VOLUMES

    def __init__(self, lease: LeaseView, proof: Mapping[str, str], config: VolumeConfig) -> None:
        super().__init__(lease, proof)
        self.limits = volume_limits(config)

    def check_host(self, site: Site) -> None:
        """Raise NotSupported for hosts with several cards: an attachment names the host, and not the card."""
        found = [one for one in cards.all_cards(site.cluster, site.dialect, site.namespace) if one.node == self._host]
        if not self._host or not found:
            raise NotSupported("The card of the DPU is in no DPUNode, and DPF attaches volumes to a DPUNode only.")
        if len(found) > 1:
            names = ", ".join(sorted(one.name for one in found)[:10])
            message = f"DPUNode {self._host} has {len(found)} cards ({names})."
            hint = "DPF attaches a volume to a DPUNode, and cannot be told to which card. Use a host with one card."
            raise NotSupported(message, hint=hint)


class DpfVpcs(DpfObjects[Vpc], VpcBackend):
    """The VPCs of one lease on a DPU."""

    written = VPCS

    def __init__(self, lease: LeaseView, proof: Mapping[str, str], config: VpcConfig) -> None:
        super().__init__(lease, proof, config.network)
        self.limits, self.isolations, self.ranges = _limits(lease, config), config.isolations, config.subnets


def _limits(lease: LeaseView, config: ChainConfig) -> ChainLimits:
    ports = lease.resource.attributes.get("ports")
    return limits(config, ports if type(ports) is int else _PORTS)
