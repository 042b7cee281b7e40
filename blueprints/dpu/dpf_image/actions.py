"""The steps of an image: created, downloaded by DPF, and read."""

from __future__ import annotations

import datetime as dt

from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.dpf import SELDOM, Site, kube_told, manifests, opened
from blueprints.dpf.phases import why
from blueprints.specs import Spec
from drydock.core import clock

_LOOK = 3.0


@kube_told
def create(spec: Spec, memo: Json) -> Answer:
    """Create the BFB, or adopt it after a lost answer."""
    with opened(spec) as site:
        name = site.name("BFB", spec.resource.key)
        found = site.ensure(
            manifests.bfb(site.dialect, name, site.namespace, spec.resource.attributes["url"], f"{name}.bfb")
        )
    return Ready(facts={"name": found.name, "namespace": found.namespace})


@kube_told
def download(spec: Spec, memo: Json) -> Answer:
    """Wait until DPF has downloaded the image."""
    with opened(spec) as site:
        found = site.find("BFB", _name(site, spec))
    if found is None:
        return Failed(scope=Scope.STEP, code="image_gone", message="The BFB was deleted while it was downloaded.")
    if found.phase == "Ready":
        versions = found.status.get("versions")
        said = {str(k): str(v)[:63] for k, v in versions.items()} if isinstance(versions, dict) else {}
        attributes = {"doca": said["doca"]} if said.get("doca") else {}
        return Ready(facts={"versions": said}, attributes=attributes)
    if found.phase == "Error":
        message = f"DPF cannot download {spec.resource.attributes['url']}: {why(found) or 'it gives no reason.'}"
        return Failed(scope=Scope.OFFER, code="image_error", message=message)
    since = memo.get("since") or clock.now().isoformat()
    waited = (clock.now() - dt.datetime.fromisoformat(since)).total_seconds()
    if waited > spec.config.download_timeout:
        message = f"BFB {found.name} is still {found.phase or 'new'} after {waited:.0f} s. {why(found)}".strip()
        return Failed(scope=Scope.OFFER, code="image_timeout", message=message)
    sentence = f"BFB {found.name}: {found.phase or 'new'}. {why(found)}".strip()
    seldom = min(SELDOM, spec.config.download_timeout - waited + 1.0)
    return Wait(after=_LOOK, watched=seldom, memo={"since": since}, sentence=sentence)


@kube_told
def look(spec: Spec, memo: Json) -> Answer:
    """Check that the BFB is there and ready."""
    with opened(spec) as site:
        found = site.find("BFB", _name(site, spec))
    if found is None:
        return Failed(scope=Scope.STEP, code="image_gone", message="The BFB does not exist any more.")
    if found.phase == "Ready":
        return Ready()
    return Failed(scope=Scope.STEP, code="image_not_ready", message=f"BFB {found.name} is {found.phase}. {why(found)}")


def _name(site: Site, spec: Spec) -> str:
    return site.name("BFB", spec.resource.key)
