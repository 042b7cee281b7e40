"""The kind `dpf_card`: BlueField cards that DPF knows, each part of its host.

Cards are one pool for all blueprints that build DPUs: each DPU leases its card exclusively, for life. They are
discovered, or registered, and then Drydock creates their DPUDevices and DPUNodes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import ClassVar

from blueprints.amounts import Amounts
from blueprints.bluefield import MATCHES
from blueprints.bluefield.cards import DPF as VIA_DPF
from blueprints.contract import Discovers, Kind, Lists, Plan, Registers, Step, Updates
from blueprints.dpf import bmc, cards, dialect_of
from blueprints.dpf import config as server
from blueprints.dpf.access import INSTALLATION
from blueprints.dpf.cards import Card
from blueprints.dpu.dpf_card import config as schema
from blueprints.dpu.dpf_card import registering
from blueprints.identities import real
from blueprints.kube import KubeError, Object, connect
from blueprints.matching import Match
from blueprints.specs import BlueprintView, Draft, HostView, Owned, Problem

_LONG = 86_400.0


class DpfCard(Kind, Registers, Discovers, Lists, Updates):
    """The cards that DPUDevices or labels of Nodes describe."""

    name: ClassVar[str] = "dpf_card"
    resource_type: ClassVar[str] = "dpu_card"
    Config, Requirements, Attributes = schema.Config, schema.Requirements, schema.Attributes
    Registration = schema.Registration
    fixed: ClassVar[frozenset[str]] = frozenset(registering.FIXED.values())
    at_once: ClassVar[bool] = True
    matches = (*MATCHES, Match("parks", "contains", "parks"))
    discovery_interval: ClassVar[dt.timedelta | None] = dt.timedelta(minutes=1)
    operator_facts: ClassVar[frozenset[str]] = frozenset({"node_labels", "card_labels", bmc.BMC})

    def discover(self, blueprint: BlueprintView) -> Sequence[Draft]:
        """Return the cards that DPF knows. Raises KubeError."""
        config: schema.Config = blueprint.config
        with connect(blueprint.credentials[config.credential]) as cluster:
            dialect = dialect_of(cluster)
            found = cards.all_cards(cluster, dialect, config.namespace, config.nodes)
            dpus = cluster.list(dialect.type("DPU"), config.namespace)
        hosts = {one.name: one for one in blueprint.hosts(None)}
        return [_draft(config, card, found, dpus, hosts) for card in found]

    def register(self, config: schema.Config, given: schema.Registration) -> Draft:
        """Return the draft for a registered card. Calls no server."""
        host = config.hosts.get(given.node, given.node)
        return Draft(
            name=given.name or given.serial, identity=given.serial, identities=real({"serial": given.serial}),
            attributes={"serial": given.serial, "host": host, "via": VIA_DPF}, capacity=Amounts(slots=1),
        )  # fmt: skip

    def build(self) -> Plan:
        """Return the plan that creates DPUDevice and DPUNode of a registered card, and waits until it is ready."""
        return (
            Step(name="lock", act=registering.lock),
            Step(name="device", act=registering.create_device),
            Step(name="node", act=registering.join_node, deadline=_LONG),
            Step(name="ready", act=registering.wait, deadline=_LONG),
        )

    def update(self) -> Plan:
        """Return the plan that brings DPUDevice and DPUNode of a registered card to its corrected registration."""
        lock, device, node, ready = self.build()
        leave = Step(name="leave", act=registering.leave_former, deadline=_LONG)
        return (lock, leave, device, node, Step(name="former", act=registering.delete_former, deadline=_LONG), ready)

    def disruption(self, before: schema.Config | None, after: schema.Config) -> str:
        """Return why leases are disturbed: by a corrected registration. Another config is applied by discoveries."""
        return "" if before is not None else "The registration of the card was corrected."

    def destroy(self) -> Plan:
        """Return the plan that deletes what Drydock created for the card. A DPU on it has been destroyed before."""
        return (
            Step(name="leave", act=registering.leave_node, deadline=_LONG),
            Step(name="former", act=registering.delete_former, deadline=_LONG),
            Step(name="delete", act=registering.delete_device, deadline=_LONG),
        )

    def owned(self, blueprint: BlueprintView, installation: str) -> Sequence[Owned]:
        """Return the cards of this installation that have a DPUDevice or a DPUNode."""
        config: schema.Config = blueprint.config
        with connect(blueprint.credentials[config.credential]) as cluster:
            dialect = dialect_of(cluster)
            if not cards.uses_devices(dialect):
                return []
            devices, nodes = (
                cluster.list(dialect.type(kind), config.namespace, labels=f"{label}={installation}")
                for kind, label in ((registering.DEVICE, registering.OF_INSTALLATION), (registering.NODE, INSTALLATION))
            )
        return registering.owned(devices, nodes)

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Check that the API server can be used and has DPF, and which cards can be parked by their BMCs."""
        if found := server.problems(blueprint, ("DPU", "DPUSet")):
            return found
        config: schema.Config = blueprint.config
        try:
            with connect(blueprint.credentials[config.credential]) as cluster:
                there = cards.all_cards(cluster, dialect_of(cluster), config.namespace, config.nodes)
        except KubeError as error:
            return [Problem(message=str(error), field="credential")]
        return bmc.problems(blueprint, there)


def _draft(
    config: schema.Config, card: Card, among: Sequence[Card], dpus: Sequence[Object], hosts: Mapping[str, HostView]
) -> Draft:  # fmt: skip
    host = hosts.get(config.hosts.get(card.node, card.node))
    return Draft(
        name=card.name, identity=card.identity, identities=real({"serial": card.serial}) if card.serial else (),
        attributes=registering.attributes(config, card),
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
