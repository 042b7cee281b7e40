"""The chains of a lease on a DPU: DPUServiceInterfaces and DPUServiceChains on the API server of DPF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from blueprints.dpf import Site, chains
from blueprints.dpu.dpf.actions import CLUSTER
from blueprints.dpu.dpf.connection import Connected
from blueprints.dpuservices import ChainConfig, limits
from blueprints.kube import Json, Object, ObjectExists, has_labels, selector
from blueprints.specs import LeaseView
from drydock.core.errors import Conflict
from interfaces.deadline import Deadline
from interfaces.dpu_services import Chain, ChainBackend, FoundChain
from interfaces.errors import ServiceChanged

_PORTS = 2
"""Network ports of a card that does not say how many it has."""


class DpfChains(Connected, ChainBackend):
    """The chains of one lease on a DPU."""

    def __init__(self, lease: LeaseView, proof: Mapping[str, str], config: ChainConfig) -> None:
        super().__init__(lease, proof)
        ports = lease.resource.attributes.get("ports")
        self._network = config.network
        self.limits = limits(config, ports if type(ports) is int else _PORTS)
        self.dpu, self.lease = lease.resource.key, lease.key

    def list(self, deadline: Deadline) -> Sequence[FoundChain]:
        """Return the chains of the lease, sorted by name."""
        with self._opened(deadline) as site:
            return self._found(site, self._objects(site))

    def find(self, name: str, deadline: Deadline) -> FoundChain | None:
        """Return a chain of the lease; None if no object of it exists."""
        with self._opened(deadline) as site:
            return next(iter(self._found(site, self._objects(site, name))), None)

    def create(self, chain: Chain, deadline: Deadline) -> FoundChain:
        """Create the interfaces of a chain, and then the chain. Objects of it that exist already are used.

        Raises ServiceChanged if an object of the lease is in the way, and Conflict for one of somebody else.
        """
        with self._opened(deadline) as site:
            made = []
            for manifest in self._manifests(site, chain):
                deadline.check("Connecting the chain")
                made.append((manifest["kind"], self._ensured(site, chain, manifest)))
            found = self._found(site, made)
        if not found:
            raise ServiceChanged(f"The chain {chain.name} was changed by others while it was written.")
        return found[0]

    def remove(self, found: FoundChain, deadline: Deadline) -> bool:
        """Begin to remove exactly these objects. Return whether no object of the chain is left."""
        exactly, left = set(found.version.split()), False
        with self._opened(deadline) as site:
            for kind, one in self._objects(site, found.chain.name):
                deadline.check("Removing the chain")
                type_ = site.dialect.type(kind)
                known = one.uid in exactly
                left |= not known or site.cluster.delete(type_, one.name, one.namespace, uid=one.uid) is not None
        return not left

    def _ensured(self, site: Site, chain: Chain, manifest: Json) -> Object:
        type_, name = site.dialect.known(manifest).type, manifest["metadata"]["name"]
        try:
            return site.cluster.create(type_, manifest)
        except ObjectExists:
            there = site.cluster.find(type_, name, site.namespace)
        if there is None:
            raise ServiceChanged(f"The chain {chain.name} was removed while it was written.")
        if not has_labels(self._labels)(there.labels):
            raise Conflict(
                f"{type_.kind} {name} in namespace {site.namespace} is not one that Drydock can use.",
                hint="An operator can delete it if nobody needs it.",
            )
        if there.deleting:
            raise ServiceChanged(f"{type_.kind} {name} of a former chain is still being removed.")
        if not chains.is_part(there, manifest):
            raise ServiceChanged(f"{type_.kind} {name} was written by another request, or changed by others.")
        return there

    def _manifests(self, site: Site, chain: Chain) -> Sequence[Json]:
        held = self._lease.resource.parents.get(CLUSTER)
        cluster = None if held is None else site.find("DPUCluster", held.resource.facts["name"])
        return chains.manifests(
            site.dialect, chain, lease=self._lease.key, namespace=site.namespace, proof=self._proof,
            cluster=cluster.labels if cluster is not None else {}, network=self._network,
        )  # fmt: skip

    def _objects(self, site: Site, name: str = "") -> Sequence[tuple[str, Object]]:
        """Return the objects of the lease's chains, or of one chain, each with its kind."""
        labels = selector({**self._labels, **({chains.NAME: name} if name else {})})
        return [
            (kind, one)
            for kind in chains.KINDS
            for one in site.cluster.list(site.dialect.type(kind), site.namespace, labels=labels)
        ]

    def _found(self, site: Site, objects: Sequence[tuple[str, Object]]) -> Sequence[FoundChain]:
        return chains.found_chains(site.dialect, objects, lease=self._lease.key, proof=self._proof)
