"""A strict double of Compute Engine, and of what Cloud Resource Manager says of permissions, in a test's process or as
a program.

    python -m tests.clouds.gce.double --port-file F

writes JSON with `endpoint`, `project` and `service_account` into F when it answers, and ends on SIGTERM.

Every request and every answer is checked against Google's discovery documents.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import signal
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.clouds.gce.api import ACTS, WAITS
from tests.clouds.gce.discovery import COMPUTE, MANAGER, Call, Refused, discovery
from tests.clouds.gce.faults import Faults
from tests.clouds.gce.machines import replayed, stopped
from tests.clouds.gce.tokens import problem, service_account
from tests.clouds.gce.world import Machine, Pace, World, key_of

__all__ = ["Double", "Machine", "Pace"]
PROJECT = "drydock-test"
WAIT = 5.0
"""Seconds after which a wait answers although the operation is not done (Google: about two minutes)."""


@dataclass(frozen=True)
class Seen:
    """One request that reached the double with a good token."""

    method: str
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    double: Double

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours."""


class Double:
    """One project at one address of this machine.

    `on_start(machine)` is called when an instance starts and answers its address; `on_end(machine)` when it is
    stopped, deleted or preempted. `pace` says how long things take, `page` the most entries of a page.
    """

    def __init__(
        self,
        *,
        project: str = PROJECT,
        on_start: Callable[[Machine], str] | None = None,
        on_end: Callable[[Machine], None] | None = None,
        pace: Pace | None = None,
        page: int = 500,
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        discovery()
        self.project = project
        self.world = World(project, pace or Pace(), on_start, on_end)
        self.world.catalogue["page"] = page
        self.seen: list[Seen] = []
        self.spoils: Callable[[str], tuple[int, str, bytes] | None] = lambda call: None
        """What answers `GET /path` in Google's place, as a broken proxy would: status, content type, body."""
        self.lacking: set[str] = set()
        """Permissions that the service account has not."""
        self.elsewhere: dict[str, set[str]] = {}
        """Other project -> the permissions that it has there."""
        self.violations: list[str] = []
        """Answers of ours that the discovery document does not allow, and what the hooks raised."""
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.double = self
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])
        self.endpoint = f"{'https' if tls else 'http'}://{'localhost' if tls else '127.0.0.1'}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Double:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """No thread, no port and no instance is left."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.world.stop()
        self.violations += self.world.hook_errors

    @property
    def faults(self) -> Faults:
        return self.world.faults

    @property
    def quotas(self) -> dict[str, dict[str, float]]:
        """Region -> metric -> limit; may be changed."""
        return self.world.quotas

    @property
    def service_account(self) -> dict[str, str]:
        """The JSON key that it lets in."""
        return service_account(self.project)

    @property
    def credential(self) -> dict[str, Any]:
        """What `blueprints.gce.config.Credential` takes."""
        said = {"endpoint": self.endpoint, "resource_manager": self.endpoint}
        return {"project": self.project, "service_account": self.service_account, **said}

    def objects(self) -> dict[str, list[str]]:
        """Everything there is by sort, with names; empty sorts are left out."""
        with self.world.lock:
            every = {
                "instances": [name for _, name in self.world.instances],
                "disks": [name for _, name in self.world.disks],
                "firewalls": list(self.world.firewalls),
            }
        return {sort: sorted(names) for sort, names in every.items() if names}

    def calls(self, method: str) -> list[Seen]:
        """The requests of one method, such as compute.instances.insert."""
        return [one for one in self.seen if one.method == method]

    def preempt(self, name: str) -> None:
        """Google takes a spot instance back, by its termination action."""
        with self.world.lock:
            it = next(one for one in self.world.instances.values() if one["name"] == name)
            it["status"] = "STOPPING"
            deletes = it["scheduling"].get("instanceTerminationAction") == "DELETE"

        def finish() -> None:
            if deletes:
                self.world.remove(it)
            else:
                stopped(self.world, it)

        operation = self.world.operate("compute.instances.preempted", it, {"zone": key_of(it)[0]}, finish)
        operation["statusMessage"] = "Instance was preempted."

    def settle(self, seconds: float = 20.0) -> None:
        """Wait until no operation is under way."""
        until = time.monotonic() + seconds
        while any(it["status"] != "DONE" for it in list(self.world.operations.values())):
            if time.monotonic() > until:
                raise TimeoutError("operations are still under way")
            time.sleep(0.005)

    def answer(self, verb: str, target: str, authorization: str, body: bytes) -> tuple[Call, Any, float]:
        """The result of one request. Raises Refused."""
        split = urlsplit(target)
        manager = split.path.startswith("/v3/")
        wrong = problem(authorization, self.project, manager=manager)
        if wrong:
            raise Refused(401, "authError", wrong)
        try:
            said = json.loads(body) if body else None
        except ValueError:
            raise Refused(400, "parseError", "Invalid JSON payload received.") from None
        query = parse_qs(split.query, keep_blank_values=True)
        call = discovery(MANAGER if manager else COMPUTE).call(verb, unquote(split.path), query, said)
        self.seen.append(Seen(call.method.id, call.path, call.query, call.body))
        refusal = self.faults.take("refuse", call.method.id)
        if refusal:
            raise Refused(refusal.status, refusal.code, refusal.message, refusal.headers)
        return call, *self._done(call)

    def _done(self, call: Call) -> tuple[Any, float]:
        method = call.method.id
        if method == "cloudresourcemanager.projects.testIamPermissions":
            return self._permissions(call), 0.0
        act = ACTS.get(method) or WAITS.get(method)
        if act is None:
            raise Refused(501, "notImplemented", f"The double does not do {method}.")
        if call.path.get("project") != self.project and not method.startswith("compute.images."):
            raise Refused(403, "forbidden", f"Required permission for 'projects/{call.path.get('project')}'")
        if method in WAITS:
            self._wait(act, call)
        with self.world.lock:
            result = copy.deepcopy(replayed(self.world, call) or act(self.world, call))
        result = _public(result)
        problems = discovery().problems(call.method.response, result)
        if problems:
            self.violations.append(f"{method}: {problems[0]}")
            raise Refused(500, "internalError", f"The double's answer is wrong: {problems[0]}")
        slow = self.faults.take("delay", method)
        return result, slow.seconds if slow else 0.0

    def _permissions(self, call: Call) -> dict[str, list[str]]:
        """Of what is asked, that which the caller has; no more than 100 may be asked."""
        asked, project = call.body.get("permissions", []), call.path["projectsId"]
        if len(asked) > 100 or any("*" in name or name.count(".") != 2 for name in asked):
            raise Refused(400, "badRequest", "Request contains an invalid argument.")
        if project != self.project and project not in self.elsewhere:
            raise Refused(403, "forbidden", f"The caller does not have permission: {project} may not exist.")
        held = set(asked) - self.lacking if project == self.project else self.elsewhere[project]
        return {"permissions": [name for name in asked if name in held]}

    def _wait(self, act: Callable[[World, Call], Any], call: Call) -> None:
        until = time.monotonic() + WAIT
        while act(self.world, call)["status"] != "DONE" and time.monotonic() < until:
            time.sleep(0.01)


def _public(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _public(it) for name, it in value.items() if not name.startswith("_")}
    return [_public(it) for it in value] if isinstance(value, list) else value


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def _serve(self) -> None:
        double: Double = self.server.double  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if (spoiled := double.spoils(f"{self.command} {urlsplit(self.path).path}")) is not None:
            self._write(*spoiled, {})
            return
        try:
            call, result, slow = double.answer(self.command, self.path, self.headers.get("Authorization", ""), body)
        except Refused as error:
            self._refuse(error)
            return
        time.sleep(slow)
        if double.faults.take("lose", call.method.id):
            self.close_connection = True
            return
        instead = double.faults.take("instead", call.method.id)
        if instead:
            self._refuse(Refused(instead.status, instead.code, instead.message))
        else:
            self._send(200, result, {})

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve

    def _refuse(self, error: Refused) -> None:
        one = {"message": error.message, "domain": "global", "reason": error.reason}
        said = {"code": error.status, "message": error.message, "errors": [one]}
        self._send(error.status, {"error": said}, error.headers)

    def _send(self, status: int, value: Any, headers: Mapping[str, str]) -> None:
        self._write(status, "application/json; charset=UTF-8", json.dumps(value).encode(), headers)

    def _write(self, status: int, sort: str, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", sort)
        self.send_header("Content-Length", str(len(body)))
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """The double as a program."""
    parser = argparse.ArgumentParser(description="A double of Compute Engine.")
    parser.add_argument("--port-file", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    asked = parser.parse_args()
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    with Double(port=asked.port) as double:
        written = asked.port_file.with_name(asked.port_file.name + ".new")
        written.write_text(json.dumps({**double.credential, "pid": os.getpid()}))
        written.replace(asked.port_file)
        over.wait()


if __name__ == "__main__":
    main()
