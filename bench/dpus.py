"""DPUs of DPF on a real API server: idle ones, relists, the watcher's memory, and builds.

`python -m bench.dpus [dpus] [builds]` on an empty database of its own (DRYDOCK_STATE); prints a table. The API server
is that of the tests, with the CRDs of DPF 26.4; without it, this section is left out with a message. Idle DPUs are
objects without controllers; builds meet the double of DPF's controllers, see `bench.dpubuilds`.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import dpubuilds, population
from bench.figures import Figure, figure, show
from bench.installation import prepare

DPUS, BUILDS = 1_000, 200
IDLE = 60.0
NAMESPACE, INTERVAL = "fleet", 30
MOST_REQUESTS = 2
"""Requests in an idle minute for each type of objects that is watched."""
MOST_STATEMENTS, MOST_CPU, MOST_MIB = 6, 1.5, 40
_WRITERS = 4
_FAR = "2100-01-01T00:00Z"
_TAKEN = re.compile(r'apiserver_request_total\{(?P<labels>[^}]*group="[a-z]+\.dpu\.nvidia\.com"[^}]*)\} (?P<count>\S+)')


@dataclass(frozen=True)
class Fleet:
    """DPUs on an API server, and the blueprints that know them."""

    server: Any
    account: str
    """The kubeconfig of an account with the least role."""

    def requests(self) -> int:
        """Return how many requests about DPF the server has answered, by its own metrics."""
        with self.server.admin() as admin:
            said = admin._transport.call("GET", "/metrics", deadline=60, most=64 << 20).body.decode()
        return sum(round(float(one["count"])) for one in _TAKEN.finditer(said))


def figures(
    owner: int, *, dpus: int = DPUS, builds: int = BUILDS, seconds: float = IDLE, times: int = 5
) -> Iterator[Figure]:
    """All figures, on rows of their own."""
    from tests.kube import apiserver

    if why := apiserver.missing():
        print(f"DPUs on an API server are left out: {why}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(prefix="dd-bench-kube-") as folder:
        server = apiserver.Server("26.4", Path(folder) / "server")
        try:
            apiserver.start("26.4", server.folder)
            yield from dpubuilds.figures(server, owner, builds=builds, rows=dpus, seconds=seconds)
            yield from _fleet(server, dpus, seconds, times)
        finally:
            server.stop()


def _fleet(server: Any, dpus: int, seconds: float, times: int) -> Iterator[Figure]:
    few = max(1, dpus // 10)
    with _blueprints(server) as fleet:
        _add(fleet, few)
        with _watched() as places:
            rate = _idle(fleet, seconds)
            _add(fleet, dpus - few)
            more = _idle(fleet, seconds)
        name = f"requests of {dpus} idle DPUs to a real API server"
        yield figure(name, more, "requests/min", f"{few}", more / max(rate, 1.0))
        most = MOST_REQUESTS * places
        yield figure("the same, for each type that is watched", more / places, "requests/min", "2", more / most)
        yield from _relist(fleet, dpus, times)
        grown = _memory(fleet, dpus)
        yield figure(f"memory of a watcher of {dpus} DPUs, grown by", grown, "MiB", "40 MiB", grown / MOST_MIB)


@contextmanager
def _blueprints(server: Any) -> Iterator[Fleet]:
    from blueprints.models import Blueprint, Credential
    from leases.models import Resource
    from tests.dpf.accounts import least
    from tests.dpus.api import NAMESPACE as NAMESPACES
    from tests.dpus.api import Api
    from tests.dpus.double import Double
    from tests.dpus.user import User

    admin = Api(server.kubeconfig, namespace=NAMESPACE)
    admin.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    admin.close()
    with Double(server.kubeconfig, namespace=NAMESPACE) as idle:
        fleet = Fleet(server, least(User(idle, server.kubeconfig)))
    Credential.objects.create(name="fleet", secrets={"kubeconfig": fleet.account})
    shared = {"credential": "fleet", "namespace": NAMESPACE}
    url = "http://127.0.0.1/a.bfb"
    made = [
        Blueprint.objects.create(name=f"fleet-{kind}", kind=kind, resource_type=type_, config={**shared, **config})
        for kind, type_, config in (
            ("dpf_image", "dpu_image", {"images": [{"url": url}]}), ("dpf_cluster", "dpu_cluster", {}),
            ("dpf_card", "dpu_card", {}), ("dpf", "dpu", {"image": url, "flavor": {}}),
        )
    ]  # fmt: skip
    Blueprint.objects.filter(name="fleet-dpf").update(check_interval=f"00:00:{INTERVAL}", idle_timeout=None)
    yield fleet
    ids = [one.pk for one in made]
    Blueprint.objects.filter(pk__in=ids).update(enabled=False)
    Resource.objects.filter(blueprint__in=ids).update(check_at=None)


def _add(fleet: Fleet, count: int) -> None:
    """Add DPUs that are ready, each with its host, card, set and flavor, and their resources."""
    from blueprints.kube import proof_labels
    from blueprints.models import Blueprint
    from leases.engine.core import specs
    from leases.engine.core.database import run
    from leases.models import Resource

    blueprint = Blueprint.objects.get(name="fleet-dpf").pk
    known = set(Resource.objects.filter(blueprint=blueprint).values_list("pk", flat=True))
    population.resources(blueprint, "dpu", count, slots=1)
    rows = Resource.objects.filter(blueprint=blueprint).exclude(pk__in=known).select_related("blueprint")
    given = [(row.pk, proof_labels(specs.tags(row))) for row in rows]
    with ThreadPoolExecutor(_WRITERS) as pool:
        list(pool.map(lambda part: _write(fleet, part), [given[one::_WRITERS] for one in range(_WRITERS)]))
    run(
        "UPDATE leases_resource SET attributes = '{}', traits = '{}', check_at = now() + random() * %s * interval '1 s'"
        " WHERE blueprint_id = %s AND check_at IS NULL",
        (INTERVAL, blueprint),
    )


def _write(fleet: Fleet, given: list[tuple[int, Mapping[str, str]]]) -> None:
    from tests.dpus.api import DEVICE, DPU, DPU_NODE, FLAVOR, SET, Api
    from tests.dpus.generations import DEVICE_NAME, NODE_NAME

    api = Api(fleet.server.kubeconfig, namespace=NAMESPACE)
    for number, proof in given:
        name, host, card = f"dpu-{number}", f"host-{number}", f"card-{number}"
        at = {NODE_NAME: host, DEVICE_NAME: card}
        about = {"metadata": {"name": name, "labels": dict(proof)}}
        template = {"bfb": {"name": "a"}, "dpuFlavor": name, "nodeEffect": {"noEffect": True}}
        selects = {"dpuDeviceSelector": {"matchLabels": {NODE_NAME: host}}}
        device = {"serialNumber": f"SN{number:08}", "numberOfPFs": 1}
        api.create(DEVICE, {"metadata": {"name": card, "labels": at}, "spec": device})
        api.create(DPU_NODE, {"metadata": {"name": host}, "spec": {"dpus": [{"name": card}]}})
        api.create(FLAVOR, {**about, "spec": {"bfcfgParameters": ["WITH_NIC_FW_UPDATE=no"]}})
        api.create(
            SET, {**about, "spec": {"strategy": {"type": "OnDelete"}, "dpuTemplate": {"spec": template}, **selects}}
        )
        spec = {"bfb": "a", "dpuFlavor": name, "dpuNodeName": host, "dpuDeviceName": card, **device}
        del spec["numberOfPFs"]
        spec["nodeEffect"], spec["cluster"] = {"noEffect": True}, {}
        api.create(DPU, {**about, "spec": spec})
        api.change(DPU, name, lambda body: body.update(status=_status()), status=True)
    api.close()


def _status() -> dict[str, Any]:
    """Return a status as long as that of a DPU of 26.4, which has about 20 conditions when it is ready."""
    said = [
        {
            "type": f"Condition{number}", "status": "True", "reason": "Success", "message": "the phase is over",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for number in range(20)
    ]  # fmt: skip
    return {"phase": "Ready", "conditions": said}


@contextmanager
def _watched() -> Iterator[int]:
    """Watch as a worker does. Provides the number of places."""
    from leases.messaging.watcher import Watcher
    from leases.models import ProviderWatch

    watcher = Watcher()
    try:
        dpubuilds.wait(_all_listed, 120, lambda: list(ProviderWatch.objects.values()))
        yield ProviderWatch.objects.count()
    finally:
        watcher.end()


def _all_listed() -> bool:
    from leases.models import ProviderWatch

    return ProviderWatch.objects.exclude(listed_at=None).count() == ProviderWatch.objects.count() > 0


def _idle(fleet: Fleet, seconds: float) -> float:
    """Sweep for some time in which nothing changes. Return the requests in a minute.

    What follows the creation of the DPUs does not count: the first discovery, and the check after a change. There is
    one discovery meanwhile, as in each minute.
    """
    from drydock.core import clock
    from leases.messaging.inline import settle
    from leases.models import Resource, Sync

    for _ in range(3):
        time.sleep(1.0)
        Resource.objects.update(changed=False)
        settle()
    Sync.objects.update(due_at=clock.now() + dt.timedelta(seconds=seconds / 2))
    before, end = fleet.requests(), time.monotonic() + seconds
    while time.monotonic() < end:
        settle()
        time.sleep(0.5)
    return (fleet.requests() - before) * 60.0 / seconds


class _Recorded:
    """A connection that repeats what a server has answered, so that the cost of TLS is not measured."""

    def __init__(self, real: Any) -> None:
        self._real, self.answers = real, dict[str, Any]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def call(self, method: str, path: str, **options: Any) -> Any:
        key = f"{method} {path} {options.get('query')}"
        if key not in self.answers:
            self.answers[key] = self._real.call(method, path, **options)
        return self.answers[key]


def _relist(fleet: Fleet, dpus: int, times: int) -> Iterator[Figure]:
    """Measure a listing of all DPUs after ten minutes in which nothing changed, and its store."""
    from django.db import connection

    from bench.cycle import Statements
    from blueprints.kube import connect, find_type
    from leases.engine.core import installation
    from leases.engine.lifecycle import watches
    from leases.models import ProviderWatch

    cluster = connect({"kubeconfig": fleet.account})
    recorded = _Recorded(cluster._transport)
    cluster._transport = recorded
    type_ = find_type(cluster, "DPU")
    assert type_ is not None
    key = next(one for one in watches.wanted() if one.place == f"{NAMESPACE}/DPU")
    watches.arrange(watches.wanted())
    ProviderWatch.objects.update(token=None)
    token = watches.take(key, "bench")
    assert token is not None
    ProviderWatch.objects.filter(token=token).update(token_until=_FAR)
    stored = json.loads(watches.bookmark(token))

    def relist() -> None:
        watches.store(token, _listed(cluster, type_, installation.current().short, stored), [])

    relist()  # which records the pages
    counted = Statements()
    with connection.execute_wrapper(counted):
        relist()
    sent = counted.seen.total()
    name = f"of {dpus} DPUs, none changed"
    yield figure(f"statements of a relist {name}", sent, "statements", f"{MOST_STATEMENTS}", sent / MOST_STATEMENTS)
    bodies = [one.body for one in recorded.answers.values() if b'"items"' in one.body[:20_000_000]]
    parse = _parser()
    pairs = [(_cpu(relist), _cpu(lambda: [parse(one) for one in bodies])) for _ in range(times + 1)][1:]
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    yield figure(f"CPU of a relist {name}", ours * 1000, "ms", "1.5 x the client's parsing", ours / theirs / MOST_CPU)
    cluster.close()


def _listed(cluster: Any, type_: Any, here: str, stored: Mapping[str, Any]) -> Any:
    """Return the news of a listing after the stored bookmark."""
    from blueprints.dpf import watches as dpf

    mark = json.dumps({**stored, "listed_at": 0.0})
    return next(dpf._Followed(cluster, type_, NAMESPACE, here, mark).news())


def _parser() -> Callable[[bytes], object]:
    """Return the function by which the official client parses the answer to a listing of custom objects."""
    from kubernetes.client import ApiClient

    client = ApiClient()
    return lambda body: client.deserialize(body.decode(), "object", "application/json")


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


_WATCHER = """
import json, sys, time
import django
django.setup()
import drydock.celery
drydock.celery.app.loader.import_default_modules()
from leases.messaging.watcher import Watcher
from leases.models import ProviderWatch, Resource

def kib(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1])

Resource.objects.count()
before = kib("VmRSS")
watcher = Watcher()
end = time.monotonic() + 120
while time.monotonic() < end and ProviderWatch.objects.filter(token=None).exists() | ProviderWatch.objects.filter(
    started_at=None).exists() | ProviderWatch.objects.filter(listed_at__lt=sys.argv[1]).exists():
    time.sleep(0.2)
time.sleep(2)
print(json.dumps([before, kib("VmHWM")]), flush=True)
watcher.end()
"""


def _memory(fleet: Fleet, dpus: int) -> float:
    """Return the MiB by which the main process of a worker grows at most while it begins to watch all that there is."""
    from drydock.core import clock
    from leases.models import ProviderWatch

    ProviderWatch.objects.update(token=None, started_at=None, bookmark="")
    command = [sys.executable, "-c", _WATCHER, clock.now().isoformat()]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=180)
    before, most = json.loads(done.stdout.splitlines()[-1])
    return float(most - before) / 1024


def main() -> None:
    import django

    django.setup()
    owner, _ = prepare(max_resources=None, min_ready=0)
    numbers = [int(one) for one in sys.argv[1:]]
    show(list(figures(owner, **dict(zip(("dpus", "builds"), numbers, strict=False)))))


if __name__ == "__main__":
    main()
