"""Watches of DPF: how soon a step is due after a change, and what idle DPUs cost the API server.

`python -m bench.watching [dpus]` on an empty database of its own (DRYDOCK_STATE); prints a table. The API server is one
in this process, which lists, reports changes, and counts requests; it stores nothing else.
"""

from __future__ import annotations

import datetime as dt
import json
import queue
import ssl
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from typing import Any
from urllib.parse import parse_qs, urlsplit

from bench.figures import Figure, figure, show
from bench.installation import prepare

GROUP, NAMESPACE = "provisioning.dpu.nvidia.com", "dpus"
API = f"/apis/{GROUP}/v1alpha1"
DPUS = 100
AT_MOST = 3.0
"""How much later than a bare watch hears of a change a step may be due."""
CHANGES = 40
IDLE = 60.0
"""Seconds for which idle DPUs are looked at, each of which would be checked twice."""
_INTERVAL = 30
_LATER = "2100-01-01T00:00Z"
_SPEC = {"cluster": {}, "dpuNodeName": "node"}


class ApiServer:
    """An API server with DPUs; leave the block to end it."""

    def __init__(self) -> None:
        context, self.ca = _certificate()
        self.requests: Counter[str] = Counter()
        self._dpus: dict[str, dict[str, Any]] = {}
        self._version = 1
        self._watches: list[queue.SimpleQueue[dict[str, Any]]] = []
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.context, self._server.api = context, self
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> ApiServer:
        return self

    def __exit__(self, *error: object) -> None:
        for one in self._watches:
            one.put({})
        self._server.shutdown()
        self._server.server_close()

    @property
    def credential(self) -> dict[str, str]:
        """The secrets of a credential for this server."""
        return {"server": f"https://127.0.0.1:{self._server.server_address[1]}", "token": "bench", "ca": self.ca}

    def write(self, name: str, labels: Mapping[str, str]) -> None:
        """Create or change a DPU that is ready, and report it to all watches."""
        with self._lock:
            self._version += 1
            metadata = {"name": name, "namespace": NAMESPACE, "uid": name, "resourceVersion": str(self._version)}
            dpu = {"metadata": {**metadata, "labels": dict(labels)}, "spec": _SPEC, "status": {"phase": "Ready"}}
            self._dpus[name] = dpu
            for one in self._watches:
                one.put({"type": "MODIFIED", "object": dpu})

    def listing(self, labels: Mapping[str, str]) -> dict[str, Any]:
        """Return the DPUs with these labels."""
        with self._lock:
            found = [one for one in self._dpus.values() if labels.items() <= one["metadata"]["labels"].items()]
            return {"metadata": {"resourceVersion": str(self._version)}, "items": found}

    def watch(self) -> queue.SimpleQueue[dict[str, Any]]:
        """Return a queue of the changes from now on."""
        made: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        with self._lock:
            self._watches.append(made)
        return made


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    context: ssl.SSLContext
    api: ApiServer

    def finish_request(self, request: Any, client_address: Any) -> None:
        with suppress(OSError), self.context.wrap_socket(request, server_side=True) as secured:
            _Handler(secured, client_address, self)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def api(self) -> ApiServer:
        assert isinstance(self.server, _Server)
        return self.server.api

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        self.api.requests["watch" if "watch" in query else "list" if "limit" in query else "get"] += 1
        if "watch" in query:
            return self._watch(float(query["timeoutSeconds"]))
        if url.path == f"{API}/namespaces/{NAMESPACE}/dpus":
            pairs = (one.split("=", 1) for one in query.get("labelSelector", "").split(",") if one)
            return self._answer(self.api.listing({key: value for key, value in pairs}))
        known = {"group": GROUP, "version": "v1alpha1"}
        return self._answer({
            "/apis": {"groups": [{"name": GROUP, "preferredVersion": {"groupVersion": f"{GROUP}/v1alpha1"}}]},
            API: {"groupVersion": f"{GROUP}/v1alpha1", "resources": [
                {"name": "dpus", "kind": "DPU", "namespaced": True, **known},
            ]},
            "/openapi/v2": {"definitions": {}},
        }.get(url.path, {"metadata": {}, "items": []}))  # fmt: skip

    def _answer(self, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self, seconds: float) -> None:
        changes, until = self.api.watch(), time.monotonic() + seconds
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(queue.Empty, OSError):
            while event := changes.get(timeout=max(0.0, until - time.monotonic())):
                line = json.dumps(event).encode() + b"\n"
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        with suppress(OSError):
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _certificate() -> tuple[ssl.SSLContext, str]:
    """The context of a server, and the certificate that it has made itself, as PEM text."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bench")])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    text = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(private + text)
        file.flush()
        context.load_cert_chain(file.name)
    return context, text.decode()


def figures(*, dpus: int = DPUS, changes: int = CHANGES, seconds: float = IDLE) -> Iterator[Figure]:
    """All figures, on rows of their own."""
    with ApiServer() as server, _blueprint(server) as blueprint:
        few, many = max(1, dpus // 10), dpus
        _add(server, blueprint, few)
        with _watched():
            due, bare = _latencies(server, changes)
            yield figure(
                "change of a DPU -> its step is due, p50", due * 1000, "ms", "a bare watch", due / max(bare, 1e-4)
            )
            rate = _idle(server, seconds)
            yield figure(f"requests of {few} idle DPUs, watched", rate, "requests/min")
            _add(server, blueprint, many - few)
            more = _idle(server, seconds)
            yield figure(
                f"requests of {many} idle DPUs, watched", more, "requests/min", f"{few}", more / max(rate, 1.0)
            )
        polled = _idle(server, seconds)
        yield figure(
            f"requests of {many} idle DPUs without a watch", polled, "requests/min", "watched", polled / max(more, 1.0)
        )


@contextmanager
def _blueprint(server: ApiServer) -> Iterator[int]:
    from blueprints.models import Blueprint, Credential
    from leases.models import Resource

    account = Credential(name="bench-dpf")
    account.secrets = server.credential
    account.save()
    config = {"credential": "bench-dpf", "namespace": NAMESPACE, "image": "http://127.0.0.1/a.bfb", "flavor": "f"}
    made = Blueprint.objects.create(
        name="bench-dpf", kind="dpf", resource_type="dpu", config=config, check_interval=f"00:00:{_INTERVAL}",
        idle_timeout=None,
    )  # fmt: skip
    yield made.pk
    Blueprint.objects.filter(pk=made.pk).update(enabled=False)
    Resource.objects.filter(blueprint=made).update(check_at=None)


def _add(server: ApiServer, blueprint: int, count: int) -> None:
    """Add resources, each with its DPU, whose checks fall due within one interval."""
    from bench import population
    from blueprints.kube import proof_labels
    from leases.engine.core import specs
    from leases.engine.core.database import run
    from leases.models import Resource

    known = set(Resource.objects.filter(blueprint=blueprint).values_list("pk", flat=True))
    population.resources(blueprint, "dpu", count, slots=1)
    for row in Resource.objects.filter(blueprint=blueprint).exclude(pk__in=known).select_related("blueprint"):
        server.write(f"dpu-{row.pk}", proof_labels(specs.tags(row)))
    run(
        "UPDATE leases_resource SET attributes = '{}', traits = '{}', check_at = now() + random() * %s * interval '1 s'"
        " WHERE blueprint_id = %s AND check_at IS NULL",
        (_INTERVAL, blueprint),
    )


@contextmanager
def _watched() -> Iterator[None]:
    """Watch as a worker does."""
    from leases.messaging.watcher import Watcher
    from leases.models import ProviderWatch

    watcher = Watcher()
    try:
        _wait(lambda: ProviderWatch.objects.exclude(listed_at=None).count() == ProviderWatch.objects.count() > 0)
        yield
    finally:
        watcher.end()


def _wait(what: Any) -> None:
    end = time.monotonic() + 60
    while not what():
        if time.monotonic() > end:
            raise TimeoutError("the watch does not begin")
        time.sleep(0.05)


def _latencies(server: ApiServer, changes: int) -> tuple[float, float]:
    """Return the medians of the seconds until a step is due after a change, and until a bare watch has heard of it."""
    from leases.models import Resource, Run

    row = Resource.objects.filter(blueprint__name="bench-dpf").order_by("pk")[0]
    run = Run.objects.create(resource=row, phase="check", due_at=_LATER)
    due, bare = [], []
    with _listening(server) as heard, _committed() as committed:
        for _ in range(changes + 2):
            Run.objects.filter(pk=run.pk).update(due_at=_LATER, woken_at=None)
            labels = _labels(server, f"dpu-{row.pk}")
            time.sleep(0.05)
            began = time.perf_counter()
            server.write(f"dpu-{row.pk}", labels)
            due.append(committed.get(timeout=30) - began)
            bare.append(heard.get(timeout=30) - began)
            if not Run.objects.filter(pk=run.pk, due_at__lt="2099-01-01T00:00Z").exists():
                raise RuntimeError("The watch has committed something, but the run is not due.")
    run.delete()
    return statistics.median(due[2:]), statistics.median(bare[2:])


@contextmanager
def _listening(server: ApiServer) -> Iterator[queue.SimpleQueue[float]]:
    """Watch without anything else, in a thread, and provide the times at which changes are heard of."""
    from blueprints.kube import Changed, Pause, connect, find_type, follow

    heard: queue.SimpleQueue[float] = queue.SimpleQueue()
    cluster = connect(server.credential)
    type_ = find_type(cluster, "DPU")
    assert type_ is not None
    news = follow(cluster, type_, NAMESPACE)

    def listen() -> None:
        for one in news:
            if isinstance(one, Pause):
                return
            if isinstance(one, Changed):
                heard.put(time.perf_counter())

    next(news)
    threading.Thread(target=listen, daemon=True).start()
    time.sleep(1.0)
    yield heard
    cluster.end_watches()


@contextmanager
def _committed() -> Iterator[queue.SimpleQueue[float]]:
    """Provide the times at which the watch has made a run due, which is when it sends a hint about it.

    Another connection that asked the database would hold up the watch.
    """
    from leases.messaging import hints

    found: queue.SimpleQueue[float] = queue.SimpleQueue()
    send = hints.send

    def noted(hint: str, *args: object) -> bool:
        if threading.current_thread().name.startswith("drydock-watch-"):
            found.put(time.perf_counter())
        return send(hint, *args)

    hints.send = noted
    try:
        yield found
    finally:
        hints.send = send


def _labels(server: ApiServer, name: str) -> dict[str, str]:
    found = server.listing({})["items"]
    return dict(next(one["metadata"]["labels"] for one in found if one["metadata"]["name"] == name))


def _idle(server: ApiServer, seconds: float) -> float:
    """Sweep for some time, in which every DPU is checked twice without a watch. Return the requests in a minute.

    The check that follows the creation of a DPU does not count.
    """
    from leases.messaging.inline import settle
    from leases.models import Resource

    settle()
    time.sleep(1.0)
    settle()
    Resource.objects.update(changed=False)
    before, end = server.requests.total(), time.monotonic() + seconds
    while time.monotonic() < end:
        settle()
        time.sleep(0.5)
    return (server.requests.total() - before) * 60.0 / seconds


def main() -> None:
    import django

    django.setup()
    prepare()
    show(list(figures(dpus=int(sys.argv[1]) if len(sys.argv) > 1 else DPUS)))


if __name__ == "__main__":
    main()
