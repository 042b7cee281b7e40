"""Changes of a DPU's config that disturb no lease on it: the labels of its node, and what only steps of Drydock use."""

from __future__ import annotations

from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.dpf import SELDOM, kube_told, opened
from blueprints.dpu.dpf.actions import IMAGE, manifest_of_set
from blueprints.dpu.dpf.config import Config
from blueprints.kube import has_labels, labelled
from blueprints.specs import Spec

INSTALLED = ("image", "flavor", "deployment", "mode", "card", "cluster", "credential", "namespace")
"""Fields for which a DPU is installed anew if they change."""
_LOOK = 2.0


def disruption(before: Config | None, after: Config) -> str:
    """Return which fields change for which the DPU is installed anew, as a sentence, or an empty string."""
    if before is None:
        return "It is not known what changes, so the DPU is installed anew."
    changed = [name for name in INSTALLED if getattr(before, name) != getattr(after, name)]
    return f"The DPU is installed anew for another {', '.join(changed)}." if changed else ""


@kube_told
def relabel(spec: Spec, memo: Json) -> Answer:
    """Write the labels of the config into the DPUSet, and wait until DPF has copied them to the DPU.

    DPF copies new and changed labels to the node of the DPU, and disturbs nothing there.
    """
    with opened(spec) as site:
        type_, name = site.dialect.type("DPUSet"), site.name("DPUSet", spec.resource.key)
        found = site.find("DPUSet", name)
        if found is None or not has_labels(site.proof)(found.labels):
            return Failed(scope=Scope.STEP, code="set_gone", message=f"The DPUSet {name} does not exist any more.")
        image = spec.parents[IMAGE].resource.facts["name"]
        wanted = labelled(manifest_of_set(site, spec, name, image), site.proof)
        site.cluster.apply(type_, wanted, current=found)
        dpus = site.ours("DPU")
    asked = (wanted["spec"]["dpuTemplate"]["spec"].get("cluster") or {}).get("nodeLabels") or {}
    for dpu in dpus:
        there = (dpu.spec.get("cluster") or {}).get("nodeLabels") or {}
        if not asked.items() <= there.items():
            sentence = f"DPF has not copied the labels to DPU {dpu.name} yet."
            return Wait(after=_LOOK, watched=SELDOM, memo=memo, sentence=sentence)
    return Ready(attributes={"doca": spec.config.doca or None})
