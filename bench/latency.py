"""From request to active: directly, and through a worker against a Celery no-op by the same worker; from release to
the waiter; the memory of a worker."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.figures import Figure, figure, median, seconds
from bench.installation import prepare

MEMORY_MIB = 150
SDKS = ("boto3", "google.cloud", "azure", "sushy", "kubernetes")


def figures(owner: int, count: int) -> Iterator[Figure]:
    """All figures; a worker of its own runs for the second half."""
    from leases.engine.core.database import run

    direct = median(lambda: _to_active(owner, "fake"), count) * 1000
    yield figure("request to active, from Python, p50", direct, "ms", "5 ms", direct / 5)
    prepare(name="bench-single")
    handed = median(lambda: _handed_over(owner), count) * 1000
    yield figure("release to the waiter active, p50", handed, "ms", "25 ms", handed / 25)
    run("DROP TABLE IF EXISTS bench_noop; CREATE TABLE bench_noop (number bigint PRIMARY KEY)")
    try:
        with worker(2, "bench.noop") as process:
            yield from _queue(owner, count)
            yield from _memory(process)
    finally:
        run("DROP TABLE bench_noop")


def _queue(owner: int, count: int) -> Iterator[Figure]:
    prepare("fake_activated")
    _until_it_answers()
    pairs = [(noop(), _to_active(owner, "fake_activated")) for _ in range(count)]
    back, active = (statistics.median(column) * 1000 for column in zip(*pairs, strict=True))
    yield figure("request to active, through the queue, p50", active, "ms", "a Celery no-op", active / back)
    yield figure("round trip of a Celery no-op, p50", back, "ms")


@contextmanager
def worker(processes: int, *modules: str, beat: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """A worker with so many processes, which loads these modules too, for as long as the block. Without the `beat`
    nobody sweeps: what waits for a time is not gone on with."""
    command = [sys.executable, "-m", "celery", "-A", "drydock.celery", "--quiet", "worker", "-c", str(processes)]
    command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    command += ["-I", ",".join(modules), "-Q", "claims,steps,periodic", "-n", f"bench-{os.getpid()}@%h"]
    command += ["--beat", "--scheduler", "leases.schedule:Scheduler"] if beat else []
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def user(owner: int) -> Any:
    """The owner's account."""
    from django.contrib.auth import get_user_model

    return get_user_model()._default_manager.get(pk=owner)


def _until_it_answers() -> None:
    from leases.models import Resource

    end = time.monotonic() + 120
    while not Resource.objects.filter(type="fake_activated", state="active").exists():
        if time.monotonic() > end:
            raise TimeoutError("No resource was built within two minutes: does the worker start?")
        time.sleep(0.2)
    for _ in range(5):
        noop()


_numbers = itertools.count(1)


def noop() -> float:
    """A task that writes one row this process polls for: the same way back as a lease has."""
    from celery import current_app

    from leases.engine.core.database import rows

    number = next(_numbers)

    def round_trip() -> None:
        current_app.send_task("leases.noop", args=(number,), queue="claims", ignore_result=True)
        until(lambda: rows("SELECT 1 FROM bench_noop WHERE number = %s", (number,)))

    return seconds(round_trip)


def _to_active(owner: int, resource_type: str) -> float:
    """Seconds from asking until the lease is seen active; it is released and gone before the next."""
    from leases.allocator import Allocator

    asked = Allocator(resource_type, owner=user(owner))
    began = time.perf_counter()
    lease = asked.allocate()
    until(lambda: _is(lease.id, "active"))
    spent = time.perf_counter() - began
    lease.release()
    until(lambda: _is(lease.id, "destroyed"))
    return spent


def _handed_over(owner: int) -> float:
    """Seconds from the release of a resource that is held alone until whoever waits for it is seen active."""
    from leases.allocator import Allocator

    asked = Allocator("fake", owner=user(owner), exclusive=True, allowed_blueprints=("bench-single",))
    holder, waiter = asked.allocate(), asked.allocate()
    if not _is(holder.id, "active") or not _is(waiter.id, "pending"):
        raise RuntimeError("One was to hold and one to wait.")
    began = time.perf_counter()
    holder.release()
    until(lambda: _is(waiter.id, "active"))
    spent = time.perf_counter() - began
    waiter.release()
    return spent


def _is(lease_id: int, state: str) -> bool:
    from leases.engine.core.database import rows

    return bool(rows("SELECT 1 FROM leases_lease WHERE id = %s AND state = %s", (lease_id, state), hot=True))


def until(holds: Callable[[], object], limit: float = 60.0, every: float = 0.0005) -> None:
    """Look until it holds. Raises TimeoutError after `limit` seconds."""
    end = time.monotonic() + limit
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"Nothing came of it within {limit:.0f} s.")
        time.sleep(every)


def _memory(worker: subprocess.Popen[bytes]) -> Iterator[Figure]:
    import psutil

    family = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]
    largest = max(float(process.memory_info().rss) for process in family) / 2**20
    yield figure("memory of a worker process, largest", largest, "MiB", f"{MEMORY_MIB} MiB", largest / MEMORY_MIB)
    yield figure("cloud SDKs imported by a worker", len(_imported()), "packages")


def _imported() -> list[str]:
    """The SDKs in a process that has loaded what a worker loads."""
    look = "import sys, django; django.setup(); from drydock.celery import app as a; a.loader.import_default_modules()"
    told = subprocess.run(
        [sys.executable, "-c", f"{look}; print(*sys.modules)"], capture_output=True, text=True, check=True,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "drydock.settings"},
    )  # fmt: skip
    modules = told.stdout.split()
    return [name for name in SDKS if name in modules]
