"""The steps of a registered card: its DPUDevice and DPUNode are created, and deleted when it is removed.

A DPUNode may have several registered cards. It has the proof of one of them; when that card is removed, another card
of the same installation takes over, so that the DPUNode always belongs to a resource. Objects of others are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.bluefield import hold_card
from blueprints.bluefield.cards import DPF
from blueprints.dpf import Site, bmc, cards, kube_told, opened
from blueprints.dpf.access import INSTALLATION
from blueprints.dpf.cards import Card
from blueprints.dpu.dpf_card.config import Config, Registration
from blueprints.identities import real
from blueprints.kube import Object, dropped, has_labels, labelled
from blueprints.specs import Owned, Spec

DEVICE, NODE = "DPUDevice", "DPUNode"
OF_INSTALLATION = "drydock-card-installation"
"""The label of all DPUDevices that an installation has created."""
KEY = "drydock-key"
"""The label with the key of the resource, on objects whose name an operator has chosen."""
ENABLED = f"{cards.FEATURE}dpu-enabled"
_TAGS, _OF_CARD = "drydock-", "drydock-card-"
"""Beginnings of the names of our labels. DPF copies the labels of a DPUDevice to its DPU, over those of the DPUSet, so
the proof of a DPUDevice has names of its own."""
FIXED = {"serialNumber": "serial", "bmcPort": "bmc_port"}
"""Fields of a DPUDevice that cannot be changed (rules `self == oldSelf` of its CRD), and those of the registration."""
_DEFAULTS = {"bmcPort": 443}
_FORMER = "former_node"
"""The fact with the DPUNode that a card was in before its registration was corrected."""
_LOOK = 3.0
_DISCOVERED = "discovered"


def card_site(site: Site) -> Site:
    """Return the site for DPUDevices, whose proof has names of its own."""
    tags = {f"{_OF_CARD}{key.removeprefix(_TAGS)}": value for key, value in site.tags.items()}
    return replace(site, tags=tags)


def given_of(spec: Spec) -> Registration:
    """Return the registration of a card."""
    return Registration.model_validate(spec.resource.registration)


def lock(spec: Spec, memo: Json) -> Answer:
    """Take the lock on the serial number of the card, because DPF resets the BMC of a card that it gets to know."""
    if spec.resource.origin == _DISCOVERED:
        return Ready(ends_phase=True)
    return hold_card(spec, given_of(spec).serial) or Ready()


@kube_told
def create_device(spec: Spec, memo: Json) -> Answer:
    """Create the DPUDevice, or adopt it after a lost answer. Nothing is written if the card is there already."""
    given = given_of(spec)
    with opened(spec) as site:
        if not cards.uses_devices(site.dialect):
            return _by_labels(given)
        name = site.name(DEVICE, spec.resource.key)
        for one in site.cluster.list(site.dialect.type(DEVICE), site.namespace):
            if str(one.spec.get("serialNumber") or "").strip() == given.serial and one.name != name:
                message = (
                    f"DPUDevice {one.name} has the serial number {given.serial} already. Remove this registration: the "
                    "card is discovered."
                )
                return Failed(scope=Scope.OPERATOR, code="card_exists", message=message)
        manifest = device(site, name, given)
        if wrong := site.dialect.missing(manifest):
            said = " ".join(wrong.sentences())[:1500]
            return Failed(scope=Scope.OPERATOR, code="card_fields", message=f"Nothing was written. {said}")
        if (failed := _corrected(card_site(site), manifest)) is not None:
            return failed
    return Ready(facts={"device": name, "node": given.node}, log=f"DPUDevice {name} is there.")


def _corrected(site: Site, manifest: Json) -> Failed | None:
    """Create a DPUDevice or, if it is there, bring it to a registration that was corrected. Raises KubeError.

    By server-side apply, never forced: a field that another manager has changed is a conflict that names it.
    """
    found = site.ensure(manifest)
    if _is_as(found, manifest):
        return None
    for field, given in FIXED.items():
        before, after = found.spec.get(field, _DEFAULTS.get(field)), manifest["spec"].get(field, _DEFAULTS.get(field))
        if before != after:
            message = (
                f"DPUDevice {found.name} has spec.{field} {before}, and DPF lets nobody change it to {after}. Nothing "
                f"was written. Correct the field {given} of the registration, or remove it and register the card again."
            )
            return Failed(scope=Scope.OPERATOR, code="field_fixed", message=message)
    site.cluster.apply(site.dialect.type(DEVICE), labelled(manifest, site.proof), current=found)
    return None


def _is_as(found: Object, manifest: Json) -> bool:
    """Return whether a DPUDevice has all that a registration says, and no BMC that it does not have."""
    extra = "bmcIp" in found.spec and "bmcIp" not in manifest["spec"]
    return not extra and not dropped({"metadata": manifest["metadata"], "spec": manifest["spec"]}, found.body)


def _by_labels(given: Registration) -> Failed:
    label = f"{cards.FEATURE}dpu-0-pci-address={given.pci or '0000-2b-00'}"
    message = (
        "This version of DPF has no DPUDevices: its cards are labels of Nodes, and are discovered. Remove this "
        f"registration, and set the labels {ENABLED}=true and {label} on Node {given.node}; for a second card, write "
        "dpu-1 in place of dpu-0."
    )
    return Failed(scope=Scope.OPERATOR, code="card_by_labels", message=message)


def device(site: Site, name: str, given: Registration) -> Json:
    """Return the DPUDevice of a card, with the labels by which a DPUSet selects it."""
    spec: Json = {"serialNumber": given.serial, "numberOfPFs": 1}
    if given.bmc is not None:
        spec |= {"bmcIp": str(given.bmc), "bmcPort": given.bmc_port}
    made = site.dialect.type(DEVICE).manifest(name, site.namespace, spec=spec)
    labels = {cards.DEVICE_NODE: given.node, **({cards.DEVICE_PCI: given.pci} if given.pci else {})}
    made["metadata"]["labels"] = labels
    return made


def node(site: Site, name: str, devices: Sequence[str], labels: Mapping[str, str], method: Json | None = None) -> Json:
    """Return a DPUNode with these cards. Drydock reboots the host, and tells DPF when it has."""
    spec = {"dpus": [{"name": one} for one in devices], "nodeRebootMethod": method or {"external": {}}}
    made = site.dialect.type(NODE).manifest(name, site.namespace, spec=spec)
    made["metadata"]["labels"] = dict(labels)
    return made


@kube_told
def join_node(spec: Spec, memo: Json) -> Answer:
    """Create the DPUNode with the card, or add the card to the one that Drydock has created for another card."""
    given = given_of(spec)
    with opened(spec) as site:
        name = site.name(DEVICE, spec.resource.key)
        found = site.find(NODE, given.node)
        if found is None:
            site.ensure(node(site, given.node, [name], {ENABLED: "true", KEY: spec.resource.key}))
            return Ready(log=f"DPUNode {given.node} is there.")
        listed = _listed(found)
        if found.deleting:
            sentence = f"DPUNode {found.name} is being deleted. It is created again afterwards."
            return Wait(after=_LOOK, memo=memo, sentence=sentence)
        if name in listed:
            return Ready()
        if not _is_of_installation(site, found):
            message = (
                f"DPUNode {found.name} was created by somebody else, so Drydock does not change it. Add "
                f"{{name: {name}}} to its spec.dpus."
            )
            return Failed(scope=Scope.OPERATOR, code="node_of_others", message=message)
        # One without cards has the proof of a card that has left it.
        own = {ENABLED: "true", **site.proof, KEY: spec.resource.key}
        _rewrite(site, found, [*listed, name], _ours(found.labels) if listed else own)
    return Ready(log=f"DPUNode {given.node} has the card.")


@kube_told
def wait(spec: Spec, memo: Json) -> Answer:
    """Wait until DPF has found the card and is ready to install it."""
    given = given_of(spec)
    with opened(spec) as site:
        found = site.find(DEVICE, site.name(DEVICE, spec.resource.key))
        within = site.find(NODE, given.node)
    if found is None or found.deleting:
        message = "The DPUDevice was deleted before it was ready."
        return Failed(scope=Scope.STEP, code="card_gone", message=message)
    (card,) = cards.of_devices([found], [within] if within is not None else [])
    if card.problem:
        return Wait(after=_LOOK, memo=memo, sentence=card.problem[:500])
    if not card.card_labels or cards.DEVICE_PCI not in card.card_labels:
        sentence = f"DPF has not told the PCI address of the card. Without it, label DPUDevice {card.name}."
        return Wait(after=_LOOK, memo=memo, sentence=sentence)
    config: Config = spec.config
    return Ready(
        facts=card.facts(), attributes=attributes(config, card), identities=real({"serial": card.serial}),
        host=config.hosts.get(card.node, card.node), log="The card is ready.",
    )  # fmt: skip


def attributes(config: Config, card: Card) -> Json:
    """Return the attributes of a card that DPF describes."""
    memory = config.memory_gib.get(card.opn) or config.memory_gib.get(card.model) or card.memory_gib
    found: Json = {
        "model": card.model or None, "memory_gib": memory, "ports": config.ports,
        "host": config.hosts.get(card.node, card.node) or None, "serial": card.serial or None,
        "part_number": card.opn or None, "via": DPF, "parks": bmc.ways(config, card),
    }  # fmt: skip
    return {key: value for key, value in found.items() if value is not None}


@kube_told
def leave_node(spec: Spec, memo: Json) -> Answer:
    """Take the card out of its DPUNode, and delete the DPUNode with its last card. That of somebody else is left."""
    name = _node_of(spec)
    if spec.resource.origin == _DISCOVERED or not name:
        return Ready()
    with opened(spec) as site:
        if not cards.uses_devices(site.dialect) or (found := site.find(NODE, name)) is None:
            return Ready()
        if not _is_of_installation(site, found):
            return Ready(log=f"DPUNode {name} was created by somebody else, and is left.")
        ours = has_labels(site.proof)(found.labels)
        device_name = site.name(DEVICE, spec.resource.key)
        others = [one for one in _listed(found) if one != device_name]
        if others and not found.deleting:
            if ours or device_name in _listed(found):
                _rewrite(site, found, others, _heirs(site, others) if ours else _ours(found.labels))
            return Ready()
        left = _delete(site, found) if ours else None
    if left is None:
        return Ready()
    return Wait(after=_LOOK, memo=memo, sentence=f"DPUNode {left.name} is being deleted.{left.finalizer_sentence}")


def _former_of(spec: Spec) -> str:
    """Return the name of the DPUNode that the card must leave, or an empty string."""
    former = str(spec.resource.facts.get("node") or "")
    return former if former != given_of(spec).node else ""


@kube_told
def leave_former(spec: Spec, memo: Json) -> Answer:
    """Take the card out of the DPUNode that its registration does not name any more.

    The DPUNode is deleted later, because DPF would delete the DPUDevice with it.
    """
    if not (name := _former_of(spec)):
        return Ready()
    with opened(spec) as site:
        found, device_name = site.find(NODE, name), site.name(DEVICE, spec.resource.key)
        if found is None or found.deleting or device_name not in _listed(found) or not _is_of_installation(site, found):
            return Ready(facts={_FORMER: name})
        others = [one for one in _listed(found) if one != device_name]
        heirs = _heirs(site, others) if others and has_labels(site.proof)(found.labels) else _ours(found.labels)
        _rewrite(site, found, others, heirs)
    return Ready(facts={_FORMER: name}, log=f"DPUNode {name} does not have the card any more.")


@kube_told
def delete_former(spec: Spec, memo: Json) -> Answer:
    """Delete the DPUNode that the card was in, if it is ours and has no other card."""
    name = str(spec.resource.facts.get(_FORMER) or "")
    if not name or (spec.resource.registration and name == given_of(spec).node):
        return Ready()
    with opened(spec) as site:
        found = site.find(NODE, name)
        empty = found is not None and not _listed(found) and has_labels(site.proof)(found.labels)
        left = _delete(site, found) if found is not None and empty else None
    return (
        Ready(facts={_FORMER: ""})
        if left is None
        else Wait(after=_LOOK, memo=memo, sentence=f"DPUNode {name} is being deleted.")
    )


@kube_told
def delete_device(spec: Spec, memo: Json) -> Answer:
    """Delete the DPUDevice until it does not exist, if its labels prove that it is ours."""
    if spec.resource.origin == _DISCOVERED:
        return Ready()
    with opened(spec) as site:
        if not cards.uses_devices(site.dialect):
            return Ready()
        left = card_site(site).delete(DEVICE, site.name(DEVICE, spec.resource.key))
    if left is None:
        return Ready()
    return Wait(after=_LOOK, memo=memo, sentence=f"DPUDevice {left.name} is being deleted.{left.finalizer_sentence}")


def owned(devices: Sequence[Object], nodes: Sequence[Object]) -> list[Owned]:
    """Return the registered cards that these objects of ours belong to. The key is also the name of a DPUDevice."""
    found: dict[str, Owned] = {}
    for one in nodes:
        if not one.deleting and (key := one.labels.get(KEY)):
            found[key] = Owned(key=key, tags=_proof(one), facts={"node": one.name}, named=False)
    for one in devices:
        if not one.deleting:
            facts = {"node": one.labels.get(cards.DEVICE_NODE, "")}
            found[one.name] = Owned(key=one.name, tags=_proof_of_card(one), facts=facts)
    return [one for _, one in sorted(found.items())]


def _proof_of_card(found: Object) -> dict[str, str]:
    mine = {key: value for key, value in found.labels.items() if key.startswith(_OF_CARD)}
    return {f"{_TAGS}{key.removeprefix(_OF_CARD)}": value for key, value in mine.items()}


def _proof(found: Object) -> dict[str, str]:
    return {key: value for key, value in found.labels.items() if key.startswith(_TAGS) and key != KEY}


def _node_of(spec: Spec) -> str:
    """Return the name of the DPUNode of a card, also of one whose registration is gone."""
    if spec.resource.registration:
        return given_of(spec).node
    return str(spec.resource.facts.get("node") or "")


def _listed(found: Object) -> list[str]:
    return [str(one.get("name")) for one in found.spec.get("dpus") or () if isinstance(one, dict)]


def _is_of_installation(site: Site, found: Object) -> bool:
    return found.labels.get(INSTALLATION) == site.proof.get(INSTALLATION)


def _ours(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key.startswith(_TAGS) or key == ENABLED}


def _heirs(site: Site, devices: Sequence[str]) -> dict[str, str]:
    """Return the labels of a DPUNode that is taken over by the first of these cards that Drydock has registered.

    If all of them are of somebody else, it becomes theirs.
    """
    for name in devices:
        found = site.find(DEVICE, name)
        proof = _proof_of_card(found) if found is not None and not found.deleting else {}
        if proof.get(INSTALLATION) == site.proof[INSTALLATION]:
            return {ENABLED: "true", **proof, KEY: name}
    return {ENABLED: "true"}


def _delete(site: Site, found: Object) -> Object | None:
    """Delete a DPUNode in the version that was read, so that no card has joined it meanwhile."""
    version = "" if found.deleting else found.resource_version
    return site.cluster.delete(
        site.dialect.type(NODE), found.name, found.namespace, uid=found.uid, resource_version=version
    )


def _rewrite(site: Site, found: Object, devices: Sequence[str], labels: Mapping[str, str]) -> None:
    """Change the cards and the proof of a DPUNode of ours, in the version that was read, so that nothing is lost."""
    made = node(site, found.name, devices, labels, found.spec.get("nodeRebootMethod"))
    made["metadata"]["resourceVersion"] = found.resource_version
    site.cluster.apply(site.dialect.type(NODE), made, current=found)
