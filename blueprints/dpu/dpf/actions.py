"""The steps of a DPU: leases, checks, hold of the host, our objects, and their removal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from blueprints.answers import Answer, Failed, Health, Json, Maintenance, Need, NeededLease, Ready, Scope, Wait
from blueprints.bluefield import hold_card
from blueprints.bluefield.cards import DPF
from blueprints.bluefield.dpus import of_card
from blueprints.dpf import SELDOM, Site, cards, clusters, kube_told, manifests, opened
from blueprints.dpf.access import KEY
from blueprints.dpf.bmc import BY_BMC
from blueprints.dpf.deployments import KIND as DEPLOYMENT
from blueprints.dpf.images import Image
from blueprints.dpf.phases import why
from blueprints.dpu.dpf.config import Config, flavor_problem
from blueprints.kube import NODE, SECRET, connect, has_labels
from blueprints.kube import read as read_credential
from blueprints.specs import Asked, LeaseView, Spec

CARD, CLUSTER, IMAGE = "card", "cluster", "image"
CARD_TYPE, CLUSTER_TYPE, IMAGE_TYPE = "dpu_card", "dpu_cluster", "dpu_image"
HOST = f"{CARD}.host"
"""The host that the leased card is in, as a relation of maintenance."""
IMAGE_NEED = "image_need"
"""The fact with the name of the lease of the image, after an update to another one."""
FLAVOR_HASH = "drydock-flavor"
"""The annotation of a DPUFlavor with a hash of its spec as the config has it."""
HANGS = 7200.0
"""Seconds after which a removal that has not ended is reported, and begun again.

DPF does not interrupt an installation, whose own limit is one hour."""
_LOOK = 3.0


def image_of(spec: Spec) -> LeaseView:
    """Return the lease of the image that the DPU has, or is being brought to. Raises KeyError."""
    return spec.parents[str(spec.resource.facts.get(IMAGE_NEED) or IMAGE)]


def object_of(image: LeaseView) -> Image:
    """Return the object of DPF for a leased image."""
    return Image.of(image.resource.attributes, image.resource.facts)


def card_of(config: Config, asked: Asked | None) -> NeededLease:
    """Return the lease of the card that a DPU for this request is installed on."""
    requirements = {**config.card, **of_card(asked.requirements if asked is not None else None), "via": DPF}
    if config.park in BY_BMC:
        requirements["parks"] = config.park
    return NeededLease(name=CARD, type=CARD_TYPE, requirements=requirements, exclusive=True)


def have_needs(spec: Spec, memo: Json) -> Answer:
    """Lease the image, and then a card and a slot of a cluster, all for life.

    The image comes first, because a card that waits for a download would be held in vain. The build for a group in one
    host has its card from the beginning.
    """
    config: Config = spec.config
    asked = spec.asked.requirements if spec.asked is not None else None
    cluster = {**config.cluster, **({"cluster": asked.cluster} if asked is not None and asked.cluster else {})}
    if IMAGE not in spec.parents:
        return Need(leases=(NeededLease(name=IMAGE, type=IMAGE_TYPE, requirements={"url": config.image}),))
    wanted = (
        card_for(image_of(spec), card_of(config, spec.asked)),
        NeededLease(name=CLUSTER, type=CLUSTER_TYPE, requirements=cluster),
    )
    missing = tuple(one for one in wanted if one.name not in spec.parents)
    return Need(leases=missing) if missing else Ready()


def card_for(image: LeaseView, card: NeededLease) -> NeededLease:
    """Return the lease of a card for which an image is made, if that is one generation and the lease names none."""
    models = list(image.resource.attributes.get("models") or [])
    generation = {"model": models[0]} if len(models) == 1 else {}
    return replace(card, requirements={**generation, **card.requirements})


def lock_card(spec: Spec, memo: Json) -> Answer:
    """Take the lock on the serial number of the leased card, so that nothing else installs the same card.

    Cards of DPF 24.10 have no serial number, and are known by their node and PCI address.
    """
    card = spec.parents[CARD].resource
    return hold_card(spec, str(card.attributes.get("serial") or card.identity or card.key), card) or Ready()


def check_compatible(spec: Spec, memo: Json) -> Answer:
    """Check that the image is made for the card, and that the flavor leaves the card memory to boot with."""
    card, image = spec.parents[CARD].resource.attributes, image_of(spec).resource.attributes
    model, memory = card.get("model"), card.get("memory_gib")
    if model and image.get("models") and model not in image["models"]:
        made_for = ", ".join(image["models"])
        message = f"The image {image['url']} is made for {made_for}, and card {card.get('serial', '')} is a {model}."
        return Failed(scope=Scope.BLUEPRINT, code="image_for_other_card", message=message)
    flavor = spec.config.flavor
    problem = "" if isinstance(flavor, str) else flavor_problem(flavor, memory, spec.config.mode)
    if problem:
        return Failed(scope=Scope.BLUEPRINT, code="flavor_unfit", message=problem)
    names = ("model", "memory_gib", "ports", "host", "serial")
    attributes = {name: card[name] for name in names if card.get(name) is not None}
    attributes["cluster"] = spec.parents[CLUSTER].resource.facts["name"]
    doca = image.get("doca")
    return Ready(attributes=attributes | ({"doca": doca} if doca else {}), facts={"card": card.get("serial", "")})


def hold_host(spec: Spec, memo: Json) -> Answer:
    """Let nobody else be on the host of the card, because its network goes away while the card is installed.

    The other cards of the host that are installed share this, and the reboot that follows.
    """
    return vacate_host(spec, f"A DPU is installed on card {spec.parents[CARD].resource.name}.")


def vacate_host(spec: Spec, sentence: str) -> Answer:
    """Wait until nobody else is on the host of the card, and tell those who are why."""
    if not spec.parents[CARD].resource.part_of:
        return Ready(log="The card is part of no host that Drydock knows, so nobody else is told.")
    wanted = Maintenance(relation=HOST, action="vacate", holders="wait", sentence=sentence)
    return Ready() if wanted.name in spec.granted else Need(maintenance=wanted)


@kube_told
def create_flavor(spec: Spec, memo: Json) -> Answer:
    """Create the DPUFlavor of the DPU, or read the existing one."""
    config: Config = spec.config
    with opened(spec) as site:
        deployed = {"deployment": site.name(DEPLOYMENT, spec.resource.key)} if config.deployment is not None else {}
        if config.flavor_name:
            if (known := site.find("DPUFlavor", config.flavor_name)) is not None:
                memory = spec.parents[CARD].resource.attributes.get("memory_gib")
                if problem := flavor_problem(known.spec, memory, config.mode):
                    return Failed(scope=Scope.BLUEPRINT, code="flavor_unfit", message=problem)
                return Ready(facts={"flavor_object": config.flavor_name, **deployed})
            message = f"DPUFlavor {config.flavor_name} does not exist in namespace {site.namespace}."
            return Failed(scope=Scope.BLUEPRINT, code="flavor_gone", message=message)
        made = site.ensure(own_flavor(site, spec, spec.resource.key))
    return Ready(facts={"flavor_object": made.name, **deployed})


def own_flavor(site: Site, spec: Spec, key: str) -> Json:
    """Return the DPUFlavor that the config describes, under a key."""
    config: Config = spec.config
    assert not isinstance(config.flavor, str)
    made = manifests.flavor(site.dialect, site.name("DPUFlavor", key), site.namespace, config.flavor)
    made["metadata"] |= {"labels": {KEY: spec.resource.key}, "annotations": {FLAVOR_HASH: flavor_hash(config.flavor)}}
    return made


def flavor_hash(flavor: Mapping[str, Any]) -> str:
    """Return a hash of the spec of a flavor."""
    return hashlib.sha256(json.dumps(flavor, sort_keys=True, default=dict).encode()).hexdigest()[:16]


@kube_told
def create_set(spec: Spec, memo: Json) -> Answer:
    """Create the DPUSet that selects exactly the leased card, and lets DPF begin."""
    with opened(spec) as site:
        name = site.name("DPUSet", spec.resource.key)
        return set_of_card(site, spec, name, object_of(image_of(spec)))


def set_of_card(site: Site, spec: Spec, name: str, image: Image) -> Answer:
    """Create a DPUSet that installs an image on exactly the leased card. Raises KubeError."""
    if (refused := unselectable(site, spec)) is not None:
        return refused
    made = site.ensure(manifest_of_set(site, spec, name, image))
    return Ready(facts={"set": made.name})


def unselectable(site: Site, spec: Spec) -> Failed | None:
    """Return why nothing may be written that installs the leased card; None if it may. Raises KubeError."""
    card = spec.parents[CARD].resource.facts
    # Again, after the discovery: labels may have changed, and a set that selects other cards installs them anew.
    found = cards.read_selected(site.cluster, site.dialect, site.namespace, card)
    if [one.name for one in found] != [card["device"]]:
        names = ", ".join(one.name for one in found[:10]) or "no card"
        message = f"A DPUSet for card {card['device']} would select {names}. Nothing was written."
        return Failed(scope=Scope.OPERATOR, code="card_not_selected", message=message)
    dpus = site.cluster.list(site.dialect.type("DPU"), site.namespace)
    others = [one for one in cards.dpus_on(card, dpus) if not has_labels(site.proof)(one.labels)]
    if others:
        message = f"DPU {others[0].name} of somebody else is on card {card['device']}. Nothing was written."
        return Failed(scope=Scope.OFFER, code="card_has_dpu", message=message, quarantines_carrier=True)
    return None


def manifest_of_set(site: Site, spec: Spec, name: str, image: Image) -> Json:
    """Return the DPUSet that installs an image on the leased card."""
    labels = {**spec.config.node_labels, **site.proof}
    return manifests.dpu_set(
        site.dialect, name, site.namespace, spec.parents[CARD].resource.facts, image=image,
        flavor=spec.resource.facts["flavor_object"], labels=labels,
    )  # fmt: skip


def park_key(key: str) -> str:
    """Return the key of the DPUSet by which the card of a DPU is parked."""
    return f"{key}-park"


@kube_told
def delete_sets(spec: Spec, memo: Json) -> Answer:
    """Delete our DPUSets, that of the DPU and that which parks its card, and wait until they do not exist."""
    with opened(spec) as site:
        keys = (spec.resource.key, park_key(spec.resource.key))
        deleted = (site.delete("DPUSet", site.name("DPUSet", key)) for key in keys)
        left = [one for one in deleted if one is not None]
        if not left:
            return Ready()
        hangs = _removal(site)
    sentence = f"DPUSet {left[0].name} is being deleted.{left[0].finalizer_sentence} {hangs}".strip()
    return Wait(after=_LOOK, watched=SELDOM, memo=memo, sentence=sentence)


@kube_told
def delete_flavors(spec: Spec, memo: Json) -> Answer:
    """Delete our DPUFlavors of the DPU, of which an update may have left two, and wait until none exists."""
    with opened(spec) as site:
        type_ = site.dialect.type("DPUFlavor")
        deleted = [site.cluster.delete(type_, one.name, one.namespace, uid=one.uid) for one in site.ours("DPUFlavor")]
    left = [one for one in deleted if one is not None]
    if not left:
        return Ready()
    sentence = f"DPUFlavor {left[0].name} is being deleted.{left[0].finalizer_sentence}"
    return Wait(after=_LOOK, watched=SELDOM, memo=memo, sentence=sentence)


@kube_told
def wait_for_node(spec: Spec, memo: Json) -> Answer:
    """Wait until the node of the DPU is ready in the DPU cluster."""
    with opened(spec) as site:
        found = site.ours("DPU")
        if len(found) != 1:
            return Failed(
                scope=Scope.STEP, code="dpu_gone", message=f"DPF has {len(found)} DPUs for our DPUSet, not one."
            )
        kubeconfig, problem = kubeconfig_of(site, spec.parents[CLUSTER])
    if problem:
        return Failed(scope=Scope.OPERATOR, code="cluster_credential", message=problem)
    with connect(read_credential({"kubeconfig": kubeconfig}), deadline=min(10.0, spec.deadline * 0.4)) as cluster:
        node = cluster.find(NODE, found[0].name)
    if node is not None and (said := node.condition("Ready")) is not None and said.true:
        facts = {"dpu": found[0].name, "node": node.name}
        return Ready(facts=facts, health=Health(state="ok"))
    sentence = f"Node {found[0].name} is not ready in the DPU cluster yet." + (f" {why(node)}" if node else "")
    return Wait(after=_LOOK, memo=memo, percent=99, sentence=sentence)


def kubeconfig_of(site: Site, cluster: LeaseView) -> tuple[str, str]:
    """Return the kubeconfig of a DPU cluster, or the reason why it cannot be used. Raises KubeError."""
    facts = cluster.resource.facts
    name = facts.get("kubeconfig") or ""
    if not name:
        current = site.find("DPUCluster", facts["name"])
        name = str(current.spec.get("kubeconfig") or "") if current is not None else ""
    secret = site.cluster.find(SECRET, name, facts["namespace"]) if name else None
    if secret is None:
        return "", f"DPUCluster {facts['name']} has no secret with its kubeconfig{f' ({name})' if name else ''}."
    return clusters.kubeconfig_in(secret, name)


@kube_told
def wait_until_removed(spec: Spec, memo: Json) -> Answer:
    """Wait until DPF has removed the DPU. It hangs while the card is being installed, by design of DPF."""
    with opened(spec) as site:
        hangs = _removal(site)
    return Wait(after=_LOOK, watched=SELDOM, memo=memo, sentence=hangs) if hangs else Ready()


def _removal(site: Site) -> str:
    """Return what DPF still has of our DPUs, with phase and finalizers; empty if it has removed them."""
    left = site.ours("DPU")
    if not left:
        return ""
    first = left[0]
    kept = f", kept by {', '.join(first.finalizers)}" if first.finalizers else ""
    status = first.status.get("phase") or "new"
    return f"DPF removes DPU {first.name} (phase {status}{kept}). {why(first)}".strip()
