"""Over REST: from request to active, and `POST lease` by eight clients against a bare DRF view.

One gunicorn process with threads, as `make up` starts it, serves both.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.figures import Figure, figure, seconds

CLIENTS = 8
PRODUCT = {"DJANGO_SETTINGS_MODULE": "bench.websettings", "DRYDOCK_REQUESTS_PER_MINUTE": "100000000"}


def figures(owner: int, count: int) -> Iterator[Figure]:
    """All figures. `count`: requests of each client; the leases of the type must have room for all of them."""
    from leases.engine.core.database import run

    run("DROP TABLE IF EXISTS bench_bare; CREATE TABLE bench_bare (id bigserial PRIMARY KEY, body text)")
    try:
        with server() as one:
            yield from _latency(Caller(one.port, token(owner)), count)
            yield from _load(one.port, token(owner), count)
    finally:
        run("DROP TABLE bench_bare")


class Caller:
    """One HTTP connection with a token, kept open."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def post(self, path: str, body: Any) -> Any:
        """The answer's JSON. Raises RuntimeError unless it is a success."""
        return self._ask("POST", path, json.dumps(body))

    def get(self, path: str) -> Any:
        """The same of what is only read."""
        return self._ask("GET", path, None)

    def _ask(self, method: str, path: str, body: str | None) -> Any:
        self._connection.request(method, path, body, self._headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{path} answered {answer.status}: {content[:300]!r}")
        return json.loads(content)

    def lease(self) -> Any:
        """Ask for a lease: what the answer says of it."""
        return self.post("/api/v1/leases", {"type": "fake"})

    def release(self, lease: Any) -> None:
        self.post(f"/api/v1/leases/{lease['id']}/release", {})

    def me(self) -> Any:
        return self.get("/api/v1/me")

    def bare(self) -> Any:
        return self.post("/bare/", {"type": "fake"})


def _latency(caller: Caller, count: int) -> Iterator[Figure]:
    asked, bare = [], []
    for _ in range(count + 3):
        began = time.perf_counter()
        lease = caller.lease()
        asked.append(time.perf_counter() - began)
        if lease["state"] != "active":
            raise RuntimeError(f"It is {lease['state']}: {lease['message']}")
        caller.release(lease)
        bare.append(seconds(caller.bare))
    ours, theirs = statistics.median(asked[3:]) * 1000, statistics.median(bare[3:]) * 1000
    yield figure("request to active, by REST, p50", ours, "ms", "25 ms", ours / 25)
    yield figure("the same against a bare DRF view", ours, "ms", "bare view", ours / theirs)


def _load(port: int, shown: str, count: int) -> Iterator[Figure]:
    made: list[Any] = []

    def asks() -> Callable[[], object]:
        caller = Caller(port, shown)
        return lambda: made.append(caller.lease())

    ours = rate(asks, CLIENTS, count)
    bare = rate(lambda: Caller(port, shown).bare, CLIENTS, count)
    releasing = Caller(port, shown)
    for lease in made:
        releasing.release(lease)
    yield figure(f"POST lease, {CLIENTS} clients", ours, "requests/s", "bare view", ours / bare)
    yield figure(f"bare DRF view that inserts a row, {CLIENTS} clients", bare, "requests/s")


def rate(make: Callable[[], Callable[[], object]], clients: int, count: int) -> float:
    """So many calls by each of the clients, at the same time: how many a second."""
    errors: list[BaseException] = []

    def run(act: Callable[[], object]) -> None:
        try:
            for _ in range(count):
                act()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(make(),)) for _ in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return clients * count / (time.perf_counter() - began)


_names = itertools.count(1)


def token(owner: int) -> str:
    from django.contrib.auth import get_user_model

    from leases.operations.callers import caller
    from leases.rest import tokens

    user = get_user_model()._default_manager.get(pk=owner)
    return tokens.create(caller(user), name=f"bench {next(_names)}", scope="lease")[1]


@dataclass(frozen=True)
class Server:
    """A web server: its first process, and the port on which it answers."""

    process: subprocess.Popen[bytes]
    port: int


@contextmanager
def server(
    application: str = "drydock.wsgi", *, python: str = sys.executable, workers: int = 1, threads: int = 8,
    environment: dict[str, str] = PRODUCT,
) -> Iterator[Server]:  # fmt: skip
    """gunicorn with an application, until the block ends."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        port = int(listening.getsockname()[1])
        command = [python, "-m", "gunicorn", application, "--bind", f"fd://{listening.fileno()}"]
        command += ["--worker-class", "drydock.webworker.Worker", "--workers", str(workers), "--threads", str(threads)]
        command += ["--log-level", "error", "--graceful-timeout", "3", "--timeout", "120"]
        process = subprocess.Popen(command, env={**os.environ, **environment}, pass_fds=[listening.fileno()])
    try:
        _until_it_answers(port, process)
        yield Server(process, port)
    finally:
        process.terminate()
        process.wait(30)


def _until_it_answers(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
        else:
            return
    raise TimeoutError("The web process of the bench did not answer within a minute.")
