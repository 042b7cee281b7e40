"""Builds of DPUs through the double of DPF's controllers: requests, statements, and many at once with a few workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench import population
from bench.figures import Figure, figure
from bench.latency import user, worker

WORKERS = 4
MOST_REQUESTS = 30
MOST_CALLS = 2
NAMESPACE = "builds"
_SLOWEST = 10.0
"""Seconds for each of many DPUs: API server, controllers and workers share the same cores."""
_TICK = 0.25
_SLOW_TICK = 1.5
"""Seconds of a phase that is longer than the time within which wakes are one."""
_FEW = 10
_WARM = 2 * WORKERS
"""Builds that do not count, at most, so that all processes have read the types of the server."""
_SINGLE = 4
"""Builds that are measured alone, each on a host of its own."""
_FLAVOR = {"bfcfgParameters": ["WITH_NIC_FW_UPDATE=no"]}
_TABLE = """
    CREATE TABLE bench_call (resource bigint, phase text, step text, seconds float8, calls int, longest float8,
        statements int)"""


def wait(what: Callable[[], object], seconds: float, said: Callable[[], object]) -> None:
    """Wait until something is so. Raises TimeoutError with what `said` returns."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise TimeoutError(f"Nothing came of it within {seconds:.0f} s: {said()}")
        time.sleep(0.1)


def figures(server: Any, owner: int, *, builds: int, rows: int, seconds: float) -> Iterator[Figure]:
    """All figures; workers of their own run meanwhile. `seconds` is how long the longest phase of a build takes."""
    from leases.engine.core.database import run

    warm, short = min(_WARM, builds), seconds / 10

    run("DROP TABLE IF EXISTS bench_call")
    run(_TABLE)
    try:
        with _Lab(server, owner, builds + warm + _SINGLE) as lab, worker(WORKERS, "bench.kubecalls", beat=True):
            lab.build(warm)
            few = lab.measured(short)
            with _more(rows):
                many = lab.measured(short)
            long = lab.measured(seconds)
            requests = long.requests
            yield figure("requests of a build", few.requests, "requests", "30", few.requests / MOST_REQUESTS)
            yield figure(
                f"requests of a build whose card is installed for {seconds:g} s", requests, "requests", f"{short:g} s",
                requests / few.requests,
            )  # fmt: skip
            slow = lab.measured(short, _SLOW_TICK)
            yield figure(
                f"requests of a build whose phases take {_SLOW_TICK:g} s each", slow.requests, "requests", "30",
                slow.requests / MOST_REQUESTS,
            )  # fmt: skip
            yield figure(
                f"statements of a step of a build beside {rows} DPUs", many.statements, "statements", f"{_FEW}",
                many.statements / few.statements,
            )  # fmt: skip
            yield from lab.storm(builds)
    finally:
        run("DROP TABLE bench_call")


class _Measured:
    """The calls and steps since a moment."""

    def __init__(self) -> None:
        from leases.engine.core.database import rows

        ((calls, steps, sent),) = rows(
            "SELECT sum(calls), count(*) FILTER (WHERE resource > 0), sum(statements) FROM bench_call"
        )
        self.requests, self.statements = float(calls), float(sent) / max(1, steps)


class _Lab:
    """Blueprints for DPUs, and hosts of the fake kind whose reboots reach the double."""

    def __init__(self, server: Any, owner: int, hosts: int) -> None:
        self._server, self._owner, self._count = server, owner, hosts
        self._cycles: dict[str, int] = {}

    def __enter__(self) -> _Lab:
        from django.contrib.auth import get_user_model

        from tests.dpf.accounts import least
        from tests.dpus.api import CLUSTER, Api
        from tests.dpus.api import NAMESPACE as NAMESPACES
        from tests.dpus.double import Double
        from tests.dpus.user import User

        users = get_user_model()._default_manager
        self._operator, _ = users.get_or_create(username="bench-operator", is_superuser=True, is_staff=True)
        kubeconfig = self._server.kubeconfig
        admin = Api(kubeconfig, namespace=NAMESPACE)
        admin.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        admin.close()
        self.double = Double(kubeconfig, namespace=NAMESPACE, cluster=kubeconfig)
        self._user = User(self.double, kubeconfig)
        spec = {"type": "kamaji", "maxNodes": self._count}
        self.double.state.admin.create(CLUSTER, {"metadata": {"name": "tenant"}, "spec": spec})
        self._blueprints(least(self._user))
        for number in range(self._count):
            self._host(number)
        self.double.settle()
        self._find()
        self.double.start(_TICK)
        return self

    def __exit__(self, *error: object) -> None:
        from blueprints.models import Blueprint
        from leases.models import Resource

        Blueprint.objects.filter(name__startswith="builds-").update(enabled=False)
        Resource.objects.filter(blueprint__name__startswith="builds-").update(check_at=None)
        self._user.close()
        self.double.close()

    def _blueprints(self, account: str) -> None:
        from blueprints.models import Blueprint, Credential
        from tests.dpus.user import URL

        Credential.objects.create(name="builds", secrets={"kubeconfig": account})
        server = {"credential": "builds", "namespace": NAMESPACE}
        host = {"provider": "builds-hosts", "capacity": {"slots": 8}}
        for kind, type_, config, columns in (
            ("fake", "host", host, {"max_resources": 0}), ("dpf_cluster", "dpu_cluster", server, {}),
            ("dpf_image", "dpu_image", {**server, "images": [{"url": URL, "doca": "3.2.0"}]}, {}),
            ("dpf_card", "dpu_card", server, {}),
            ("dpf", "dpu", {**server, "image": URL, "flavor": _FLAVOR, "park": "leave"}, {"max_builds": 1000}),
        ):  # fmt: skip
            Blueprint.objects.create(
                name=f"builds-{kind}", kind=kind, resource_type=type_, config=config, audience="everyone",
                discovery_interval="01:00:00", **columns,
            )  # fmt: skip

    def _host(self, number: int) -> None:
        from leases.operations import resources
        from leases.operations.callers import caller

        made = self.double.world.host(f"h{number}", [f"MT2400X{number:05}"])
        resources.register(caller(self._operator), "builds-fake", {"name": made.name, "identity": made.name})

    def _find(self) -> None:
        """Wait until the hosts are there, and then find the clusters and cards in them."""
        from blueprints.models import Blueprint
        from leases.engine.sync import discovery
        from leases.messaging.inline import settle
        from leases.models import Resource, Sync

        for _ in range(3):
            settle()
        hosts = Resource.objects.filter(blueprint__name="builds-fake", state="active")
        wait(lambda: settle() or hosts.count() == self._count, 120, hosts.count)  # type: ignore[func-returns-value]
        for name in ("builds-dpf_cluster", "builds-dpf_card"):
            Sync.objects.update(due_at="2020-01-01T00:00Z")
            discovery.discover(Blueprint.objects.get(name=name).pk)

    def measured(self, seconds: float, tick: float = _TICK) -> _Measured:
        """Build one DPU whose card is installed for this time, and whose other phases take `tick` seconds each."""
        from leases.engine.core.database import run
        from tests.dpus.generations import INSTALLING

        self.double.dwell[INSTALLING] = max(1, round(seconds / tick))
        self._pace(tick)
        time.sleep(2.0)
        run("TRUNCATE bench_call")
        self.build(1)
        self._pace(_TICK)
        return _Measured()

    def _pace(self, tick: float) -> None:
        self.double.stop()
        self.double.start(tick)

    def build(self, count: int, seconds: float = 240.0) -> None:
        """Lease new DPUs, and wait until all are active."""
        from leases.allocator import Allocator
        from leases.models import Lease, Resource, Run

        asked = Allocator("dpu", owner=user(self._owner), allowed_blueprints=("builds-dpf",))
        ids = [asked.allocate().id for _ in range(count)]

        def all_active() -> bool:
            self._reboot()
            return not Lease.objects.filter(pk__in=ids).exclude(state="active").exists()

        wait(all_active, seconds, lambda: [
            *Lease.objects.filter(pk__in=ids).exclude(state="active").values("state", "message")[:3],
            *Run.objects.values("resource__name", "phase", "step", "sentence", "due_at", "tries")[:5],
            *Resource.objects.filter(state="broken").values("name", "message")[:3], self.double.errors[-3:],
        ])  # fmt: skip

    def storm(self, builds: int) -> Iterator[Figure]:
        """Build many at once."""
        from leases.engine.core.database import rows, run
        from tests.dpus.generations import INSTALLING

        self.double.dwell[INSTALLING] = 10
        run("TRUNCATE bench_call")
        began = time.monotonic()
        self.build(builds, max(600.0, builds * _SLOWEST))
        spent = time.monotonic() - began
        ((longest, call, most, mean),) = rows(
            "SELECT max(seconds), max(longest), (SELECT max(n) FROM (SELECT sum(calls) AS n FROM bench_call"
            " WHERE resource > 0 GROUP BY resource) s), sum(calls) FROM bench_call"
        )
        what = f"{builds} DPUs built at once"
        yield figure(what, spent, "s")
        yield figure(f"{what}: requests of each", mean / builds, "requests", "30", mean / builds / MOST_REQUESTS)
        yield figure("the most of one", most, "requests", "30", most / MOST_REQUESTS)
        longest = float(longest)
        yield figure(
            "the longest that a worker was at one step", longest * 1000, "ms", "2 calls", longest / call / MOST_CALLS
        )

    def _reboot(self) -> None:
        """Reboot the machines of the double whose hosts were rebooted."""
        from blueprints.fake.cloud import Cloud
        from leases.models import Resource

        done = {int(one.key.rpartition("-r")[2]): one.cycles for one in Cloud("builds-hosts").instances()}
        for pk, name in Resource.objects.filter(blueprint__name="builds-fake").values_list("pk", "name"):
            for _ in range(done.get(pk, 0) - self._cycles.get(name, 0)):
                self.double.world.hosts[name].power_cycle(by="drydock")
            self._cycles[name] = done.get(pk, 0)


@contextmanager
def _more(count: int) -> Iterator[None]:
    """Have more DPUs in the database, of a blueprint that is not used."""
    from blueprints.models import Blueprint

    known = Blueprint.objects.get(name="builds-dpf")
    more = Blueprint.objects.create(name="builds-more", kind="dpf", resource_type="dpu", config=known.config)
    population.resources(more.pk, "dpu", count, slots=1)
    try:
        yield
    finally:
        population.remove([more.pk])
