"""The steps of a lease on a DPU: its services begin with it, and none is left when it is over.

The services of a lease are written by requests, not by steps, so one may still be written while the lease is cleaned.
It is then removed by whatever comes first: the request itself, a health check, the next activation, or the destruction.
"""

from __future__ import annotations

from collections.abc import Mapping

from blueprints.answers import Answer, Json, Ready, Wait
from blueprints.dpf import SELDOM, Site, credentials, kube_told, opened, services
from blueprints.kube import Object, RequestForbidden, label_value, proof_labels, selector
from blueprints.specs import Spec
from drydock.core import clock

PROOF = "dpu_services"
"""The secret of a lease with the labels that prove that an object belongs to its DPU."""
ROOT = "root"
"""The fact of a lease whether its owner could be root when it began. The config may say something else at its end."""
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
    return Ready(facts={"services": spec.lease.key, ROOT: spec.config.root}, secrets={PROOF: proof_labels(spec.tags)})


def keep_services(spec: Spec, memo: Json) -> Answer:
    """Leave the services to the new owner. The former one has no access to them but through Drydock."""
    return Ready()


def remove_strays(site: Site, spec: Spec) -> list[str]:
    """Begin to remove services and credentials of the DPU whose leases do not hold it any more, or that have expired.

    Return the names of their objects.
    """
    services_found, requests = _found(site, spec, {}), found_requests(site, spec, {})
    # Read after the listing: whatever was listed had a lease then, or none any more.
    holders = {label_value(key) for key in spec.resource.holders()}
    now, removed = clock.now(), []
    for kind, found in ((services.KIND, services_found), (credentials.KIND, requests)):
        for one in found:
            over = kind == credentials.KIND and credentials.until(one) <= now
            if not one.deleting and (over or one.labels.get(services.LEASE) not in holders):
                site.cluster.delete(site.dialect.type(kind), one.name, one.namespace, uid=one.uid)
                removed.append(one.name)
    return removed


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
    sentence = f"DPUService {left[0].name} is being deleted.{kept}{more}"
    return Wait(after=_PAUSE, watched=SELDOM, memo=memo, sentence=sentence)


def found_requests(site: Site, spec: Spec, labels: Mapping[str, str]) -> tuple[Object, ...]:
    """Return the DPUServiceCredentialRequests with the proof of the DPU and these labels."""
    return _listed(site, credentials.KIND, labels, needed=spec.config.credentials is not None)


def _found(site: Site, spec: Spec, labels: Mapping[str, str]) -> tuple[Object, ...]:
    """Return the DPUServices with the proof of the DPU and these labels."""
    return _listed(site, services.KIND, labels, needed=bool(spec.config.charts))


def _listed(site: Site, kind: str, labels: Mapping[str, str], *, needed: bool) -> tuple[Object, ...]:
    """Return the objects of a kind with the proof of the DPU and these labels.

    An account that may not list them has created none; its role is from before blueprints could allow them.
    """
    if not site.dialect.has(kind):
        return ()
    try:
        return site.cluster.list(site.dialect.type(kind), site.namespace, labels=selector({**site.proof, **labels}))
    except RequestForbidden:
        if needed:
            raise
        return ()
