"""The manifests of our objects, in the dialect of the server. Which fields exist decides, never a version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blueprints.answers import Json
from blueprints.dpf.cards import uses_devices
from blueprints.dpf.images import Image
from blueprints.kube import Dialect

HELD = {"hold": True}
NO_EFFECT = {"noEffect": True}


def flavor(dialect: Dialect, name: str, namespace: str, spec: Mapping[str, Any]) -> Json:
    """Return a DPUFlavor. Its spec cannot be changed afterwards."""
    return dialect.type("DPUFlavor").manifest(name, namespace, spec=dict(spec))


def holds(dialect: Dialect) -> bool:
    """Return whether DPF can wait for us before it touches a node (`nodeEffect.hold`)."""
    return dialect.has("DPUSet", "spec.dpuTemplate.spec.nodeEffect.hold")


def dpu_set(
    dialect: Dialect,
    name: str,
    namespace: str,
    card: Mapping[str, Any],
    *,
    image: Image,
    flavor: str,
    labels: Mapping[str, str],
) -> Json:
    """Return the DPUSet that selects exactly one card. `card` has the facts of `cards.Card`.

    The node is never drained by DPF: Drydock holds the host. Servers that cannot be told to wait are told to have no
    effect, so the host must be held before the set is created.
    """
    if not card.get("card_labels"):
        raise ValueError("a DPUSet without a selector selects all nodes")
    template: Json = {image.field: {"name": image.name}, "dpuFlavor": flavor}
    template["nodeEffect"] = dict(HELD if holds(dialect) else NO_EFFECT)
    if dialect.has("DPUSet", "spec.dpuTemplate.spec.automaticNodeReboot"):
        template["automaticNodeReboot"] = False
    if dialect.has("DPUSet", "spec.dpuTemplate.spec.cluster.nodeLabels"):
        template["cluster"] = {"nodeLabels": dict(labels)}
    spec: Json = {"dpuTemplate": {"spec": template}, "strategy": {"type": _by_hand(dialect)}}
    if uses_devices(dialect):
        spec["dpuDeviceSelector"] = {"matchLabels": dict(card["card_labels"])}
        if card.get("node_labels"):
            spec["dpuNodeSelector"] = {"matchLabels": dict(card["node_labels"])}
    else:
        spec["nodeSelector"] = {"matchLabels": dict(card["node_labels"])}
        spec["dpuSelector"] = dict(card["card_labels"])
    return dialect.type("DPUSet").manifest(name, namespace, spec=spec)


def _by_hand(dialect: Dialect) -> str:
    """Return the strategy under which DPF replaces a DPU only after we have deleted it."""
    known = dialect.enum("DPUSet", "spec.strategy.type")
    return "OnDelete" if "OnDelete" in known else "Recreate"
