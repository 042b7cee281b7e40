"""The kind `dpf_card`: BlueField cards that DPF knows, each part of its host.

Cards are one pool for all blueprints that build DPUs: each DPU leases its card exclusively, for life.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from blueprints.amounts import Amounts
from blueprints.answers import Json, Ready
from blueprints.bluefield import MATCHES, CardAttributes, CardRequirements
from blueprints.bluefield.cards import DPF as VIA_DPF
from blueprints.contract import Discovers, Kind, Plan, Step
from blueprints.dpf import bmc, cards, dialect_of
from blueprints.dpf import config as server
from blueprints.dpf.access import INSTALLATION
from blueprints.dpf.cards import Card
from blueprints.identities import real
from blueprints.kube import KubeError, Object, connect
from blueprints.matching import Match
from blueprints.specs import BlueprintView, Draft, HostView, Problem


class Config(bmc.WithBmcs):
    """Config of a blueprint of kind dpf_card."""

    hosts: Mapping[str, str] = Field(
        default={}, description="Node -> name of the host that it is, where their names differ."
    )
    nodes: Mapping[str, str] = Field(
        default={}, description="Labels that a Node must have, on servers whose cards are labels of Nodes. Empty: none."
    )
    memory_gib: Mapping[str, int] = Field(
        default={},
        description="Generation or part number -> memory of such cards in GiB, where it is not the usual one.",
    )
    ports: int = Field(default=2, ge=1, le=4, description="Network ports of a card.")


class Attributes(CardAttributes):
    """Attributes of a card that DPF manages."""

    parks: list[str] | None = Field(
        default=None, description="Ways in which the card can be parked: leave, reimage, power_off, wipe."
    )


class Requirements(CardRequirements):
    """Requirements that a lease may set for a card."""

    parks: str | None = Field(default=None, description="A way in which the card must be possible to park.")


class DpfCard(Kind, Discovers):
    """The cards that DPUDevices or labels of Nodes describe."""

    name: ClassVar[str] = "dpf_card"
    resource_type: ClassVar[str] = "dpu_card"
    Config, Requirements, Attributes = Config, Requirements, Attributes
    matches = (*MATCHES, Match("parks", "contains", "parks"))
    discovery_interval: ClassVar[dt.timedelta | None] = dt.timedelta(minutes=1)
    operator_facts: ClassVar[frozenset[str]] = frozenset({"node_labels", "card_labels", bmc.BMC})

    def discover(self, blueprint: BlueprintView) -> Sequence[Draft]:
        """Return the cards that DPF knows. Raises KubeError."""
        config: Config = blueprint.config
        with connect(blueprint.credentials[config.credential]) as cluster:
            dialect = dialect_of(cluster)
            found = cards.all_cards(cluster, dialect, config.namespace, config.nodes)
            dpus = cluster.list(dialect.type("DPU"), config.namespace)
        hosts = {one.name: one for one in blueprint.hosts(None)}
        return [_draft(config, card, found, dpus, hosts) for card in found]

    def destroy(self) -> Plan:
        """Return the plan that hands the card back. A DPU on it has been destroyed before."""
        return (Step(name="leave", act=lambda spec, memo: Ready()),)

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Check that the API server can be used and has DPF, and which cards can be parked by their BMCs."""
        if found := server.problems(blueprint, ("DPU", "DPUSet")):
            return found
        config: Config = blueprint.config
        try:
            with connect(blueprint.credentials[config.credential]) as cluster:
                there = cards.all_cards(cluster, dialect_of(cluster), config.namespace, config.nodes)
        except KubeError as error:
            return [Problem(message=str(error), field="credential")]
        return bmc.problems(blueprint, there)


def _draft(
    config: Config, card: Card, among: Sequence[Card], dpus: Sequence[Object], hosts: Mapping[str, HostView]
) -> Draft:  # fmt: skip
    name = config.hosts.get(card.node, card.node)
    host = hosts.get(name)
    memory = config.memory_gib.get(card.opn) or config.memory_gib.get(card.model) or card.memory_gib
    found: Json = {
        "model": card.model or None, "memory_gib": memory, "ports": config.ports, "host": name or None,
        "serial": card.serial or None, "part_number": card.opn or None, "via": VIA_DPF,
        "parks": bmc.ways(config, card),
    }  # fmt: skip
    return Draft(
        name=card.name, identity=card.identity, identities=real({"serial": card.serial}) if card.serial else (),
        attributes={key: value for key, value in found.items() if value is not None},
        capacity=Amounts(slots=1), host=host.id if host is not None else None, facts=card.facts(),
        refused=card.problem or _ambiguous(card, among) or _foreign(card, dpus),
    )  # fmt: skip


def _ambiguous(card: Card, among: Sequence[Card]) -> str:
    matched = cards.selected(card.facts(), among)
    if len(matched) == 1:
        return ""
    wanted = ", ".join(f"{key}={value}" for key, value in (card.card_labels or {}).items()) or "no labels"
    return (
        f"A DPUSet cannot select this card alone: its labels ({wanted}) match {len(matched)} cards. Label "
        f"the DPUDevice with {cards.DEVICE_NODE} and {cards.DEVICE_PCI}."
    )


def _foreign(card: Card, dpus: Sequence[Object]) -> str:
    """Return why a card cannot be used because somebody else has a DPU on it; empty if nobody has."""
    others = (dpu for dpu in cards.dpus_on(card.facts(), dpus) if INSTALLATION not in dpu.labels)
    return next((f"DPU {dpu.name} of somebody else is on the card." for dpu in others), "")
