"""The steps that end the credentials of leases on a DPU: request, Secret and account are gone, or it is said why not.

DPF deletes Secret and account before it lets go of a request, but only as far as it has noted them in its status. Their
absence is therefore confirmed. What to look for is committed in the memo before the first request is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping

from blueprints.answers import Answer, Json, Ready, Wait
from blueprints.dpf import Site, kube_told, opened
from blueprints.dpf import credentials as requests
from blueprints.dpf.services import labels_of
from blueprints.dpu.dpf.actions import CLUSTER, kubeconfig_of
from blueprints.dpu.dpf.leasing import found_requests
from blueprints.kube import SECRET, SERVICE_ACCOUNT, Cluster, ObjectType, connect
from blueprints.kube import read as read_credential
from blueprints.specs import Spec

_PAUSE = 2.0
_LOOKED_FOR = "credentials"


@kube_told
def revoke_former(spec: Spec, memo: Json) -> Answer:
    """Remove the credentials of all leases on the DPU, of which none is active now, and wait until they are gone."""
    if spec.resource.fresh():
        return Ready()
    with opened(spec) as site:
        return _revoked(site, spec, {}, memo)


@kube_told
def revoke_own(spec: Spec, memo: Json) -> Answer:
    """Remove the credentials of the lease, and wait until they are gone."""
    assert spec.lease is not None
    with opened(spec) as site:
        return _revoked(site, spec, labels_of(spec.lease.key), memo)


def _revoked(site: Site, spec: Spec, labels: Mapping[str, str], memo: Json) -> Answer:
    found = found_requests(site, spec, labels)
    known = [tuple(one) for one in memo.get(_LOOKED_FOR, [])]
    made = [one for one in map(requests.made_for, found) if one is not None]
    new = [pair for one in made if (pair := (one.namespace, one.name)) not in known]
    if new:
        memo = {**memo, _LOOKED_FOR: [list(one) for one in (*known, *new)]}
        return Wait(after=0.0, memo=memo, sentence=f"{len(new)} credentials are removed.")
    type_ = site.dialect.type(requests.KIND) if found else None
    deleted = (site.cluster.delete(type_, one.name, one.namespace, uid=one.uid) for one in found if type_ is not None)
    if left := [one for one in deleted if one is not None]:
        return Wait(
            after=_PAUSE,
            memo=memo,
            sentence=f"{requests.KIND} {left[0].name} is being deleted.{left[0].finalizer_sentence}",
        )
    remains = _remains(site, spec, known)
    return Wait(after=_PAUSE, memo=memo, sentence=remains) if remains else Ready()


def _remains(site: Site, spec: Spec, known: list[tuple[str, ...]]) -> str:
    """Delete Secrets and accounts that DPF has left. Return what is still there; empty if nothing is."""
    if not known:
        return ""
    left = [
        f"Secret {name} in namespace {where}" for where, name in known if _is_left(site.cluster, SECRET, where, name)
    ]
    held = spec.resource.parents.get(CLUSTER) or spec.parents.get(CLUSTER)
    # Without its DPU cluster, the account is gone as well.
    if held is not None and site.find("DPUCluster", held.resource.facts["name"]) is not None:
        kubeconfig, problem = kubeconfig_of(site, held)
        if problem:
            return f"It cannot be read whether the accounts of credentials are gone. {problem}"
        with connect(read_credential({"kubeconfig": kubeconfig}), deadline=min(10.0, spec.deadline * 0.4)) as cluster:
            left += [
                f"ServiceAccount {name} of the DPU cluster"
                for where, name in known
                if _is_left(cluster, SERVICE_ACCOUNT, where, name)
            ]
    return f"{left[0]} is being deleted." if left else ""


def _is_left(cluster: Cluster, type_: ObjectType, namespace: str, name: str) -> bool:
    there = cluster.find(type_, name, namespace)
    return there is not None and cluster.delete(type_, name, namespace, uid=there.uid) is not None
