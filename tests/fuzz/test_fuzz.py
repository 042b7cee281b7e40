"""No 5xx, no worker lost, memory bounded: a few seconds in every run, as long as is wanted with `make fuzz`."""

from __future__ import annotations

import os
import random
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import psutil
import pytest
from django.contrib.auth.models import User
from django.db import connection

from blueprints.layered.workingcopy.names import checked_ref, protocol_of
from blueprints.layered.workingcopy.work import _progress, _words
from blueprints.userdata import cloud_config
from drydock.celery import app
from drydock.core.errors import DrydockError
from interfaces.command.metering import parse
from interfaces.command.shell import _job
from interfaces.ssh.sftp import check_answer
from leases.messaging import hints
from leases.models import Installation, Lease
from leases.operations import leases
from leases.operations.callers import caller
from leases.rest import tokens
from tests.engines.users import eventually
from tests.fuzz import cases
from tests.leases.conftest import _database, blueprint  # noqa: F401
from tests.leases.test_workers import _hints_are_sent  # noqa: F401
from tests.servers import Server
from tests.settings import DATABASE
from tests.workers import Worker

SECONDS = float(os.environ.get("DRYDOCK_FUZZ_SECONDS") or 3)
SEED = int(os.environ.get("DRYDOCK_FUZZ_SEED") or 1)
CORPUS = Path(__file__).with_name("corpus.txt")
MOST_GROWN = 200 << 20
"""Bytes by which a process may grow, whatever it is sent."""
pytestmark = [pytest.mark.timeout(SECONDS + 240), pytest.mark.usefixtures("_hints_are_sent")]


class Site:
    """A web process and a worker, a lease in both, and what is tried on them."""

    def __init__(self, url: str, secret: str, lease: int) -> None:
        self.url, self.secret, self.lease = url, secret, lease
        self.sorts: dict[str, Callable[[random.Random], None]] = {
            "rest": self.rest, "archive": self.archive, "name": self.name, "message": self.message,
            "sftp": self.sftp, "host": self.host, "config": self.config,
        }  # fmt: skip
        self.answers: Counter[int] = Counter()

    def rest(self, rng: random.Random) -> None:
        method, address = rng.choice(cases.ADDRESSES)
        self.call(method, address.format(id=self.lease), cases.body(rng), "application/json")

    def archive(self, rng: random.Random) -> None:
        self.call("PUT", f"leases/{self.lease}/tree?path=in", cases.archive(rng), "application/x-tar")

    def name(self, rng: random.Random) -> None:
        path = "/".join(rng.choice(cases.WORDS) for _ in range(rng.randrange(1, 6)))
        query = urllib.parse.urlencode({"path": path}, errors="surrogatepass")
        method, address = rng.choice([("GET", "file"), ("PUT", "file"), ("GET", "files"), ("DELETE", "file")])
        self.call(method, f"leases/{self.lease}/{address}?{query}", b"x" if method == "PUT" else None, "x/y")

    def message(self, rng: random.Random) -> None:
        with app.connection_for_write() as broker:
            channel = broker.default_channel
            channel.client.lpush(rng.choice(["claims", "steps", "periodic"]), cases.message(rng))

    def sftp(self, rng: random.Random) -> None:
        whole = bytes(8) + b"\0\0\0\1\0\0\0\1a\0\0\0\0" + rng.randbytes(rng.randrange(60))
        try:
            check_answer(rng.choice([2, 101, 102, 103, 104, 105, 201, 7]), cases.spoiled(rng, whole))
        except paramiko.SFTPError:
            return

    def host(self, rng: random.Random) -> None:
        text = cases.spoiled(rng, b"host b 100 4096\nprocess 1.2 3 4 5\njob 1.2.b 0m0.1s\nReceiving objects:  40%\n")
        said = text.decode("utf-8", "replace")
        for read in (parse, lambda said: _progress(said, {}), _words, lambda _: _job(text, "1")):
            try:
                read(said)
            except DrydockError:
                continue

    def config(self, rng: random.Random) -> None:
        text = cases.spoiled(rng, b"packages: [git]\nruncmd:\n- [sh, -c, 'x']\na: {b: 1}\n").decode("utf-8", "replace")
        for read in (cloud_config, checked_ref, protocol_of):
            try:
                read(text)
            except ValueError:
                continue

    def call(self, method: str, address: str, content: bytes | None, kind: str) -> None:
        headers = {"Authorization": f"Bearer {self.secret}", "Content-Type": kind}
        request = urllib.request.Request(f"{self.url}/api/v1/{address}", content, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                code, said = answer.status, b""
        except urllib.error.HTTPError as error:
            with error:
                code, said = error.code, error.read(2000)
        self.answers[code] += 1
        assert code < 500, f"{method} {address}: {code} {said!r}"


@pytest.fixture
def site(tmp_path: Path, blueprint: Callable[..., object]) -> Iterator[tuple[Site, list[psutil.Process]]]:  # noqa: F811
    """The site, and its processes whose memory is bounded."""
    blueprint()
    database = str(connection.settings_dict["NAME"])
    environment = {DATABASE: database, "DRYDOCK_REQUESTS_PER_MINUTE": "1000000", "DRYDOCK_FAKE_CLOUD": str(tmp_path)}
    os.environ["DRYDOCK_REQUESTS_PER_MINUTE"] = "1000000"
    worker = Worker(environment)
    try:
        worker.wait_ready()
        owner = User.objects.create_user("ada")
        _, secret = tokens.create(caller(owner), name="fuzz", scope="lease")
        lease = leases.request(caller(owner), {"type": "fake"})
        eventually(lambda: Lease.objects.filter(pk=lease, state="active").exists())
        with Server.on(database, tmp_path / "web.log") as server:
            processes = [psutil.Process(server.process.pid), psutil.Process(worker.process.pid)]
            yield Site(server.url, secret, lease), [*processes, *processes[0].children()]
    finally:
        del os.environ["DRYDOCK_REQUESTS_PER_MINUTE"]
        worker.stop()


@pytest.mark.slow
def test_nothing_that_is_sent_ends_a_process_or_is_a_500(site: tuple[Site, list[psutil.Process]]) -> None:
    tried, processes = site
    kept = [line for line in CORPUS.read_text().split("\n") if line and not line.startswith("#")]
    plan = random.Random(SEED)
    begun, before = time.monotonic(), [process.memory_info().rss for process in processes]
    failed, done = dict[str, str](), Counter[str]()
    while kept or time.monotonic() - begun < SECONDS:
        seed = kept.pop() if kept else f"{plan.choice(list(tried.sorts))}:{plan.getrandbits(48)}"
        sort = seed.partition(":")[0]
        try:
            tried.sorts[sort](random.Random(seed))
        except Exception as error:
            failed[seed] = f"{type(error).__name__}: {error}"[:400]
        done[sort] += 1
    grown = [process.memory_info().rss - rss for process, rss in zip(processes, before, strict=True)]
    swept = Installation.objects.values_list("swept_at").first()
    eventually(lambda: hints.send("sweep") and Installation.objects.values_list("swept_at").first() != swept, 60)
    told = {"tried": dict(done), "answers": dict(tried.answers)}
    print(f"seed {SEED}, {SECONDS:g} s: {told}, grown by {[one >> 20 for one in grown]} MiB", file=sys.stderr)
    if SECONDS > 60 and failed:
        with CORPUS.open("a") as corpus:
            corpus.writelines(f"{seed}\n" for seed in failed)
    assert not failed, "\n".join(f"{seed}  {said}" for seed, said in failed.items())
    assert all(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)
    assert max(grown) < MOST_GROWN
