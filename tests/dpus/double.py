"""The double as a whole: one tick after another, by hand or in a thread."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Protocol, Self

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from tests.dpus.api import CLUSTER, DPU, NODE, SECRET, SET, Api, Json, grant, is_deleting, uid_of
from tests.dpus.chains import Chains
from tests.dpus.clusters import Clusters
from tests.dpus.credentials import Credentials
from tests.dpus.deployments import Deployments
from tests.dpus.effects import Maintenances
from tests.dpus.faults import Faults
from tests.dpus.generations import NODE_NAME, Generation
from tests.dpus.hosts import Devices, Hosts
from tests.dpus.images import Image, Images
from tests.dpus.provisioning import Provisioning
from tests.dpus.services import Services
from tests.dpus.sets import Sets, owners
from tests.dpus.state import STRANGER, State
from tests.dpus.storage import Storage
from tests.dpus.violations import Violations
from tests.dpus.vpcs import Vpcs
from tests.dpus.world import HOSTNAME, NFD, Card, World

log = logging.getLogger(__name__)
MOST_TICKS = 300


class Controller(Protocol):
    """A part that looks at all objects of a kind in each tick."""

    def run(self) -> None: ...


class Double:
    """DPF's controllers for one namespace of an API server.

    `kubeconfig` is an administrator's; `cluster` that of the API server which plays the DPU clusters that are created.
    Without a `generation`, the server's CRDs decide. All of its faults, images and machines may be changed at any time.
    """

    def __init__(
        self, kubeconfig: str, *, namespace: str, cluster: str = "", generation: Generation | None = None
    ) -> None:
        self.state = State(kubeconfig, namespace, generation)
        grant(self.state.admin)
        if cluster:
            other = Api(cluster, namespace="default")
            grant(other)
            other.close()
        state = self.state
        self._images, self._clusters = Images(state), Clusters(state, cluster)
        self._maintenances = Maintenances(state)
        provisioning = Provisioning(state, self._images, self._clusters, self._maintenances)
        hosts: list[Controller] = [Devices(state), Hosts(state), self._maintenances]
        if not state.generation.devices:
            hosts = []
        self.chains, self.storage, self.vpcs = Chains(state), Storage(state), Vpcs(state)
        self._controllers: list[Controller] = [
            self._images, self._clusters, *hosts, provisioning, Deployments(state), Sets(state), Services(state),
            self.chains, self.storage, self.vpcs, Credentials(state),
        ]  # fmt: skip
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._had: set[str] = set()
        self.ticks = 0
        self.errors: list[str] = []
        """What ticks of the thread failed with, such as an unreachable server. They are tried again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
        if error is None:
            self.violations.refuse()

    @property
    def generation(self) -> Generation:
        return self.state.generation

    @property
    def world(self) -> World:
        return self.state.world

    @property
    def faults(self) -> Faults:
        return self.state.faults

    @property
    def violations(self) -> Violations:
        """What others wrote that they should not have. The end of a `with` block refuses what no test has taken."""
        return self.state.violations

    @property
    def images(self) -> dict[str, Image]:
        """Images by URL."""
        return self._images.table

    @property
    def downloads(self) -> list[str]:
        """URLs that were downloaded, in order."""
        return self._images.downloads

    @property
    def dwell(self) -> dict[str, int]:
        """Ticks in a phase, 1 where there is none."""
        return self.state.dwell

    # Pace

    def tick(self, times: int = 1) -> None:
        """Let every controller look once at everything."""
        for _ in range(times):
            with self.state.lock:
                self.state.read()
                self.state.recreate()
                self._collect()
                for controller in self._controllers:
                    controller.run()
                self.ticks += 1

    def settle(self, most: int = MOST_TICKS) -> int:
        """Tick until nothing is left to do. Returns the number of ticks; raises if there is no end."""
        for number in range(most):
            self.tick()
            if not self.state.writes and not self.state.waits:
                return number
        raise AssertionError(f"the controllers still write after {most} ticks")

    def start(self, seconds: float) -> None:
        """Tick in a thread, once in so many seconds: a phase takes as long, where nothing else is in `dwell`."""
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, args=(seconds,), name="dpf-controller", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(60)
            self._thread = None

    def close(self) -> None:
        """End the thread, remove what belongs to no namespace, and close all connections."""
        self.stop()
        try:
            self.world.remove_nodes([self.state.admin, *self.state.links.apis])
        except (ApiException, HTTPError) as error:
            log.info("Nodes could not be removed: %s", error)  # a test may have stopped the server
        self.state.close()

    # Others' doings

    def allow_phase(self, phase: str) -> None:
        """Let the server accept a phase that its CRD does not have. For `faults.insert_phase`."""
        self.state.allow_phase(phase)

    def stranger_set(self, card: Card, *, name: str = "stranger", bfb: str = "", flavor: str = "") -> Json:
        """Let someone else create a DPUSet for a card."""
        host = self.world.host_of(card)
        effect = {"noEffect": True}
        template = {"bfb": {"name": bfb or STRANGER}, "dpuFlavor": flavor or STRANGER, "nodeEffect": effect}
        spec: Json = {"dpuTemplate": {"spec": template}}
        if self.generation.devices:
            address = f"{DPU.group}/dpudevice-pciAddress"
            spec["dpuDeviceSelector"] = {"matchLabels": {NODE_NAME: host.name, address: card.pci}}
            spec["strategy"] = {"type": "OnDelete"}
        else:
            spec["nodeSelector"] = {"matchLabels": {HOSTNAME: host.name}}
            spec["dpuSelector"] = {f"{NFD}/dpu-{card.index}-pci-address": card.pci}
        return self.state.stranger.create(SET, {"metadata": {"name": name}, "spec": spec})

    # Inside

    def _collect(self) -> None:
        """Delete what is owned by an object that is gone, which the server does not do."""
        there = {uid_of(item) for items in self.state.items.values() for item in items}
        for kind in self.generation.kinds:
            for item in self.state.all(kind):
                if kind is not NODE and owners(item) and not is_deleting(item) and not there & set(owners(item)):
                    self.state.delete(kind, item)
        clusters = {uid_of(cluster) for cluster in self.state.all(CLUSTER)}
        gone, self._had = self._had - clusters, clusters
        for secret in self.state.api.all(SECRET) if gone else []:
            if owners(secret) and not there & set(owners(secret)):
                self.state.delete(SECRET, secret)

    def _run(self, seconds: float) -> None:
        while not self._stopping.wait(seconds):
            try:
                self.tick()
            except (ApiException, HTTPError) as error:
                self.errors.append(f"{type(error).__name__}: {str(error)[:200]}")
