"""Someone who uses DPF: writes images, flavors, clusters and sets, and does the handshakes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.dpus.api import (
    BFB,
    CLUSTER,
    DPU,
    DPU_NODE,
    FLAVOR,
    MAINTENANCE,
    NODE,
    SET,
    Api,
    Json,
    Kind,
    annotations_of,
    name_of,
)
from tests.dpus.double import Double
from tests.dpus.generations import HOLD, NODE_NAME, READY, REBOOT
from tests.dpus.images import Image
from tests.dpus.world import HOSTNAME, NFD, Card, Host

URL = "http://127.0.0.1:1/bf-bundle-3.2.0.bfb"


class User:
    """A user of DPF, and the double that it uses."""

    def __init__(self, double: Double, kubeconfig: str) -> None:
        self.double = double
        self.kubeconfig = kubeconfig
        self.api = Api(kubeconfig, namespace=double.state.api.namespace, manager="drydock")
        double.images[URL] = Image()

    def close(self) -> None:
        self.api.close()

    # Objects

    def prepare(self, *, url: str = URL, cluster: str = "kamaji") -> None:
        """Write what every DPU needs: an image, a flavor and a cluster."""
        spec: Json = {"type": cluster, "maxNodes": 10}
        if not self.double.generation.devices:
            spec["version"] = "v1.30.0"
        self.api.create(CLUSTER, {"metadata": {"name": "tenant"}, "spec": spec})
        self.api.create(BFB, {"metadata": {"name": "bundle"}, "spec": {"url": url}})
        self.api.create(
            FLAVOR, {"metadata": {"name": "flavor"}, "spec": {"bfcfgParameters": ["WITH_NIC_FW_UPDATE=no"]}}
        )

    def dpu_set(self, card: Card, name: str = "lease-1", *, effect: Json | None = None, **changes: Any) -> Json:
        """Write a DPUSet for one card."""
        return self.api.create(SET, {"metadata": {"name": name, "labels": {"drydock": name}},
                                     "spec": self.spec(card, effect, **changes)})  # fmt: skip

    def spec(self, card: Card, effect: Json | None = None, *, strategy: str = "", bfb: str = "bundle") -> Json:
        """Return the spec of a DPUSet for one card."""
        host = self.double.world.host_of(card)
        if self.double.generation.devices:
            address = f"{DPU.group}/dpudevice-pciAddress"
            template = {
                "bfb": {"name": bfb}, "dpuFlavor": "flavor", "nodeEffect": effect or {"noEffect": True},
                "cluster": {"nodeLabels": {"drydock": "yes"}},
            }  # fmt: skip
            return {
                "strategy": {"type": strategy or "OnDelete"}, "dpuTemplate": {"spec": template},
                "dpuNodeSelector": {"matchLabels": {"feature.node.kubernetes.io/dpu-enabled": "true"}},
                "dpuDeviceSelector": {"matchLabels": {NODE_NAME: host.name, address: card.pci}},
            }  # fmt: skip
        template = {
            "bfb": {"name": bfb}, "dpuFlavor": "flavor", "nodeEffect": effect or {"noEffect": True},
            "automaticNodeReboot": False, "cluster": {"nodeLabels": {"drydock": "yes"}},
        }  # fmt: skip
        return {
            "strategy": {"type": strategy or "Recreate"}, "dpuTemplate": {"spec": template},
            "nodeSelector": {"matchLabels": {HOSTNAME: host.name}},
            "dpuSelector": {f"{NFD}/dpu-{card.index}-pci-address": card.pci},
        }  # fmt: skip

    # Looking

    def all(self, kind: Kind) -> list[Json]:
        return self.api.all(kind)

    def dpu(self, name: str = "") -> Json:
        """Return a DPU, or the only one."""
        found = [dpu for dpu in self.all(DPU) if name in ("", name_of(dpu))]
        assert len(found) == 1, [name_of(dpu) for dpu in found]
        return found[0]

    def phase(self) -> str:
        return str(self.dpu()["status"]["phase"])

    def members(self) -> list[str]:
        """Return the Nodes of this test in the DPU clusters."""
        return [name_of(node) for api in self.double.state.links.apis for node in self.double.world.nodes(api)]

    def left(self) -> list[str]:
        """Return what is there of the objects that DPF makes of ours."""
        kinds = [SET, DPU, *([MAINTENANCE] if self.double.generation.devices else [])]
        return [f"{kind.name} {name_of(item)}" for kind in kinds for item in self.all(kind)] + self.members()

    # Handshakes

    def release_hold(self) -> None:
        """Let every maintenance go on."""
        for item in self.all(MAINTENANCE):
            self.api.change(MAINTENANCE, name_of(item), lambda body: _annotate(body, HOLD, "false"))

    def confirm_reboot(self, host: Host) -> None:
        """Remove the request for a reboot."""
        self.api.change(DPU_NODE, host.name, lambda body: annotations_of(body).pop(REBOOT))

    def is_asked_to_reboot(self, host: Host) -> bool:
        return REBOOT in annotations_of(self.api.get(DPU_NODE, host.name) or {"metadata": {}})

    # Paths

    def until(self, phases: Iterable[str] | str, most: int = 60) -> list[str]:
        """Tick until the only DPU is in a phase. Returns all phases that were seen."""
        wanted, seen = {phases} if isinstance(phases, str) else set(phases), [""]
        for _ in range(most):
            self.double.tick()
            found = self.all(DPU)
            if found and (phase := (found[0].get("status") or {}).get("phase")) != seen[-1]:
                seen.append(phase)
            if seen[-1] in wanted:
                return seen[1:]
        raise AssertionError(f"not in {wanted} after {most} ticks: {seen[1:]}")

    def build(self, card: Card, **changes: Any) -> list[str]:
        """Provision one card to Ready, rebooting its host when it is asked for."""
        self.prepare()
        self.dpu_set(card, **changes)
        host = self.double.world.host_of(card)
        seen = self.until("Rebooting")
        self.double.settle()
        host.reboot()
        if self.double.generation.devices:
            self.confirm_reboot(host)
        return seen + self.until(READY)

    def nodes(self) -> list[Json]:
        return self.all(NODE)


def _annotate(body: Json, key: str, value: str) -> None:
    body["metadata"]["annotations"] = {**annotations_of(body), key: value}
