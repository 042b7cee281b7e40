"""DPF and an installation of Drydock that uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from blueprints.fake.cloud import Cloud
from blueprints.models import Blueprint, Credential
from leases.engine.core import database
from leases.engine.sync import discovery
from leases.messaging.inline import settle
from leases.models import Lease, Resource, Run, Sync
from leases.operations import resources
from leases.operations.callers import Caller, caller
from tests.dpf.accounts import least
from tests.dpus.api import CLUSTER
from tests.dpus.conftest import dpf as dpf
from tests.dpus.conftest import servers as servers
from tests.dpus.double import Double
from tests.dpus.user import URL, User
from tests.dpus.world import WORLD, Host

PAST = "2020-01-01T00:00Z"
FLAVOR = {
    "bfcfgParameters": ["WITH_NIC_FW_UPDATE=no"],
    "grub": {"kernelParameters": ["hugepagesz=2M", "hugepages=512"]},
}


class Died(BaseException):
    """The worker has died."""


class Deaths:
    """A failpoint at which the worker dies after every call of a step, before the answer is stored, once each.

    The call is repeated by the next worker, whose answer is stored.
    """

    def __init__(self) -> None:
        self.count, self._calls = 0, 0

    def __call__(self, name: str) -> None:
        if name == "run.called":
            self._calls += 1
            if self._calls % 2:
                self.count += 1
                raise Died


@pytest.fixture
def deaths() -> Iterator[Deaths]:
    """Let the worker die after each call of a step."""
    found = Deaths()
    database.hook(found)
    yield found
    database.hook(None)


class Lab:
    """Blueprints for DPUs on an installation of DPF, with hosts of the fake kind whose restarts reach the double."""

    def __init__(self, user: User, root: Caller) -> None:
        self.user, self.root = user, root
        self.server = {"credential": "dpf", "namespace": user.double.state.api.namespace}
        self._cycles: dict[str, int] = {}

    @property
    def double(self) -> Double:
        return self.user.double

    def add(self, name: str, kind: str, type_: str, config: dict[str, Any], **columns: Any) -> Blueprint:
        """Add a blueprint that everyone may use."""
        given = {"audience": "everyone", "resource_type": type_, **columns}
        return Blueprint.objects.create(name=name, kind=kind, config=config, **given)

    def host(self, name: str, *serials: str) -> Host:
        """Add a host with cards, to DPF and to Drydock."""
        made = self.double.world.host(name, list(serials))
        resources.register(self.root, "hosts", {"name": made.name, "identity": made.name})
        return made

    def install(self, **config: Any) -> None:
        """Add the blueprints."""
        spec: dict[str, Any] = {"type": "kamaji", "maxNodes": 10}
        if not self.double.generation.devices:
            spec["version"] = "v1.30.0"
        # Not by the user, who writes under the name of Drydock: its fields would be ours.
        self.double.state.admin.create(CLUSTER, {"metadata": {"name": "tenant"}, "spec": spec})
        self.add("hosts", "fake", "host", {"provider": "hosts", "capacity": {"slots": 8}}, max_resources=0)
        self.add("images", "dpf_image", "dpu_image", {**self.server, "images": [{"url": URL, "doca": "3.2.0"}]})
        self.add("clusters", "dpf_cluster", "dpu_cluster", self.server)
        # Nodes are of no namespace, so those of other tests are on the server too.
        nodes = {} if self.double.generation.devices else {WORLD: self.double.world.name}
        self.add("cards", "dpf_card", "dpu_card", {**self.server, "nodes": nodes})
        made = {} if config.get("deployment") else {"image": URL, "flavor": FLAVOR}
        self.add("dpus", "dpf", "dpu", {**self.server, **made, **config})

    def discover(self) -> None:
        """Find clusters and cards."""
        self.double.settle()
        for row in Resource.objects.filter(blueprint__name="hosts"):
            self.until(row, state="active")
        for name in ("clusters", "cards"):
            Sync.objects.update(due_at=PAST)
            assert discovery.discover(Blueprint.objects.get(name=name).pk)

    def turn(self) -> None:
        """Let Drydock do what is due, also what waits for later, and DPF what it does in one tick."""
        Run.objects.filter(due_at__isnull=False).update(due_at=PAST)
        self._work()
        self.reboot()
        self.double.tick()

    def _work(self) -> None:
        try:
            settle()
        except Died:
            Run.objects.exclude(token=None).update(token_until=PAST)

    def reboot(self) -> None:
        """Reboot the machines of the double whose hosts were rebooted or power-cycled."""
        done = {int(one.key.rpartition("-r")[2]): one.cycles for one in Cloud("hosts").instances()}
        for row in Resource.objects.filter(blueprint__name="hosts"):
            count = done.get(row.pk, 0)
            for _ in range(count - self._cycles.get(row.name, 0)):
                self.double.world.hosts[row.name].power_cycle(by="drydock")
            self._cycles[row.name] = count

    def until(self, row: Any, turns: int = 120, **columns: Any) -> Any:
        """Go on until a row has these columns."""
        for _ in range(turns):
            row.refresh_from_db()
            if all(getattr(row, name) == value for name, value in columns.items()):
                return row
            self.turn()
        runs = list(Run.objects.values("resource__name", "phase", "step", "sentence", "waits_for", "due_at"))
        leases = list(Lease.objects.values("id", "state", "message"))
        found = {name: getattr(row, name) for name in columns}
        pytest.fail(f"{row}: {found}, wanted {columns}\nruns: {runs}\nleases: {leases}")


@pytest.fixture
def lab(dpf: User, django_user_model: Any) -> Callable[..., Lab]:
    """Return a function that makes a lab, for each version of DPF."""

    def make(**config: Any) -> Lab:
        Credential.objects.create(name="dpf", secrets={"kubeconfig": least(dpf, config=config)})
        made = Lab(dpf, caller(django_user_model.objects.create_superuser("root")))
        made.install(**config)
        return made

    return make
