"""The labels that Drydock keeps on DPUClusters of others, by server-side apply: fields of others are never changed."""

from __future__ import annotations

from collections.abc import Mapping

from blueprints.answers import Answer, Failed, Json, Ready, Scope
from blueprints.dpf import Site, kube_told, opened
from blueprints.kube import Object
from blueprints.specs import Spec

_CLUSTER = "DPUCluster"
_WRITTEN = "labelled"
"""The fact that we have written labels, so that they are removed when the cluster is handed back."""


@kube_told
def write(spec: Spec, memo: Json) -> Answer:
    """Write the labels of the config. The server removes those that we wrote before and that are not in it any more."""
    wanted = spec.config.labels
    if not wanted and not spec.resource.facts.get(_WRITTEN):
        return Ready()
    with opened(spec) as site:
        found = _find(site, spec)
        if found is None:
            return Failed(scope=Scope.STEP, code="absent", message=f"{_CLUSTER} {_name(spec)} does not exist.")
        _apply(site, found, wanted)
    return Ready(facts={_WRITTEN: bool(wanted)})


@kube_told
def remove(spec: Spec, memo: Json) -> Answer:
    """Remove our labels from a cluster that is handed back."""
    if not spec.resource.facts.get(_WRITTEN):
        return Ready()
    with opened(spec) as site:
        found = _find(site, spec)
        if found is not None and not found.deleting:
            _apply(site, found, {})
    return Ready(facts={_WRITTEN: False})


def _name(spec: Spec) -> str:
    return str(spec.resource.facts["name"])


def _find(site: Site, spec: Spec) -> Object | None:
    return site.find(_CLUSTER, _name(spec))


def _apply(site: Site, found: Object, wanted: Mapping[str, str]) -> None:
    type_ = site.dialect.type(_CLUSTER)
    metadata = {"labels": dict(wanted)} if wanted else {}
    site.cluster.apply(type_, type_.manifest(found.name, found.namespace, metadata=metadata), current=found)
