"""A strict double of Azure Resource Manager over TLS, on this machine.

    with AzureDouble() as double:
        client = Azure(Credential(**double.credential()))

As a program: `python -m tests.clouds.azure.double --port-file F` writes JSON with endpoint, ca_bundle, token,
subscription_id and resource_group to F, and runs until it is ended.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import trustme

from tests.clouds.azure.answers import Answer, Answers, Call
from tests.clouds.azure.faults import Fault, Refusal, Want
from tests.clouds.azure.ground import Ground
from tests.clouds.azure.things import NETWORK, Json, Machine, Thing

SUBSCRIPTION, GROUP, TOKEN = "00000000-1111-2222-3333-444444444444", "drydock-tests", "token-of-the-double"


class AzureDouble:
    """The server, and what a test tells it. `duration`: seconds that every long operation takes."""

    def __init__(
        self,
        *,
        duration: float = 0.05,
        page_size: int = 3,
        on_start: Callable[[Machine], str] | None = None,
        on_end: Callable[[Machine], None] | None = None,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="azure-double-"))
        self.ca_bundle = str(self._folder / "ca.pem")
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.ca_bundle)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
        self.ground = Ground(SUBSCRIPTION, GROUP, duration)
        self.ground.on_start, self.ground.on_end = on_start, on_end
        self.faults: list[Fault] = []
        self.calls: list[Call] = []
        self.spoils: Callable[[str], tuple[int, str, bytes] | None] = lambda call: None
        """What answers `GET /path` in Azure's place, as a broken proxy would: status, content type, body."""
        self._server = _Server(self, context)
        self.port = self._server.server_address[1]
        self.endpoint = f"https://127.0.0.1:{self.port}"
        self.answers = Answers(self.ground, self.endpoint, page_size)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="azure-double")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server, its connections, its threads, what was started for machines, and the folder."""
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()
        self._thread.join()
        self.ground.end_all()
        shutil.rmtree(self._folder, ignore_errors=True)

    def credential(self, **other: Any) -> Json:
        """The fields of a Credential for this double."""
        usual = {"subscription_id": SUBSCRIPTION, "resource_group": GROUP, "token": TOKEN}
        return {**usual, "endpoint": self.endpoint, "ca_bundle": self.ca_bundle, **other}

    def objects(self) -> dict[str, Json]:
        """Everything in the resource group besides the shared networks, by name."""
        with self.ground.lock:
            self.ground.settle()
            return {one.name: one.json() for one in self.ground.things if one.type != NETWORK}

    def machine(self, key: str) -> Machine | None:
        """What a machine was made with."""
        thing = self._thing(key)
        return thing.machine if thing else None

    def throttle(self, *, times: int = 1, after: float = 1, method: str = "", path: str = "") -> None:
        """Answer 429 with Retry-After."""
        refusal = Refusal(429, "TooManyRequests", "Too many requests were received.", {"Retry-After": f"{after:g}"})
        self.faults.append(Fault("before", method, path, times, refusal))

    def throttle_compute(self, *, times: int = 1, after: float = 1, method: str = "PUT") -> None:
        """Microsoft.Compute's own limits, in its own words."""
        words = "The server rejected the request because too many requests have been received for this subscription."
        refusal = Refusal(429, "OperationNotAllowed", words, {"Retry-After": f"{after:g}"}, detail="TooManyRequests")
        self.faults.append(Fault("before", method, "/virtualMachines/", times, refusal))

    def work_on(self, path: str, *, times: int = 1) -> None:
        """Microsoft.Network: another operation works on the object."""
        words = "Operation PutSubnetOperation is updating resource 1. The call can be retried in 14 seconds."
        refusal = Refusal(429, "RetryableError", words, detail="RetryableErrorDueToAnotherOperation")
        self.faults.append(Fault("before", "PUT", path, times, refusal))

    def fail(
        self, *, before: bool, times: int = 1, method: str = "", path: str = "", status: int = 500,
        code: str = "InternalServerError",
    ) -> None:  # fmt: skip
        """Answer an error, before the call has happened or after."""
        refusal = Refusal(status, code, "Something went wrong.")
        self.faults.append(Fault("before" if before else "after", method, path, times, refusal))

    def lose(self, *, times: int = 1, method: str = "PUT", path: str = "/virtualMachines/") -> None:
        """The call happens, and the connection ends without an answer."""
        self.faults.append(Fault("lose", method, path, times))

    def refuse(self, code: str, *, size: str = "", location: str = "", zone: str = "", times: int | None = None,
               status: int = 409, message: str = "") -> None:  # fmt: skip
        """Refuse machines at once: SkuNotAvailable, QuotaExceeded, ..."""
        self.ground.wants.append(Want(code, False, size, location, zone, times, status, message))

    def fail_allocation(self, code: str = "AllocationFailed", *, size: str = "", location: str = "", zone: str = "",
                        times: int | None = None, message: str = "") -> None:  # fmt: skip
        """Take the order for machines, and fail later: a Failed machine is left."""
        self.ground.wants.append(Want(code, True, size, location, zone, times, 200, message))

    def limit(self, location: str, name: str, limit: int) -> None:
        """Set a quota: `cores`, `lowPriorityCores`, or a family as Resource SKUs names it."""
        self.ground.limits[location, name] = limit

    def evict(self, key: str) -> None:
        """Azure takes a spot machine back."""
        with self.ground.lock:
            self.ground.settle()
            self.ground.evict(key)

    def say(self, key: str, text: str) -> None:
        """A machine writes on its console."""
        self.ground.consoles[key] = self.ground.consoles.get(key, "") + text

    def forget_operations(self) -> None:
        """As Azure does after a while."""
        with self.ground.lock:
            self.ground.settle()
            self.ground.operations = {id: one for id, one in self.ground.operations.items() if not one.done}

    def finish_operations(self) -> None:
        """What is under way ends now."""
        with self.ground.lock:
            for operation in self.ground.operations.values():
                operation.ends = 0
            self.ground.settle()

    def struck(self, sort: str, call: Call) -> Fault | None:
        """The fault that a call meets, used up by one."""
        with self.ground.lock:
            return next((one for one in self.faults if one.strikes(sort, call.method, call.path)), None)

    def _thing(self, key: str) -> Thing | None:
        with self.ground.lock:
            return next((one for one in self.ground.things if one.name == key and one.machine), None)


class _Server(ThreadingHTTPServer):
    """Each connection in a thread of its own, which stop() waits for."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, double: AzureDouble, context: ssl.SSLContext) -> None:
        self.double, self._context = double, context
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        self._ended = False
        super().__init__(("127.0.0.1", 0), _Connection)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            request.settimeout(30)
            secured = self._context.wrap_socket(request, server_side=True)
        except OSError:
            self.shutdown_request(request)
            return
        with self._guard:
            self._open.add(secured)
        if self._ended:
            self.hang_up()
        try:
            super().process_request_thread(secured, client_address)
        finally:
            with self._guard:
                self._open.discard(secured)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is nothing to tell of; a fault of ours is answered as a 500."""

    def hang_up(self) -> None:
        self._ended = True
        with self._guard:
            for one in self._open:
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue


class _Connection(BaseHTTPRequestHandler):
    """One client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def do_GET(self) -> None:
        self._take()

    do_HEAD = do_PUT = do_PATCH = do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Tests look at `calls`."""

    def _take(self) -> None:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        read = self.rfile.read(length) if length else b""
        if url.path.startswith("/serial/"):
            return self._serial(url.path.rsplit("/", 1)[-1], url.query)
        if (spoiled := self.server.double.spoils(f"{self.command} {url.path}")) is not None:
            status, sort, said = spoiled
            return self._bytes(status, said, {"Content-Type": sort})
        call = Call(
            self.command, url.path, dict(parse_qsl(url.query)), {}, {k.lower(): v for k, v in self.headers.items()}
        )
        try:
            call.body = json.loads(read) if read else {}
            answer = self._answer(call)
        except Refusal as refusal:
            answer = Answer(refusal.status, refusal.body(), refusal.headers)
        except ValueError as error:
            answer = Answer(400, {"error": {"code": "InvalidRequestContent", "message": str(error)}})
        if self.server.double.struck("lose", call):
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return None
        if fault := self.server.double.struck("after", call):
            assert fault.refusal
            answer = Answer(fault.refusal.status, fault.refusal.body(), fault.refusal.headers)
        return self._send(answer)

    def _answer(self, call: Call) -> Answer:
        double = self.server.double
        if call.headers.get("authorization") != f"Bearer {TOKEN}":
            challenge = {"WWW-Authenticate": 'Bearer authorization_uri="https://login.invalid", error="invalid_token"'}
            raise Refusal(401, "InvalidAuthenticationToken", "The access token is invalid.", challenge)
        if (fault := double.struck("before", call)) and fault.refusal:
            raise fault.refusal
        with double.ground.lock:
            double.calls.append(call)
            return double.answers.answer(call)

    def _serial(self, key: str, query: str) -> None:
        """The blob of the console: no token, and the signature instead; ranges as Azure's blobs take them."""
        if dict(parse_qsl(query)).get("sig") != f"secret-of-{key}" or self.headers.get("Authorization"):
            return self._send(Answer(403, {"error": {"code": "AuthenticationFailed", "message": "Bad signature."}}))
        text = self.server.double.ground.consoles.get(key)
        if text is None:
            return self._send(Answer(404))
        data = text.encode()
        begin = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        return self._bytes(206 if begin else 200, data[begin:], {"Content-Type": "text/plain"})

    def _send(self, answer: Answer) -> None:
        data = json.dumps(answer.body).encode() if answer.body is not None else b""
        self._bytes(answer.status, data, {"Content-Type": "application/json; charset=utf-8", **answer.headers})

    def _bytes(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(data)
        self.wfile.flush()


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m tests.clouds.azure.double")
    parser.add_argument(
        "--port-file", required=True, help="where endpoint, ca_bundle and the rest are written, as JSON"
    )
    parser.add_argument("--duration", type=float, default=0.05, help="seconds that a long operation takes")
    given = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *about: ended.set())
    with AzureDouble(duration=given.duration) as double:
        path = Path(given.port_file)
        fresh = path.with_name(f"{path.name}.new")
        fresh.write_text(json.dumps({**double.credential(), "port": double.port}), encoding="utf-8")
        fresh.rename(path)
        ended.wait()


if __name__ == "__main__":
    main()
