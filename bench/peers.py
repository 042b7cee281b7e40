"""Two peers in the same run: OpenStack Placement (claim and delete over HTTP) and labgrid (over gRPC).

Each is installed into a virtual environment of its own, which goes with the bench; where it cannot be had, a line
says so. What they do is not the same work as ours; docs/bench.md says what differs.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import web
from bench.clients import Clients
from bench.figures import Figure, figure

CLIENTS = 4
PLACES = 100
PLACEMENT = ("openstack-placement==16.0.0", "psycopg2-binary", "gunicorn")
LABGRID = ("labgrid==26.0.1",)


def figures(owner: int, count: int, folder: Path) -> Iterator[Figure]:
    """All figures. `count`: cycles of each client; `folder`: for the environments, the caller's to remove."""
    with web.server(workers=CLIENTS, threads=1) as ours:
        token = web.token(owner)
        rate, cpu = _measured(lambda: _our_cycle(ours.port, token), ours.process.pid, _database(), count)
    yield figure(f"REST: lease and release, {CLIENTS} clients, {CLIENTS} web processes", rate, "cycles/s")
    yield figure("the same, CPU of server and database", cpu, "ms")
    yield from _or_why_not("Placement", lambda: _placement(folder / "placement", count, rate, cpu))
    yield from _or_why_not("labgrid", lambda: _labgrid(folder / "labgrid", owner, count))


def _or_why_not(name: str, measure: Callable[[], Iterator[Figure]]) -> Iterator[Figure]:
    try:
        yield from measure()
    except (OSError, subprocess.SubprocessError, RuntimeError) as error:
        said = getattr(error, "stderr", "") or str(error)
        print(f"{name} is left out: {said.strip().splitlines()[-1:] or type(error).__name__}", file=sys.stderr)


def _environment(folder: Path, packages: tuple[str, ...]) -> str:
    """The Python of a new virtual environment with these packages."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True, text=True, timeout=120)
    install = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--quiet", "install", *packages]
    subprocess.run(install, check=True, capture_output=True, text=True, timeout=300)
    return str(folder / "bin" / "python")


def _our_cycle(port: int, token: str) -> Callable[[], object]:
    caller = web.Caller(port, token)
    return lambda: caller.release(caller.lease())


def _database() -> str:
    from django.db import connection

    return str(connection.settings_dict["NAME"])


def _measured(make: Callable[[], Callable[[], object]], server: int, database: str, count: int) -> tuple[float, float]:
    """Cycles a second by all clients, and milliseconds of CPU of server and database for one."""
    web.rate(make, CLIENTS, 5)
    before = cpu_of_server(server, database)
    found = web.rate(make, CLIENTS, count)
    return found, (cpu_of_server(server, database) - before) / (CLIENTS * count) * 1000


def cpu_of_server(server: int, database: str = "") -> float:
    """CPU seconds of a server with its children, and of all connections to a database of this machine, if given."""
    import psutil

    from leases.engine.core.database import rows

    first = psutil.Process(server)
    backends = [int(pid) for (pid,) in rows("SELECT pid FROM pg_stat_activity WHERE datname = %s", (database,))]
    there = [psutil.Process(pid) for pid in backends if psutil.pid_exists(pid)]
    family = [first, *first.children(), *(one for one in there if one.name().startswith("postgres"))]
    times = [process.cpu_times() for process in family]
    return sum(float(one.user) + float(one.system) for one in times)


# Placement

_CONFIG = """
[DEFAULT]
use_stderr = false
log_file = {folder}/placement.log
[api]
auth_strategy = noauth2
[placement_database]
connection = {url}
sync_on_startup = true
"""
_HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39", "Content-Type": "application/json"}


def _placement(folder: Path, count: int, our_rate: float, our_cpu: float) -> Iterator[Figure]:
    python = _environment(folder, PLACEMENT)
    with _database_for("bench_placement") as url:
        (folder / "placement.conf").write_text(_CONFIG.format(url=url, folder=folder))
        subprocess.run([folder / "bin" / "placement-manage", "--config-file", folder / "placement.conf", "db", "sync"],
            check=True, capture_output=True, text=True, timeout=120)  # fmt: skip
        surroundings = {"OS_PLACEMENT_CONFIG_DIR": str(folder)}
        with web.server(
            "placement.wsgi.api:application", python=python, workers=CLIENTS, threads=1, environment=surroundings
        ) as one:
            providers = _providers(one.port)
            rate, cpu = _measured(
                lambda: _placement_cycle(one.port, providers), one.process.pid, "bench_placement", count
            )
    yield figure(f"Placement: claim and delete, {CLIENTS} clients", rate, "cycles/s", "ours by REST", our_rate / rate)
    yield figure("the same, CPU of server and database", cpu, "ms", "ours by REST", our_cpu / cpu)


@contextmanager
def _database_for(name: str) -> Iterator[str]:
    """A database beside ours, for as long as the block; its address as SQLAlchemy wants it."""
    from urllib.parse import quote, urlencode

    from django.db import connection

    from leases.engine.core.database import run

    run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    run(f"CREATE DATABASE {name}")
    given = {k: str(v) for k, v in connection.get_connection_params().items() if k in ("host", "port", "password")}
    user = quote(connection.settings_dict["USER"])
    try:
        yield f"postgresql+psycopg2://{user}@/{name}?{urlencode(given)}"
    finally:
        run(f"DROP DATABASE {name} WITH (FORCE)")


def _asks(connection: Any, method: str, path: str, body: Any = None) -> int:
    connection.request(method, path, None if body is None else json.dumps(body), _HEADERS)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status >= 300 and answer.status != 409:
        raise RuntimeError(f"{method} {path} answered {answer.status}: {content[:300]!r}")
    return int(answer.status)


def _connected(port: int) -> Any:
    import http.client

    return http.client.HTTPConnection("127.0.0.1", port, timeout=60)


def _providers(port: int) -> list[str]:
    """Resource providers with eight processors each; their ids."""
    connection, made = _connected(port), [str(uuid.uuid4()) for _ in range(PLACES)]
    for provider in made:
        _asks(connection, "POST", "/resource_providers", {"name": provider, "uuid": provider})
        inventory = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}}
        _asks(connection, "PUT", f"/resource_providers/{provider}/inventories", inventory)
    return made


def _placement_cycle(port: int, providers: list[str]) -> Callable[[], object]:
    """Claim on a provider chosen by chance, tried again on a conflict, and deleted."""
    import random

    connection, chance = _connected(port), random.Random(7)  # noqa: S311 - any provider will do

    def cycle() -> None:
        consumer = str(uuid.uuid4())
        while True:
            body = {
                "allocations": {chance.choice(providers): {"resources": {"VCPU": 1}}}, "project_id": "bench",
                "user_id": "bench", "consumer_generation": None, "consumer_type": "BENCH",
            }  # fmt: skip
            if _asks(connection, "PUT", f"/allocations/{consumer}", body) != 409:
                break
        _asks(connection, "DELETE", f"/allocations/{consumer}")

    return cycle


# labgrid


def _labgrid(folder: Path, owner: int, count: int) -> Iterator[Figure]:
    python = _environment(folder, LABGRID)
    with Clients(owner, 1) as clients:
        ours = clients.together("ours", times=count)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    coordinator = subprocess.Popen(
        [folder / "bin" / "labgrid-coordinator", "-l", address], cwd=folder,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        numbers = (str(PLACES), str(count), str(coordinator.pid))
        client = [python, Path(__file__).with_name("labgrid_client.py"), address, *numbers]
        done = subprocess.run(client, check=True, capture_output=True, text=True, timeout=120, env={**os.environ})
    finally:
        coordinator.terminate()
        coordinator.wait(30)
    for name, (rate, cpu) in json.loads(done.stdout).items():
        yield figure(f"labgrid: {name}, 1 client", rate, "cycles/s", "ours from Python", ours.rate / rate)
        yield figure("the same, CPU of client and coordinator", cpu, "ms", "ours from Python", ours.cpu_ms / cpu)
