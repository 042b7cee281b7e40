"""The steps of a lease on a DPU: what it defines there begins with it, and nothing is left of it when it is over.

They are written by requests, not by steps, so one may still be written while the lease is cleaned. It is then removed
by whatever comes first: the request itself, a health check, the next activation, or the destruction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from blueprints.answers import Answer, Json, Ready, Wait
from blueprints.dpf import SELDOM, Site, credentials, kube_told, opened, services
from blueprints.dpf.chains import CHAINS
from blueprints.dpf.networks import NETWORKS
from blueprints.dpf.permissions import allows
from blueprints.dpf.volumes import VOLUMES
from blueprints.dpf.vpcs import VPCS
from blueprints.kube import Object, RequestForbidden, label_value, proof_labels, selector
from blueprints.specs import Spec
from drydock.core import clock

PROOF = "dpu_services"
"""The secret of a lease with the labels that prove that an object belongs to its DPU."""
TYPES = "dpu_types"
"""The fact of a lease with the types of objects that the config allowed when it began."""
ROOT = "root"
"""The fact of a lease whether its owner could be root when it began. The config may say something else at its end."""
WRITTEN = (CHAINS, VPCS, VOLUMES, NETWORKS)
KINDS = (*dict.fromkeys(kind for written in WRITTEN for kind in written.kinds), services.KIND)
"""The kinds of objects that requests write for a lease, in the order in which they are removed."""
_PAUSE = 2.0


@kube_told
def remove_former(spec: Spec, memo: Json) -> Answer:
    """Remove what other leases on the DPU have written, of which none is active now, and wait until it is gone.

    A lease that is set up again, after its DPU was installed anew, keeps its services: DPF starts them again. On a DPU
    that was built for this lease there is nothing, which saves a listing of each type.
    """
    if spec.resource.fresh():
        return Ready()
    with opened(spec) as site:
        return _removed(site, spec, {}, memo)


@kube_told
def remove_own(spec: Spec, memo: Json) -> Answer:
    """Remove what the lease has written, and wait until they are gone."""
    assert spec.lease is not None
    with opened(spec) as site:
        return _removed(site, spec, services.labels_of(spec.lease.key), memo)


def open_to_lease(spec: Spec, memo: Json) -> Answer:
    """Store what the interface needs in order to write objects of this DPU for this lease."""
    assert spec.lease is not None
    types = [kind for kind in (*KINDS, credentials.KIND) if allows(dict(spec.config), kind)]
    facts = {"services": spec.lease.key, ROOT: spec.config.root, TYPES: types}
    return Ready(facts=facts, secrets={PROOF: proof_labels(spec.tags)})


def keep_services(spec: Spec, memo: Json) -> Answer:
    """Leave what was written to the new owner. The former one has no access to it but through Drydock."""
    return Ready()


def remove_strays(site: Site, spec: Spec) -> list[str]:
    """Begin to remove what was written for leases that do not hold the DPU any more, and credentials that have expired.

    Return the names of the objects.
    """
    # What the config does not allow any more is left to the next lease, which looks at all kinds.
    kinds = (kind for kind in KINDS if kind == services.KIND or allows(dict(spec.config), kind))
    found = [(kind, one) for kind in kinds for one in _listed(site, spec, kind, {})]
    found += [(credentials.KIND, one) for one in found_requests(site, spec, {})]
    # Read after the listing: whatever was listed had a lease then, or none any more.
    holders = {label_value(key) for key in spec.resource.holders()}
    now, removed, left = clock.now(), list[str](), set[str]()
    for kind, one in found:
        over = kind == credentials.KIND and credentials.until(one) <= now
        if one.deleting:
            left.add(kind)
        elif over or one.labels.get(services.LEASE) not in holders:
            # What waits for others is removed by the next check.
            if not _waits(kind, one, left) and _delete(site, kind, one) is not None:
                left.add(kind)
            removed.append(one.name)
    return removed


def _removed(site: Site, spec: Spec, labels: Mapping[str, str], memo: Json) -> Answer:
    stays = label_value(spec.lease.key) if spec.lease is not None and not labels else None
    left = list[tuple[str, Object]]()
    for kind in KINDS:
        for one in _listed(site, spec, kind, labels):
            if stays is not None and one.labels.get(services.LEASE) == stays:
                continue
            waiting = _waits(kind, one, {other for other, _ in left})
            still = one if waiting else _delete(site, kind, one)
            if still is not None:
                left.append((kind, still))
    if not left:
        return Ready()
    kind, first = left[0]
    more = f" {len(left)} are left." if len(left) > 1 else ""
    sentence = f"{kind} {first.name} is being deleted.{first.finalizer_sentence}{more}"
    # An object that waits for others is deleted by the next call, and what the config no longer allows is not watched.
    watched = SELDOM if all(one.deleting and allows(dict(spec.config), kind) for kind, one in left) else None
    return Wait(after=_PAUSE, watched=watched, memo=memo, sentence=sentence)


def _waits(kind: str, one: Object, left: Collection[str]) -> bool:
    return any(written.waits(kind, one, left) for written in WRITTEN)


def _delete(site: Site, kind: str, one: Object) -> Object | None:
    return site.cluster.delete(site.dialect.type(kind), one.name, one.namespace, uid=one.uid)


def found_requests(site: Site, spec: Spec, labels: Mapping[str, str]) -> tuple[Object, ...]:
    """Return the DPUServiceCredentialRequests with the proof of the DPU and these labels."""
    return _listed(site, spec, credentials.KIND, labels)


def _listed(site: Site, spec: Spec, kind: str, labels: Mapping[str, str]) -> tuple[Object, ...]:
    """Return the objects of a kind with the proof of the DPU and these labels.

    An account that may not list them has created none, if neither the config nor the lease ever allowed them: a role
    has only what the config needs, and must not be reduced before leases that used more have ended.
    """
    if not site.dialect.has(kind):
        return ()
    try:
        return site.cluster.list(site.dialect.type(kind), site.namespace, labels=selector({**site.proof, **labels}))
    except RequestForbidden:
        began_with = spec.lease.facts.get(TYPES, ()) if spec.lease is not None else ()
        if allows(dict(spec.config), kind) or kind in began_with:
            raise
        return ()
