"""The steps of an image: created, downloaded by DPF, and read."""

from __future__ import annotations

import datetime as dt

from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.dpf import SELDOM, delete_ours, images, kube_told, opened
from blueprints.dpf.phases import why
from blueprints.specs import Spec
from drydock.core import clock

_LOOK = 3.0


@kube_told
def create(spec: Spec, memo: Json) -> Answer:
    """Create the object of the image, or adopt it after a lost answer."""
    with opened(spec) as site:
        name = site.name(_kind(spec), spec.resource.key)
        found = site.ensure(images.manifest(site.dialect, name, site.namespace, spec.resource.attributes))
    return Ready(facts={"name": found.name, "namespace": found.namespace})


@kube_told
def download(spec: Spec, memo: Json) -> Answer:
    """Wait until DPF has downloaded the image."""
    with opened(spec) as site:
        found = site.find(_kind(spec), site.name(_kind(spec), spec.resource.key))
    if found is None:
        return Failed(
            scope=Scope.STEP, code="image_gone", message=f"The {_kind(spec)} was deleted while it was downloaded."
        )
    if found.phase == "Ready":
        versions = found.status.get("versions")
        given = versions.items() if isinstance(versions, dict) else ()
        said = {str(key): one[:63] for key, one in given if isinstance(one, str)}
        attributes = {"doca": said["doca"]} if said.get("doca") else {}
        return Ready(facts={"versions": said}, attributes=attributes)
    if found.phase == "Error":
        message = f"DPF cannot download {spec.resource.attributes['url']}: {why(found) or 'it gives no reason.'}"
        return Failed(scope=Scope.OFFER, code="image_error", message=message)
    since = memo.get("since") or clock.now().isoformat()
    waited = (clock.now() - dt.datetime.fromisoformat(since)).total_seconds()
    if waited > spec.config.download_timeout:
        message = (
            f"{_kind(spec)} {found.name} is still {found.phase or 'new'} after {waited:.0f} s. {why(found)}".strip()
        )
        return Failed(scope=Scope.OFFER, code="image_timeout", message=message)
    sentence = f"{_kind(spec)} {found.name}: {found.phase or 'new'}. {why(found)}".strip()
    seldom = min(SELDOM, spec.config.download_timeout - waited + 1.0)
    return Wait(after=_LOOK, watched=seldom, memo={"since": since}, sentence=sentence)


@kube_told
def look(spec: Spec, memo: Json) -> Answer:
    """Check that the object of the image is there and ready."""
    with opened(spec) as site:
        found = site.find(_kind(spec), site.name(_kind(spec), spec.resource.key))
    if found is None:
        return Failed(scope=Scope.STEP, code="image_gone", message=f"The {_kind(spec)} does not exist any more.")
    if found.phase == "Ready":
        return Ready()
    return Failed(
        scope=Scope.STEP, code="image_not_ready", message=f"{_kind(spec)} {found.name} is {found.phase}. {why(found)}"
    )


def delete(spec: Spec, memo: Json) -> Answer:
    """Delete the object of the image until it does not exist any more."""
    return delete_ours(_kind(spec))(spec, memo)


def _kind(spec: Spec) -> str:
    return images.kind_of(spec.resource.attributes["url"])
