"""The double's state: instances, disks, firewall rules, operations, and the time that things take."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import heapq
import itertools
import json
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clouds.gce.faults import Fault, Faults

Resource = dict[str, Any]
Error = tuple[str, str]
BASE = "https://www.googleapis.com/compute/v1/"


@dataclass(frozen=True)
class Machine:
    """What a hook is told of an instance that starts or ends."""

    id: str
    key: str
    user_data: str = field(repr=False)
    user: str = ""
    public_key: str = ""


@dataclass
class Pace:
    """How long things take, in seconds."""

    operation: float = 0.02
    boot: float = 0.05
    second: float = 1.0
    """How long one second of maxRunDuration takes."""


def now() -> str:
    """RFC 3339, as Google writes it."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")


def fingerprint(value: Any) -> str:
    """Of labels, metadata or tags."""
    return base64.b64encode(hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()[:8]).decode()


class World:
    """One project. Everything that changes it holds `lock`; hooks are called without it."""

    def __init__(
        self,
        project: str,
        pace: Pace,
        on_start: Callable[[Machine], str] | None,
        on_end: Callable[[Machine], None] | None,
    ) -> None:
        self.project, self.pace = project, pace
        self.link = f"{BASE}projects/{project}"
        self.catalogue: dict[str, Any] = json.loads(Path(__file__).with_name("catalogue.json").read_text())
        self.quotas = {region: dict(self.catalogue["quotas"]) for region in self.catalogue["zones"]}
        self.faults = Faults()
        self.lock = threading.RLock()
        self.instances: dict[tuple[str, str], Resource] = {}
        self.disks: dict[tuple[str, str], Resource] = {}
        self.firewalls: dict[str, Resource] = {}
        self.operations: dict[str, Resource] = {}
        self.asked: dict[tuple[str, str], str] = {}
        """(method and path, requestId) -> the operation that it began."""
        self.consoles: dict[str, str] = {}
        self.host_key: Callable[[str], str] = lambda key: ""
        """The host key that the instance of a name has published in its guest attributes."""
        self.hook_errors: list[str] = []
        self._on_start = on_start or self._next_address
        self._on_end = on_end or (lambda machine: None)
        self._addresses = itertools.count(2)
        self._ids = itertools.count(4_000_000_000_000_000_001)
        self._up: set[str] = set()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = itertools.count()
        self._wake = threading.Condition()
        self._stopping = False
        self._pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="gce-double")
        self._ticker = threading.Thread(target=self._tick, name="gce-double-time", daemon=True)
        self._ticker.start()

    def _next_address(self, machine: Machine) -> str:
        number = next(self._addresses)
        return f"127.30.{number // 250}.{number % 250 + 1}"

    def stop(self) -> None:
        """End the clock, then every instance that is still up."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._ticker.join()
        self._pool.shutdown(wait=True)
        for it in list(self.instances.values()):
            self.end(it)

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Do it in so many seconds, on a thread of ours."""
        with self._wake:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._sequence), act))
            self._wake.notify()

    def _tick(self) -> None:
        while True:
            with self._wake:
                if self._stopping:
                    return
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is None or wait > 0:
                    self._wake.wait(wait)
                    continue
                act = heapq.heappop(self._due)[2]
            self._pool.submit(self._safely, act)

    def _safely(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception:
            self.hook_errors.append(traceback.format_exc())

    def new_id(self) -> str:
        return str(next(self._ids))

    def operate(
        self,
        what: str,
        target: Resource,
        scope: Mapping[str, str],
        finish: Callable[[], Error | None],
        seconds: float | None = None,
        fault: Fault | None = None,
    ) -> Resource:
        """Begin an operation that is over when `finish` has been called: PENDING, RUNNING, DONE."""
        number = self.new_id()
        part = "/".join(f"{name}s/{value}" for name, value in scope.items()) or "global"
        made: Resource = {
            "kind": "compute#operation",
            "id": number,
            "name": f"operation-{number}",
            "operationType": what,
            "targetLink": target["selfLink"],
            "targetId": target["id"],
            "status": "PENDING",
            "progress": 0,
            "user": "drydock",
            "insertTime": now(),
            "selfLink": f"{self.link}/{part}/operations/operation-{number}",
            **{name: f"{self.link}/{name}s/{value}" for name, value in scope.items()},
        }
        self.operations[made["name"]] = made
        takes = self.pace.operation if seconds is None else seconds
        self.later(takes / 2, lambda: self._running(made))
        self.later(takes, lambda: self._finish(made, finish, fault))
        return made

    def _running(self, operation: Resource) -> None:
        with self.lock:
            if operation["status"] == "PENDING":
                operation.update(status="RUNNING", progress=50, startTime=now())

    def _finish(self, operation: Resource, finish: Callable[[], Error | None], fault: Fault | None) -> None:
        error = (fault.code, fault.message) if fault else finish()
        with self.lock:
            if error:
                operation["error"] = {"errors": [{"code": error[0], "message": error[1]}]}
                operation.update(httpErrorStatusCode=503 if "EXHAUSTED" in error[0] else 400)
                operation.update(httpErrorMessage="SERVICE UNAVAILABLE" if "EXHAUSTED" in error[0] else "BAD REQUEST")
            operation.update(status="DONE", progress=100, endTime=now())
            operation.setdefault("startTime", operation["insertTime"])

    def begin(self, it: Resource) -> None:
        """Start what stands behind an instance; it is RUNNING with its address afterwards."""
        address = self._on_start(machine(it))
        with self.lock:
            gone = self.instances.get(key_of(it)) is not it or it["status"] not in ("STAGING", "RUNNING")
            self._up.add(it["id"])
            if not gone:
                it.update(status="RUNNING", lastStartTimestamp=now())
                self._addressed(it, address)
                self.consoles[it["id"]] = self.consoles.get(it["id"], "") + f"{it['name']} login: \n"
        if gone:
            self.end(it)

    def _addressed(self, it: Resource, address: str) -> None:
        card = it["networkInterfaces"][0]
        card["networkIP"] = address
        for outside in card.get("accessConfigs", ()):
            outside["natIP"] = address

    def end(self, it: Resource) -> None:
        """End what stands behind an instance, if it was up."""
        with self.lock:
            up = it["id"] in self._up
            self._up.discard(it["id"])
        if up:
            self._on_end(machine(it))

    def remove(self, it: Resource) -> None:
        """An instance with the disks that go with it."""
        with self.lock:
            if self.instances.get(key_of(it)) is it:
                del self.instances[key_of(it)]
            for one in it["disks"]:
                where = (key_of(it)[0], one["source"].rpartition("/")[2])
                disk = self.disks.get(where)
                if disk is not None and one.get("autoDelete"):
                    del self.disks[where]
                elif disk is not None:
                    disk.pop("users", None)
        self.end(it)


def key_of(it: Resource) -> tuple[str, str]:
    """(zone, name)."""
    return it["zone"].rpartition("/")[2], it["name"]


def machine(it: Resource) -> Machine:
    """What hooks are told."""
    items = {one["key"]: one["value"] for one in it.get("metadata", {}).get("items", ())}
    user, _, public_key = items.get("ssh-keys", "").partition(":")
    return Machine(it["id"], it["name"], items.get("user-data", ""), user, public_key)
