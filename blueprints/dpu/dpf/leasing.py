"""The steps of a lease on a DPU: its services begin with it, and none is left when it is over.

The services of a lease are written by requests, not by steps, so one may still be written while the lease is cleaned.
It is then removed by whatever comes first: the request itself, a health check, the next activation, or the destruction.
"""

from __future__ import annotations

from collections.abc import Mapping

from blueprints.answers import Answer, Json, Ready, Wait
from blueprints.dpf import Site, kube_told, opened, services
from blueprints.kube import Object, RequestForbidden, label_value, proof_labels, selector
from blueprints.specs import Spec

PROOF = "dpu_services"
"""The secret of a lease with the labels that prove that an object belongs to its DPU."""
_PAUSE = 2.0


@kube_told
def remove_former(spec: Spec, memo: Json) -> Answer:
    """Remove the services of all leases on the DPU, of which none is active now, and wait until they are gone."""
    with opened(spec) as site:
        return _removed(site, spec, {}, memo)


@kube_told
def remove_own(spec: Spec, memo: Json) -> Answer:
    """Remove the services of the lease, and wait until they are gone."""
    assert spec.lease is not None
    with opened(spec) as site:
        return _removed(site, spec, services.labels_of(spec.lease.key), memo)


def open_to_lease(spec: Spec, memo: Json) -> Answer:
    """Store what the interface needs in order to write objects of this DPU for this lease."""
    assert spec.lease is not None
    return Ready(facts={"services": spec.lease.key}, secrets={PROOF: proof_labels(spec.tags)})


def keep_services(spec: Spec, memo: Json) -> Answer:
    """Leave the services to the new owner. The former one has no access to them but through Drydock."""
    return Ready()


def remove_strays(site: Site, spec: Spec) -> list[str]:
    """Begin to remove services of the DPU whose leases do not hold it any more. Return the names of their objects."""
    found = _found(site, spec, {})
    # Read after the listing: whatever was listed had a lease then, or none any more.
    holders = {label_value(key) for key in spec.resource.holders()}
    strays = [one for one in found if one.labels.get(services.LEASE) not in holders and not one.deleting]
    for one in strays:
        site.cluster.delete(site.dialect.type(services.KIND), one.name, one.namespace, uid=one.uid)
    return [one.name for one in strays]


def _removed(site: Site, spec: Spec, labels: Mapping[str, str], memo: Json) -> Answer:
    type_ = site.dialect.type(services.KIND) if site.dialect.has(services.KIND) else None
    deleted = (
        site.cluster.delete(type_, one.name, one.namespace, uid=one.uid)
        for one in _found(site, spec, labels)
        if type_ is not None
    )
    left = [one for one in deleted if one is not None]
    if not left:
        return Ready()
    kept = f" It is kept by the finalizers {', '.join(left[0].finalizers)}." if left[0].finalizers else ""
    more = f" {len(left)} are left." if len(left) > 1 else ""
    return Wait(after=_PAUSE, memo=memo, sentence=f"DPUService {left[0].name} is being deleted.{kept}{more}")


def _found(site: Site, spec: Spec, labels: Mapping[str, str]) -> tuple[Object, ...]:
    """Return the DPUServices with the proof of the DPU and these labels.

    An account that may not list DPUServices has created none; its role is from before blueprints had charts.
    """
    if not site.dialect.has(services.KIND):
        return ()
    type_ = site.dialect.type(services.KIND)
    try:
        return site.cluster.list(type_, site.namespace, labels=selector({**site.proof, **labels}))
    except RequestForbidden:
        if spec.config.charts:
            raise
        return ()
