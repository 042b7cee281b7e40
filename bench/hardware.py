"""Hardware: a scan against bare reading of the same files, and the reports of agents against a bare view.

`python -m bench.hardware [agents]` on an empty database of its own (DRYDOCK_STATE); prints a table.
"""

from __future__ import annotations

import gzip
import http.client
import itertools
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import population
from bench.figures import Figure, figure, seconds, show
from bench.installation import prepare
from bench.web import Server, server

if TYPE_CHECKING:
    from drydock_agent import Hardware

AGENTS = 300
INTERVAL, FLEET, SHARE = 60, 1_000, 0.05
"""Seconds between two reports of an agent, how many agents a fleet has, and the share of a core that it may take."""
CAPTURES = Path(os.environ.get("DRYDOCK_CAPTURES", Path(__file__).resolve().parents[2] / "shared" / "captures"))
_LARGE = CAPTURES / "sysfs" / "32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2"
"""A captured machine with 137 functions."""
_CARDS, _PLAIN = 8, 40
"""How many GPUs the reporting hosts have, and how many functions that nobody leases."""
_UNCHANGED, _CHANGED, _PER_DEVICE = 3, 6, 4
"""Statements that an unchanged report may take, and a changed one, and how many more for each changed device. The
authentication of the agent is not counted."""
_BLUEPRINTS = ("bench-accelerators", "bench-hosts")
_CALLS = 200
"""The least number of calls of the bare view, because the kernel counts CPU in steps of 10 ms."""
_BARE = "CREATE TABLE bench_bare (id bigserial PRIMARY KEY, body text); INSERT INTO bench_bare (body) VALUES ('one')"


def figures(*, agents: int = AGENTS, times: int = 60) -> Iterator[Figure]:
    """All figures. A scan is measured only where the captures are beside the repository."""
    if _LARGE.is_file():
        yield from _scans(times)
    else:
        print("The captures are not beside the repository, so no scan is measured.", file=sys.stderr)
    yield from _reports(agents, times)


def _scans(times: int) -> Iterator[Figure]:
    from drydock_agent import FolderTree, load_drivers, parse_fetched, scan, script

    drivers = load_drivers()
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(_LARGE) as archive:
            # Not as the argument `filter`, which Python 3.11.2 of Debian 12 does not have.
            archive.extraction_filter = lambda member, _: member
            archive.extractall(folder)  # noqa: S202  (a capture, whose links lead out of the folder)
        (root,) = map(str, Path(folder).iterdir())
        reads, count = _reads(root, lambda tree: scan(tree, drivers=drivers))
        printed = subprocess.run(["sh", "-s", root], input=script(drivers), capture_output=True, text=True, check=True)
        ours, bare, everything, parsed = _spent(
            times,
            lambda: scan(FolderTree(root), drivers=drivers),
            lambda: _read_again(reads["file"], [], []),
            lambda: _read_again(reads["file"], reads["link"], reads["folder"]),
            lambda: scan(parse_fetched(printed.stdout), drivers=drivers),
        )
    name = f"CPU of a scan of {count} functions"
    yield figure(name, ours * 1000, "ms", f"reading the same {len(reads['file'])} files", ours / bare)
    yield figure("the same against its files, links and folders", ours * 1000, "ms", "reading them", ours / everything)
    yield figure("CPU of a scan of what the script printed", parsed * 1000, "ms", "a scan of the folder", parsed / ours)


def _reads(root: str, scan: Callable[[Any], Any]) -> tuple[dict[str, list[str]], int]:
    """Return the paths of all files, links and folders that a scan reads, and how many devices it finds."""
    from drydock_agent import FolderTree

    read: dict[str, dict[str, None]] = {"file": {}, "link": {}, "folder": {}}

    class Recorded(FolderTree):
        def _target(self, real: str) -> str:
            read["link"][f"{root}/{real}"] = None
            return super()._target(real)

        def _list(self, path: str, real: str, most: int) -> list[str]:
            read["folder"][f"{root}/{real}"] = None
            return super()._list(path, real, most)

    tree = Recorded(root)
    found = scan(tree)
    read["file"] = {f"{root}/{tree._file(path)}": None for path, text in tree._texts.items() if text is not None}
    return {name: list(paths) for name, paths in read.items()}, len(found.devices)


def _read_again(files: list[str], links: list[str], folders: list[str]) -> None:
    for path in files:
        with open(path, "rb") as opened:
            opened.read()
    for path in links:
        os.readlink(path)
    for path in folders:
        os.listdir(path)


def _spent(times: int, *works: Callable[[], object]) -> list[float]:
    """The median CPU seconds of each; they take turns and meet the same noise."""
    found = []
    for _ in range(times + 2):
        spent = []
        for work in works:
            began = time.process_time()
            work()
            spent.append(time.process_time() - began)
        found.append(spent)
    return [statistics.median(column) for column in zip(*found[2:], strict=True)]


def _reports(agents: int, times: int) -> Iterator[Figure]:
    from leases.engine.core.database import run

    run(f"DROP TABLE IF EXISTS bench_bare; {_BARE}")
    try:
        hosts = _hosts(max(2, agents))
        hosts[0].send(hosts[0].browser(), 0)
        yield from _statements(hosts[0])
        with server() as web:
            first = _report_once(web, hosts)
            yield figure("CPU of the first report that a web process gets from an agent", first * 1000, "ms")
            yield from _against_a_bare_view(web, hosts[1:], times)
            yield from _fleet(web, hosts)
    finally:
        run("DROP TABLE bench_bare")
        _remove()


def _remove() -> None:
    """Remove the agents, and leave nothing of the hosts that a worker of a later bench would check."""
    from blueprints.models import Blueprint
    from leases.models import Agent, Resource, Sync

    mine = Blueprint.objects.filter(name__in=_BLUEPRINTS)
    for model in (Agent, Sync):
        model._default_manager.filter(blueprint__in=mine).delete()
    Resource.objects.filter(blueprint__in=mine).update(check_at=None)
    mine.update(enabled=False)


class Host:
    """A host with GPUs, and the token of its agent."""

    def __init__(self, number: int, token: str) -> None:
        self.number, self.sequence = number, 0
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def body(self, changed: int) -> bytes:
        """The host's next report, in which this number of GPUs have less memory than before."""
        from drydock.core import clock
        from drydock_agent.messages import HardwareReport, timestamp

        self.sequence += 1
        report = HardwareReport(
            sequence=self.sequence,
            boot_id="bench",
            time=timestamp(clock.now()),
            hardware=_machine(self.number, changed),
        )
        return report.to_body()

    def browser(self) -> Callable[[bytes], Any]:
        """Sends a report to the views of this process."""
        from django.test import Client

        client = Client(headers=self._headers, SERVER_NAME="127.0.0.1")

        def send(body: bytes) -> Any:
            answer = client.put("/api/v1/agents/me/hardware", body, content_type="application/json")
            return _answer(answer.status_code, answer.content)

        return send

    def caller(self, port: int, path: str = "/api/v1/agents/me/hardware", *, packed: bool = True) -> Any:
        """Sends a report to a web process, compressed as agents do."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = self._headers | ({"Content-Encoding": "gzip"} if packed else {})

        def send(body: bytes) -> Any:
            connection.request("PUT", path, body, headers)
            answer = connection.getresponse()
            return _answer(answer.status, answer.read())

        return send

    def send(self, send: Callable[[bytes], Any], changed: int, *, stored: bool = True) -> None:
        """Send the next report. Raises RuntimeError unless the server says that it was stored, or was not."""
        told = send(self.body(changed))
        if told["stored"] is not stored:
            raise RuntimeError(f"A report with {changed} changes was answered {told}.")


def _answer(status: int, content: bytes) -> Any:
    if status >= 300:
        raise RuntimeError(f"A report was answered {status}: {content[:300]!r}")
    return json.loads(content)


def _machine(number: int, changed: int = 0) -> Hardware:
    from drydock_agent import Device, Hardware, Host
    from drydock_agent.facts import Link, Readiness

    link = Link(speed=16.0, width=16, max_speed=16.0, max_width=16)
    same: dict[str, Any] = {"numa_node": 0, "local_cpus": "0-31", "root": "pci0000:00", "link": link}
    cards = [
        Device(
            id=f"0000:{n + 16:02x}:00.0", kind="gpu", device_class="gpu", role="lease_candidate", pci_class="030200",
            vendor_id="10de", device_id="20b2", vendor_name="NVIDIA Corporation", name="NVIDIA A100-SXM4-80GB",
            driver="nvidia", memory_mib=81920 - (n < changed), firmware={"vbios": "92.00.45", "driver": "535.54.03"},
            identities={"uuid": f"GPU-{number:08x}-0000-4000-8000-{n:012x}"}, nodes=(f"/dev/nvidia{n}",),
            attributes={"compute_capability": 8.0, "ecc": "Enabled", "mig": "Disabled"}, readiness=Readiness.READY,
            reason="The kernel driver nvidia is bound to the device.", found_by=("pci", "nvidia"), **same,
        )
        for n in range(_CARDS)
    ]  # fmt: skip
    plain = [
        Device(
            id=f"0000:00:{n // 8:02x}.{n % 8}", kind="other", pci_class="088000", vendor_id="8086", device_id="3cf0",
            vendor_name="Intel Corporation", readiness=Readiness.UNSUPPORTED,
            reason="This function is not a device that leases use.", found_by=("pci",), **same,
        )
        for n in range(_PLAIN)
    ]  # fmt: skip
    identities = {"dmi_uuid": f"4c4c4544-{number >> 16:04x}-1000-8000-{number & 0xFFFF:012x}"}
    return Hardware(host=Host(identities=identities, memory_mib=1 << 20), devices=tuple(plain + cards))


def _hosts(count: int) -> list[Host]:
    """Hosts whose agents have joined a blueprint. All but the first have reported: only the hash of that is stored."""
    from django.db.models.functions import Now

    from blueprints.models import Blueprint
    from blueprints.reports import Report, digest
    from leases.engine.core.database import rows
    from leases.models import Agent, Sync
    from leases.rest import tokens

    _, wholes = prepare("fake", _BLUEPRINTS[1], max_resources=0, min_ready=0)
    population.resources(wholes, "host", count)
    pieces = Blueprint.objects.create(
        name=_BLUEPRINTS[0], kind="accelerators", resource_type="accelerator", config={"reports": "sent"}
    )
    found = []
    for (host,) in rows("SELECT id FROM leases_resource WHERE blueprint_id = %s ORDER BY id", (wholes,)):
        hardware = _machine(host)
        agent = Agent.objects.create(
            blueprint=pieces, place=str(host), name=f"bench-{host}", interval=INTERVAL, boot_id="bench",
            identities=dict(hardware.host.identities), joined_at=Now(), reported_at=Now(),
        )  # fmt: skip
        if found:
            said = digest(pieces.generation, [Report(place=str(host), content=hardware.to_json())])
            Sync.objects.create(
                blueprint=pieces, place=str(host), source=Sync.Source.SENT, digest=said, applied_at=Now()
            )  # fmt: skip
        agent.refresh_from_db()
        found.append(Host(host, tokens.create_for_agent(agent)[0]))
    return found


def _statements(host: Host) -> Iterator[Figure]:
    from django.db import connection

    from bench.cycle import Statements

    send = host.browser()
    host.send(send, 0, stored=False)
    for changed in (0, 1, _CARDS):
        counted = Statements()
        with connection.execute_wrapper(counted):
            host.send(send, changed, stored=bool(changed))
        sent, most = counted.seen.total() - 1, _CHANGED + _PER_DEVICE * changed if changed else _UNCHANGED
        what = f"of which {changed} changed" if changed else "none changed"
        yield figure(f"statements of a report of {_CARDS} GPUs, {what}", sent, "statements", str(most), sent / most)
        if changed:
            host.send(send, 0)


def _against_a_bare_view(web: Server, hosts: list[Host], times: int) -> Iterator[Figure]:
    pairs = []
    for one in itertools.islice(itertools.cycle(hosts), times * 4 + 10):
        ours, bare = one.caller(web.port), one.caller(web.port, "/bare/", packed=False)
        body = one.body(0)
        packed = gzip.compress(body, 6, mtime=0)
        pairs.append((seconds(partial(ours, packed)), seconds(partial(bare, body))))
    spent, against = (statistics.median(column) for column in zip(*pairs[10:], strict=True))
    yield figure("PUT hardware, nothing changed", spent * 1000, "ms", "a bare view that reads a row", spent / against)


def _fleet(web: Server, hosts: list[Host], rounds: int = 3) -> Iterator[Figure]:
    """The CPU of the web process for as many reports as there are agents, none of which has changed."""
    ours, bare = [], []
    turns = range(max(1, _CALLS // len(hosts)))
    for _ in range(rounds):
        ours.append(_report_once(web, hosts))  # once, because an agent may send a limited number of reports
        callers = [(one.caller(web.port, "/bare/", packed=False), one.body(0)) for one in hosts]
        calls = [partial(send, body) for send, body in callers for _ in turns]
        bare.append(_cpu_of_each(web, calls)[0])
    each, against = statistics.median(ours), statistics.median(bare)
    yield figure("the same, CPU of the web process", each * 1000, "ms", "a bare view that reads a row", each / against)
    share = each * FLEET / INTERVAL
    name = f"{FLEET} agents, each reporting every {INTERVAL} s"
    yield figure(name, share, "cores", f"{SHARE:g} cores", share / SHARE)


def _report_once(web: Server, hosts: list[Host]) -> float:
    """Let every agent send a report that has not changed. Return the CPU seconds of the web process for each."""
    callers = [(one.caller(web.port), gzip.compress(one.body(0), 6, mtime=0)) for one in hosts]
    each, answers = _cpu_of_each(web, [partial(send, body) for send, body in callers])
    if any(answer["stored"] for answer in answers):
        raise RuntimeError("A report that has not changed was stored.")
    return each


def _cpu_of_each(web: Server, calls: list[Callable[[], Any]]) -> tuple[float, list[Any]]:
    from bench.peers import cpu_of_server

    before = cpu_of_server(web.process.pid)
    answers = [call() for call in calls]
    return (cpu_of_server(web.process.pid) - before) / len(calls), answers


def main() -> None:
    given = [int(word) for word in sys.argv[1:] if word.isdigit()]
    prepare(max_resources=None, min_ready=0)
    show(figures(agents=given[0] if given else AGENTS))


if __name__ == "__main__":
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "drydock.settings")
    django.setup()
    main()
