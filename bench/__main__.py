"""`make bench`: every figure with the ratio of its own run, as a table and in bench/results/latest.json.

An installation of its own (a state folder that is removed afterwards) unless DATABASE_URL says otherwise: then an
empty database.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Figure, keep, show

RESULTS = Path(__file__).parent / "results" / "latest.json"


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How much is measured. All sizes follow from two numbers."""

    cycles: int
    """Warm cycles of each process in each round."""
    history: int
    """Ended leases in the table."""
    peers: bool
    dpus: bool | None
    """Whether DPUs are measured on a real API server, which takes minutes at any size. None: nothing else is."""

    @property
    def times(self) -> int:
        """How often a latency is taken."""
        return max(3, self.cycles // 4)

    @property
    def seconds(self) -> float:
        """How long the steady run takes."""
        return min(60.0, 60.0 * self.cycles / 200)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many resources there are: 100, 10,000 and 100,000 with a million ended leases."""
        return tuple(sorted({min(100, self.history // 10), self.history // 100, self.history // 10}))

    @property
    def waiters(self) -> int:
        """How many leases wait at most."""
        return self.history // 100


def measure(extent: Extent, folder: Path, results: Path) -> None:
    """Everything in turn; what was measured is kept even when something later fails."""
    import django

    django.setup()
    found: list[Figure] = []
    try:
        for one in _figures(extent, folder):
            found.append(one)
            print(f"{time.strftime('%H:%M:%S')}  {one.name}: {one.value:g} {one.unit}", file=sys.stderr)
    finally:
        show(found)
        keep(found, results)


def _figures(extent: Extent, folder: Path) -> Iterator[Figure]:
    from bench import (
        cycle,
        fleet,
        hanging,
        hardware,
        imaging,
        latency,
        metal,
        peers,
        provisioning,
        scale,
        trees,
        watching,
        web,
    )
    from bench.installation import prepare

    owner, blueprint = prepare(max_resources=None, min_ready=0)
    if extent.dpus is None:
        yield from _of_dpus(owner, extent)
        return
    yield from cycle.figures(owner, blueprint, extent.cycles, extent.seconds)
    yield from latency.figures(owner, extent.times)
    yield from web.figures(owner, extent.times)
    yield from hanging.figures(owner, max(20, extent.times * 4))
    if extent.peers:
        yield from peers.figures(owner, extent.cycles, folder)
    scale.clear()
    yield from scale.figures(owner, blueprint, history=extent.history, sizes=extent.sizes, waiters=extent.waiters)
    yield from trees.figures(hosts=extent.history // 100, times=extent.times)
    yield from hardware.figures(agents=max(3, extent.history // 3333), times=extent.times)
    yield from provisioning.figures(owner, machines=max(5, extent.history // 2000), times=extent.times)
    yield from metal.figures(owner, machines=max(5, extent.history // 2000), boots=max(1, extent.times // 10))
    yield from imaging.figures(mib=max(16, extent.history // 1000))
    yield from watching.figures(dpus=max(10, extent.history // 10_000), changes=extent.times, seconds=extent.seconds)
    if extent.dpus:
        yield from _of_dpus(owner, extent)
    yield from fleet.figures(offers=max(20, extent.history // 50), machines=max(20, extent.history // 200))


def _of_dpus(owner: int, extent: Extent) -> Iterator[Figure]:
    from bench import dpus

    idle, builds = max(10, extent.history // 1000), max(2, extent.history // 5000)
    yield from dpus.figures(owner, dpus=idle, builds=builds, seconds=extent.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description="Figures of speed and scale.")
    parser.add_argument("--cycles", type=int, default=200, help="warm cycles of each process in each round")
    parser.add_argument("--history", type=int, default=1_000_000, help="ended leases; all other sizes follow from it")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="without Placement and labgrid")
    parser.add_argument(
        "--no-dpus",
        dest="dpus",
        action="store_const",
        const=False,
        default=True,
        help="without a Kubernetes API server",
    )
    parser.add_argument(
        "--only-dpus", dest="dpus", action="store_const", const=None, help="only DPUs on a Kubernetes API server"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file that is written")
    given = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "drydock.settings")
    extent = Extent(cycles=max(1, given.cycles), history=max(100, given.history), peers=given.peers, dpus=given.dpus)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is below is cleared away
    folder = Path(tempfile.mkdtemp(prefix=f"dd-bench-{os.getpid()}-", dir="/tmp"))
    folder.chmod(0o711)  # as root the engines run as another user, who must pass through
    try:
        if not os.environ.get("DATABASE_URL"):
            os.environ["DRYDOCK_STATE"] = str(folder)
        os.environ["DRYDOCK_FAKE_CLOUD"] = str(folder / "cloud")
        measure(extent, folder, given.results)
    finally:
        _stop(folder)


def _stop(folder: Path) -> None:
    from django.db import connections

    from drydock.engines import Config, leave, wait_until_stopped

    connections.close_all()
    if os.environ.get("DRYDOCK_STATE") == str(folder):
        leave(folder)
        wait_until_stopped(Config(state=folder), 30)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
