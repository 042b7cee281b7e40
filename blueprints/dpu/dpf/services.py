"""The interface `dpu_services` of a lease on a DPU: its services are DPUServices on the API server of DPF."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from blueprints.dpf import Site, services
from blueprints.dpu.dpf import deploying
from blueprints.dpu.dpf.actions import CLUSTER, kubeconfig_of
from blueprints.dpu.dpf.connection import Connected, seconds_of
from blueprints.dpu.dpf.credentials import DpfCredentials
from blueprints.dpu.dpf.leasing import PROOF
from blueprints.dpu.dpf.objects import DpfChains, DpfNetworks, DpfVolumes, DpfVpcs
from blueprints.dpuservices import allowed
from blueprints.kube import (
    POD,
    Json,
    KubeError,
    Object,
    ObjectAbsent,
    ObjectChanged,
    ObjectExists,
    connect,
    has_labels,
    selector,
)
from blueprints.kube import read as read_credential
from blueprints.specs import LeaseView
from drydock.core.errors import Conflict
from interfaces.contract import Interface
from interfaces.deadline import Deadline
from interfaces.dpu_services import Deployed, DpuServices, Service, ServiceBackend
from interfaces.dpu_services.credentials import LONGEST
from interfaces.errors import ServiceChanged

_ATTEMPTS = 4
"""Attempts at a write, while the status of the object changes."""
_MOST_PODS = 250
_LONGEST = 500


class DpfServices(Connected, ServiceBackend):
    """The services of one lease on a DPU, and its pods in the DPU cluster."""

    def list(self, deadline: Deadline) -> Sequence[Deployed]:
        """Return the services of the lease and those of its blueprint, sorted by name."""
        with self._opened(deadline) as site:
            type_ = site.dialect.type(services.KIND)
            found = site.cluster.list(type_, site.namespace, labels=selector(self._labels))
            seen = [*self._seen(site, found, deadline), *self._of_blueprint(site, deadline)]
        return sorted(seen, key=lambda one: one.service.name)

    def find(self, name: str, deadline: Deadline) -> Deployed | None:
        """Return a service of the lease, or of its blueprint; None if there is none of this name."""
        with self._opened(deadline) as site:
            found = self._object(site, name)
            if found is not None:
                return next(iter(self._seen(site, [found], deadline)), None)
            return next((one for one in self._of_blueprint(site, deadline) if one.service.name == name), None)

    def create(self, service: Service, deadline: Deadline) -> Deployed:
        """Create a service. Raises ServiceChanged if the name is taken."""
        with self._opened(deadline) as site:
            try:
                made = site.cluster.create(site.dialect.type(services.KIND), self._manifest(site, service))
            except ObjectExists:
                self._refuse_foreign(site, service.name)
                raise ServiceChanged(f"The service {service.name} was created meanwhile.") from None
            return self._written(site, made)

    def replace(self, service: Service, over: Deployed, deadline: Deadline) -> Deployed:
        """Change a service. Raises ServiceChanged if it is not there in the version of `over` any more."""
        with self._opened(deadline) as site:
            manifest = self._manifest(site, service)

            def change(current: Object) -> Object:
                exactly = {**manifest["metadata"], "resourceVersion": current.resource_version}
                type_ = site.dialect.type(services.KIND)
                return site.cluster.apply(type_, {**manifest, "metadata": exactly}, current=current)

            made = self._exactly(site, over, deadline, change)
            if made is None:
                raise ServiceChanged(f"The service {service.name} was removed meanwhile.")
            return self._written(site, made)

    def remove(self, over: Deployed, deadline: Deadline) -> None:
        """Begin to remove a service. A missing one is not an error. Raises ServiceChanged for another version."""
        with self._opened(deadline) as site:

            def delete(current: Object) -> None:
                site.cluster.delete(
                    site.dialect.type(services.KIND), current.name, current.namespace, uid=current.uid,
                    resource_version=current.resource_version,
                )  # fmt: skip

            self._exactly(site, over, deadline, delete)

    def _exactly(
        self, site: Site, over: Deployed, deadline: Deadline, write: Callable[[Object], Object | None]
    ) -> Object | None:
        """Write to the object of a service in the version of `over`; return None if it does not exist.

        Repeats the write if only the status of the object has changed meanwhile. Raises ServiceChanged.
        """
        name = over.service.name
        for _ in range(_ATTEMPTS):
            deadline.check("Writing the service")
            current = self._object(site, name)
            if current is None:
                return None
            if services.version(current) != over.version:
                break
            try:
                return write(current)
            except ObjectAbsent:
                return None
            except ObjectChanged:
                continue
        raise ServiceChanged(f"The service {name} was changed meanwhile.")

    def _manifest(self, site: Site, service: Service) -> Json:
        held = self._lease.resource.parents.get(CLUSTER)
        cluster = None if held is None else site.find("DPUCluster", held.resource.facts["name"])
        return services.manifest(
            site.dialect, service, lease=self._lease.key, namespace=site.namespace, proof=self._proof,
            cluster=cluster.labels if cluster is not None else {},
        )  # fmt: skip

    def _object(self, site: Site, name: str) -> Object | None:
        found = site.find(services.KIND, services.name_of(self._lease.key, name))
        return found if found is not None and has_labels(self._labels)(found.labels) else None

    def _refuse_foreign(self, site: Site, name: str) -> None:
        """Raise Conflict if the object under the name of a service cannot be told to be that of this lease."""
        taken = site.find(services.KIND, services.name_of(self._lease.key, name))
        if taken is not None and not (has_labels(self._labels)(taken.labels) and services.definition(taken)):
            raise Conflict(
                f"DPUService {taken.name} in namespace {taken.namespace} is not one that Drydock can use.",
                hint="An operator can delete it if nobody needs it.",
            )

    def _written(self, site: Site, found: Object) -> Deployed:
        seen = services.deployed(site.dialect, found, lease=self._lease.key, proof=self._proof)
        if seen is None:
            raise ServiceChanged("The service was changed by others while it was written.")
        return seen

    def _seen(self, site: Site, found: Sequence[Object], deadline: Deadline) -> Sequence[Deployed]:
        pods, unread = self._pods(site, deadline) if found else ((), "")
        seen = (
            services.deployed(site.dialect, one, lease=self._lease.key, proof=self._proof, pods=pods, unread=unread)
            for one in found
        )
        return [one for one in seen if one is not None]

    def _of_blueprint(self, site: Site, deadline: Deadline) -> Sequence[Deployed]:
        """Return the services of the DPU's deployment, without their Helm values, which are not the owner's."""
        name = str(self._lease.resource.facts.get(deploying.FACT) or "")
        if not name:
            return ()
        found = deploying.seen(site, name, self._lease.resource.parents.get(CLUSTER), seconds_of(deadline))
        return [replace(one, service=replace(one.service, values={})) for one in found]

    def _pods(self, site: Site, deadline: Deadline) -> tuple[Sequence[Object], str]:
        """Return the pods of the lease, or why they cannot be read. A service can be removed all the same."""
        held = self._lease.resource.parents.get(CLUSTER)
        if held is None:
            return (), "The DPU has no lease on a DPU cluster any more."
        try:
            kubeconfig, problem = kubeconfig_of(site, held)
            if problem:
                return (), problem
            with connect(read_credential({"kubeconfig": kubeconfig}), deadline=seconds_of(deadline)) as cluster:
                wanted = selector(services.labels_of(self._lease.key))
                return cluster.page(POD, site.namespace, labels=wanted, limit=_MOST_PODS).items, ""
        except KubeError as error:
            return (), error.message[:_LONGEST]


def open_services(lease: LeaseView, still_mine: Callable[[], None]) -> Interface:
    """Open the services of a lease, with what the config of its blueprint allows. Raises Conflict."""
    proof = lease.secrets.get(PROOF)
    if not proof:
        raise Conflict(
            "This lease began under a version of Drydock that could not install services on its DPU.",
            hint="Release it, and request a new one.",
        )
    config = lease.resource.blueprint.config
    return DpuServices.beside(
        DpfServices(lease, proof), still_mine=still_mine, allowed=allowed(config.charts),
        credentials=DpfCredentials(lease, proof) if config.credentials is not None else None,
        longest=config.credentials.longest if config.credentials is not None else LONGEST,
        chains=DpfChains(lease, proof, config.chains) if config.chains is not None else None, locks=lease.slot_locks,
        networks=DpfNetworks(lease, proof, config.networks) if config.networks else None,
        volumes=DpfVolumes(lease, proof, config.volumes) if config.volumes is not None else None,
        vpcs=DpfVpcs(lease, proof, config.vpcs) if config.vpcs is not None else None,
    )  # fmt: skip
