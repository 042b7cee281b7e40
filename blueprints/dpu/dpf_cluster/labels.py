"""The labels that Drydock keeps on DPUClusters.

On clusters of others they are written by server-side apply, so that fields of others are never changed. On those that
Drydock created, only the labels are patched: an apply would remove the fields with which the cluster was created.
"""

from __future__ import annotations

from collections.abc import Mapping

from blueprints.answers import Answer, Failed, Json, Ready, Scope
from blueprints.dpf import Site, clusters, kube_told, opened
from blueprints.dpu.dpf_cluster.actions import name_of
from blueprints.kube import Object, has_labels
from blueprints.specs import Spec

_WRITTEN = "labelled"
"""The fact with the names of the labels that we have written, so that they are removed later."""


@kube_told
def write(spec: Spec, memo: Json) -> Answer:
    """Write the labels of the config, and remove those that we wrote before and that are not in it any more."""
    wanted: Mapping[str, str] = spec.config.labels
    before = spec.resource.facts.get(_WRITTEN) or ()
    if not wanted and not before:
        return Ready()
    with opened(spec) as site:
        name = name_of(site, spec)
        found = site.find(clusters.KIND, name)
        if found is None:
            return Failed(scope=Scope.STEP, code="absent", message=f"{clusters.KIND} {name} does not exist.")
        if _is_ours(site, found):
            removed = {one: None for one in before if one in found.labels and one not in wanted}
            site.cluster.annotate(site.dialect.type(clusters.KIND), found, {}, {**removed, **wanted})
        else:
            _apply(site, found, wanted)
    return Ready(facts={_WRITTEN: sorted(wanted)})


@kube_told
def remove(spec: Spec, memo: Json) -> Answer:
    """Remove our labels from a cluster of others that is handed back."""
    if not spec.resource.facts.get(_WRITTEN):
        return Ready()
    with opened(spec) as site:
        found = site.find(clusters.KIND, name_of(site, spec))
        if found is not None and not found.deleting and not _is_ours(site, found):
            _apply(site, found, {})
    return Ready(facts={_WRITTEN: []})


def _is_ours(site: Site, found: Object) -> bool:
    return has_labels(site.proof)(found.labels)


def _apply(site: Site, found: Object, wanted: Mapping[str, str]) -> None:
    type_ = site.dialect.type(clusters.KIND)
    metadata = {"labels": dict(wanted)} if wanted else {}
    site.cluster.apply(type_, type_.manifest(found.name, found.namespace, metadata=metadata), current=found)
