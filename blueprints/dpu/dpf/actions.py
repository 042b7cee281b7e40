"""The steps of a DPU: leases, checks, hold of the host, our objects, and their removal."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from blueprints.answers import Answer, Failed, Health, Json, Maintenance, Need, NeededLease, Ready, Scope, Wait
from blueprints.bluefield import hold_card
from blueprints.bluefield.cards import DPF
from blueprints.dpf import Site, cards, dialect_of, kube_told, manifests, opened
from blueprints.dpf.phases import why
from blueprints.dpf.requirements import of_card
from blueprints.dpu.dpf import leasing
from blueprints.dpu.dpf.config import Config, hugepages_gib
from blueprints.kube import NODE, SECRET, KubeError, Object, at, connect
from blueprints.kube import read as read_credential
from blueprints.specs import Asked, BlueprintView, LeaseView, Problem, Spec

CARD, CLUSTER, IMAGE = "card", "cluster", "image"
CARD_TYPE, CLUSTER_TYPE, IMAGE_TYPE = "dpu_card", "dpu_cluster", "dpu_image"
HOST = f"{CARD}.host"
"""The host that the leased card is in, as a relation of maintenance."""
_LOOK = 3.0
_KUBECONFIGS = ("admin.conf", "super-admin.conf", "kubeconfig")
"""Keys under which the secret of a DPU cluster has its kubeconfig; `admin.conf` in doca-platform v24.10."""


def card_of(config: Config, asked: Asked | None) -> NeededLease:
    """Return the lease of the card that a DPU for this request is installed on."""
    requirements = {**config.card, **of_card(asked.requirements if asked is not None else None), "via": DPF}
    return NeededLease(name=CARD, type=CARD_TYPE, requirements=requirements, exclusive=True)


def have_needs(spec: Spec, memo: Json) -> Answer:
    """Lease the image, and then a card and a slot of a cluster, all for life.

    The image comes first, because a card that waits for a download would be held in vain. The build for a group in one
    host has its card from the beginning.
    """
    config: Config = spec.config
    asked = spec.asked.requirements if spec.asked is not None else None
    cluster = {**config.cluster, **({"cluster": asked.cluster} if asked is not None and asked.cluster else {})}
    wanted = (
        (NeededLease(name=IMAGE, type=IMAGE_TYPE, requirements={"url": config.image}),),
        (
            card_of(config, spec.asked),
            NeededLease(name=CLUSTER, type=CLUSTER_TYPE, requirements=cluster),
        ),
    )
    for together in wanted:
        if missing := tuple(one for one in together if one.name not in spec.parents):
            return Need(leases=missing)
    return Ready()


def lock_card(spec: Spec, memo: Json) -> Answer:
    """Take the lock on the serial number of the leased card, so that nothing else installs the same card.

    Cards of DPF 24.10 have no serial number, and are known by their node and PCI address.
    """
    card = spec.parents[CARD].resource
    return hold_card(spec, str(card.attributes.get("serial") or card.identity or card.key), card) or Ready()


def check_compatible(spec: Spec, memo: Json) -> Answer:
    """Check that the image is made for the card, and that the flavor leaves the card memory to boot with."""
    card, image = spec.parents[CARD].resource.attributes, spec.parents[IMAGE].resource.attributes
    model, memory = card.get("model"), card.get("memory_gib")
    if model and image.get("models") and model not in image["models"]:
        made_for = ", ".join(image["models"])
        message = f"The image {image['url']} is made for {made_for}, and card {card.get('serial', '')} is a {model}."
        return Failed(scope=Scope.BLUEPRINT, code="image_for_other_card", message=message)
    flavor = spec.config.flavor
    pages = 0.0 if isinstance(flavor, str) else hugepages_gib(flavor)
    if memory and pages >= memory:
        message = (
            f"The flavor sets aside {pages:g} GiB as huge pages, and the card has {memory} GiB. It would not boot."
        )
        return Failed(scope=Scope.BLUEPRINT, code="flavor_above_memory", message=message)
    names = ("model", "memory_gib", "ports", "host", "serial")
    attributes = {name: card[name] for name in names if card.get(name) is not None}
    attributes["cluster"] = spec.parents[CLUSTER].resource.facts["name"]
    doca = image.get("doca")
    return Ready(attributes=attributes | ({"doca": doca} if doca else {}), facts={"card": card.get("serial", "")})


def hold_host(spec: Spec, memo: Json) -> Answer:
    """Let nobody else be on the host of the card, because its network goes away while the card is installed.

    The other cards of the host that are installed share this, and the reboot that follows.
    """
    if not spec.parents[CARD].resource.part_of:
        return Ready(log="The card is part of no host that Drydock knows, so nobody else is told.")
    sentence = f"A DPU is installed on card {spec.parents[CARD].resource.name}."
    wanted = Maintenance(relation=HOST, action="vacate", holders="wait", sentence=sentence)
    return Ready() if wanted.name in spec.granted else Need(maintenance=wanted)


@kube_told
def create_flavor(spec: Spec, memo: Json) -> Answer:
    """Create the DPUFlavor of the DPU, or read the existing one."""
    config: Config = spec.config
    with opened(spec) as site:
        if config.flavor_name:
            if site.find("DPUFlavor", config.flavor_name) is not None:
                return Ready(facts={"flavor_object": config.flavor_name})
            message = f"DPUFlavor {config.flavor_name} does not exist in namespace {site.namespace}."
            return Failed(scope=Scope.BLUEPRINT, code="flavor_gone", message=message)
        name = site.name("DPUFlavor", spec.resource.key)
        assert not isinstance(config.flavor, str)
        made = site.ensure(manifests.flavor(site.dialect, name, site.namespace, config.flavor))
    return Ready(facts={"flavor_object": made.name})


@kube_told
def create_set(spec: Spec, memo: Json) -> Answer:
    """Create the DPUSet that selects exactly the leased card, and lets DPF begin."""
    card = spec.parents[CARD].resource.facts
    with opened(spec) as site:
        # Again, after the discovery: labels may have changed, and a set that selects other cards installs them anew.
        found = cards.selected(card, cards.all_cards(site.cluster, site.dialect, site.namespace))
        if [one.name for one in found] != [card["device"]]:
            names = ", ".join(one.name for one in found[:10]) or "no card"
            message = f"A DPUSet for card {card['device']} would select {names}. Nothing was written."
            return Failed(scope=Scope.OPERATOR, code="card_not_selected", message=message)
        name = site.name("DPUSet", spec.resource.key)
        labels = {**spec.config.node_labels, **site.proof}
        manifest = manifests.dpu_set(
            site.dialect, name, site.namespace, card,
            image=spec.parents[IMAGE].resource.facts["name"], flavor=spec.resource.facts["flavor_object"],
            labels=labels,
        )  # fmt: skip
        made = site.ensure(manifest)
    return Ready(facts={"set": made.name})


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
    found = at(secret.body, "data")
    data = found if isinstance(found, dict) else {}
    given = next((data[key] for key in _KUBECONFIGS if isinstance(data.get(key), str)), "")
    if not given:
        return "", f"Secret {name} has no kubeconfig. It needs one of the keys {', '.join(_KUBECONFIGS)}."
    try:
        return base64.b64decode(given, validate=True).decode(), ""
    except (binascii.Error, UnicodeDecodeError):
        return "", f"Secret {name} has no kubeconfig that can be read."


@kube_told
def look(spec: Spec, memo: Json) -> Answer:
    """Read whether DPF reports the DPU as ready, and remove services and credentials that are over.

    A DPU that is not ready is degraded: its lease stays, and gets no others.
    """
    with opened(spec) as site:
        found = site.ours("DPU")
        removed = leasing.remove_strays(site, spec)
    if not found:
        return Failed(scope=Scope.STEP, code="dpu_gone", message="DPF has no DPU for our DPUSet any more.")
    told = f"Services and credentials that are over were removed: {', '.join(removed[:10])}." if removed else ""
    return Ready(health=_health(found), log=told)


def _health(found: Sequence[Object]) -> Health:
    wrong = next((one for one in found if one.phase != "Ready"), None)
    if wrong is not None:
        return Health(state="degraded", reason=f"DPU {wrong.name} is {wrong.phase or 'new'}. {why(wrong)}".strip())
    said = next((c for one in found for c in one.conditions if c.type == "Ready" and c.status == "False"), None)
    if said is not None:
        return Health(state="degraded", reason=f"{said.reason}: {said.message}".strip(": "))
    return Health(state="ok")


@kube_told
def wait_until_removed(spec: Spec, memo: Json) -> Answer:
    """Wait until DPF has removed the DPU. It hangs while the card is being installed, by design of DPF."""
    with opened(spec) as site:
        left = site.ours("DPU")
    if not left:
        return Ready()
    first = left[0]
    kept = f", kept by {', '.join(first.finalizers)}" if first.finalizers else ""
    status = first.status.get("phase") or "new"
    return Wait(
        after=_LOOK, memo=memo, sentence=f"DPF removes DPU {first.name} (phase {status}{kept}). {why(first)}".strip()
    )


def flavor_problems(blueprint: BlueprintView) -> list[Problem]:
    """Return what the server cannot express of the flavor, by the path of the field. Writes nothing."""
    config: Config = blueprint.config
    try:
        with connect(blueprint.credentials[config.credential]) as cluster:
            dialect = dialect_of(cluster)
            if config.flavor_name:
                known = cluster.find(dialect.type("DPUFlavor"), config.flavor_name, config.namespace)
                missing = f"DPUFlavor {config.flavor_name} does not exist in namespace {config.namespace}."
                return [] if known is not None else [Problem(message=missing, field="flavor")]
    except KubeError as error:
        return [Problem(message=str(error), field="credential")]
    assert not isinstance(config.flavor, str)
    findings = dialect.missing(manifests.flavor(dialect, "flavor", config.namespace, config.flavor))
    return [
        Problem(
            message=f"The API server at {cluster.where} does not accept the field {path} of a DPUFlavor.",
            field="flavor",
        )
        for path in (*findings.unknown, *findings.missing, *findings.invalid)
    ]
