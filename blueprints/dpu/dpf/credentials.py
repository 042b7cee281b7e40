"""The credentials of a lease on a DPU: DPUServiceCredentialRequests on the API server of DPF."""

from __future__ import annotations

from collections.abc import Sequence

from blueprints.dpf import Site
from blueprints.dpf import credentials as requests
from blueprints.dpu.dpf.actions import CLUSTER
from blueprints.dpu.dpf.connection import Connected
from blueprints.kube import SECRET, Object, ObjectAbsent, ObjectChanged, ObjectExists, has_labels, selector
from drydock.core.errors import Conflict
from interfaces.deadline import Deadline
from interfaces.dpu_services import CredentialBackend, FoundCredential
from interfaces.errors import ServiceChanged

_ATTEMPTS = 4
"""Attempts to mark a credential, while the status of its object changes."""


class DpfCredentials(Connected, CredentialBackend):
    """The credentials of one lease on a DPU."""

    def list(self, deadline: Deadline) -> Sequence[FoundCredential]:
        """Return the credentials of the lease, sorted by name."""
        with self._opened(deadline) as site:
            type_ = site.dialect.type(requests.KIND)
            found = site.cluster.list(type_, site.namespace, labels=selector(self._labels))
        seen = (requests.found_credential(one) for one in found)
        return sorted((one for one in seen if one is not None), key=lambda one: one.name)

    def find(self, name: str, deadline: Deadline) -> FoundCredential | None:
        """Return a credential of the lease; None if there is none of this name."""
        with self._opened(deadline) as site:
            found = self._object(site, name)
        return None if found is None else requests.found_credential(found)

    def create(self, name: str, seconds: int, deadline: Deadline) -> FoundCredential:
        """Request a credential. Raises ServiceChanged if the name is taken, and Conflict if a Secret has it."""
        config = self._lease.resource.blueprint.config
        held = self._lease.resource.parents.get(CLUSTER)
        if held is None:
            raise Conflict("The DPU has no lease on a DPU cluster any more.")
        with self._opened(deadline) as site:
            secret = requests.name_of(self._lease.key, name)
            if site.cluster.find(SECRET, secret, config.credentials.namespace) is not None:
                raise Conflict(
                    f"Secret {secret} in namespace {config.credentials.namespace} exists, and DPF would overwrite it.",
                    hint="A credential of this name may still be removed: repeat it. Else, an operator can delete it.",
                )
            manifest = requests.manifest(
                site.dialect, name, seconds, lease=self._lease.key, namespace=site.namespace,
                secrets=config.credentials.namespace, proof=self._proof,
                cluster={"name": held.resource.facts["name"], "namespace": site.namespace},
            )  # fmt: skip
            try:
                made = site.cluster.create(site.dialect.type(requests.KIND), manifest)
            except ObjectExists:
                raise ServiceChanged(
                    f"{requests.KIND} {secret} in namespace {site.namespace} exists already."
                ) from None
        found = requests.found_credential(made)
        if found is None:
            raise ServiceChanged("The credential was changed by others while it was requested.")
        return found

    def show(self, found: FoundCredential, deadline: Deadline) -> str:
        """Mark an issued credential as shown, and then return its kubeconfig.

        Raises Conflict if there is no kubeconfig, in which case it is not marked, and ServiceChanged.
        """
        with self._opened(deadline) as site:
            for _ in range(_ATTEMPTS):
                deadline.check("Reading the credential")
                current = self._exactly(site, found)
                if current is None or current.deleting or requests.SHOWN in current.annotations:
                    break
                kubeconfig = self._kubeconfig(site, current)
                try:
                    site.cluster.annotate(site.dialect.type(requests.KIND), current, requests.shown_now())
                except ObjectAbsent:
                    break
                except ObjectChanged:
                    continue
                return kubeconfig
        raise ServiceChanged(f"The credential {found.name} was shown, changed or removed meanwhile.")

    def remove(self, found: FoundCredential, deadline: Deadline) -> None:
        """Begin to remove exactly this credential. A missing one is not an error."""
        with self._opened(deadline) as site:
            if (current := self._exactly(site, found)) is not None:
                type_ = site.dialect.type(requests.KIND)
                site.cluster.delete(type_, current.name, current.namespace, uid=current.uid)

    def _kubeconfig(self, site: Site, current: Object) -> str:
        made = requests.made_for(current)
        secret = site.cluster.find(SECRET, made.name, made.namespace) if made is not None else None
        kubeconfig = requests.kubeconfig(secret) if secret is not None else ""
        if not kubeconfig:
            raise Conflict(
                "The Secret of the credential has no kubeconfig.", hint="Remove it, and request another one."
            )
        return kubeconfig

    def _exactly(self, site: Site, found: FoundCredential) -> Object | None:
        current = self._object(site, found.name)
        return current if current is not None and current.uid == found.version else None

    def _object(self, site: Site, name: str) -> Object | None:
        found = site.find(requests.KIND, requests.name_of(self._lease.key, name))
        return found if found is not None and has_labels(self._labels)(found.labels) else None
