"""The health check of a DPU."""

from __future__ import annotations

from collections.abc import Sequence

from blueprints.answers import Answer, Failed, Health, Json, Ready, Scope
from blueprints.dpf import kube_told, opened
from blueprints.dpf.phases import why
from blueprints.dpu.dpf import deploying, drift, leasing
from blueprints.kube import Object
from blueprints.specs import Spec


@kube_told
def look(spec: Spec, memo: Json) -> Answer:
    """Read whether DPF reports the DPU as ready, remove what was written for leases that are over, and look for drift.

    A DPU that is not ready is degraded: its lease stays, and it gets no others. So is one whose objects somebody else
    has changed, or with a service of its deployment that is not ready.
    """
    with opened(spec) as site:
        found = site.ours("DPU")
        removed = leasing.remove_strays(site, spec)
        changed = drift.read(site, spec)
        left = deploying.unready(site, spec)
    if not found:
        return Failed(scope=Scope.STEP, code="dpu_gone", message="DPF has no DPU for our DPUSet any more.")
    told = f"What was written for leases that are over was removed: {', '.join(removed[:10])}." if removed else ""
    health = _health(found)
    if health.state == "ok" and (wrong := [*changed.sentences, *left]):
        health = Health(state="degraded", reason=" ".join(wrong)[:1000])
    return Ready(health=health, facts=changed.facts, log=f"{told} {changed.log}".strip())


def _health(found: Sequence[Object]) -> Health:
    wrong = next((one for one in found if one.phase != "Ready"), None)
    if wrong is not None:
        return Health(state="degraded", reason=f"DPU {wrong.name} is {wrong.phase or 'new'}. {why(wrong)}".strip())
    said = next((c for one in found for c in one.conditions if c.type == "Ready" and c.status == "False"), None)
    if said is not None:
        return Health(state="degraded", reason=f"{said.reason}: {said.message}".strip(": "))
    return Health(state="ok")
