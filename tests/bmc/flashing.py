"""The installation of images by the BMC of a BlueField: rshim, SimpleUpdate, tasks, power, and the system itself.

with bluefield() as bmc, flashing(bmc) as card:
    ...
    assert card.imaged == ["..."]

SimpleUpdate really fetches the file, by HTTP, HTTPS or SCP, and checks every component. When its task has ended, the
bf.cfg behind the image is run as the installer runs it, and a real SSH server stands for the system, with the host key
and account that its cloud-init would read.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blueprints.bluefield import bfb
from tests.bmc.bluefield import Bluefield, Reply, _refusal
from tests.bmc.scp import EXCHANGE, Scp
from tests.bmc.truststore import Truststore
from tests.clouds.machines import Machines

SYSTEM = "/redfish/v1/Systems/Bluefield"
SERVICE = "/redfish/v1/UpdateService"
UPDATE = f"{SERVICE}/Actions/UpdateService.SimpleUpdate"
TASKS = "/redfish/v1/TaskService/Tasks"
OEM = "/redfish/v1/Managers/Bluefield_BMC/Oem/Nvidia"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
GENERATION = "BlueField3"


@dataclass
class System:
    """The operating system of a card, as `Machines` starts it."""

    key: str
    user_data: str
    public_key: str = ""


@dataclass
class Task:
    """A task of the BMC. Each time that it is read it goes on."""

    id: str
    body: dict[str, Any]
    content: bytes = b""
    error: str = ""
    percent: int = 0
    done: bool = False


@dataclass(eq=False)
class Card:
    """What the BMC can do to its card."""

    bmc: Bluefield
    machines: Machines
    power: str = "On"
    rshim: bool = False
    wanted: bool | None = None
    """Who has the rshim after it was asked for the next time."""
    tasks: dict[str, Task] = field(default_factory=dict)
    imaged: list[str] = field(default_factory=list)
    """Names of the systems that were installed, in order."""
    interrupted: int = 0
    """Installations during which the card was switched off."""
    system: System | None = None
    versions: dict[str, str] = field(default_factory=dict)
    """Component -> version that an installation brings."""
    says: list[str] = field(default_factory=list)
    """Messages with which the next tasks fail."""
    payload: bool = True
    """Whether tasks show their requests."""
    stuck: bool = False
    """Whether tasks never end."""
    speed: int = 50
    scp: Scp = field(default_factory=Scp)
    trust: Truststore = field(default_factory=Truststore)

    @property
    def running(self) -> list[str]:
        return self.machines.running

    def answer(self, method: str, path: str, given: Any) -> Reply | None:
        """Answer a request of a session; None if it is about something else."""
        if method == "PATCH" and path == OEM:
            self.wanted = bool(given["BmcRShim"]["BmcRShimEnabled"])
            return "204 No Content", None, []
        if method == "GET" and path == OEM:
            shown = self.rshim
            self.rshim, self.wanted = (shown if self.wanted is None else self.wanted), None
            return "200 OK", {"@odata.id": OEM, "BmcRShim": {"BmcRShimEnabled": shown}}, []
        if method == "POST" and path == RESET:
            return self._reset(given["ResetType"])
        if method == "POST" and path == UPDATE:
            return self._update(given)
        if method == "POST" and path == EXCHANGE:
            return self.scp.exchange(given)
        if (reply := self.trust.answer(method, path, given)) is not None:
            return reply
        if method == "GET" and path == TASKS:
            return "200 OK", {"Members": [{"@odata.id": f"{TASKS}/{one}"} for one in self.tasks]}, []
        if method == "GET" and (found := re.fullmatch(f"{TASKS}/(\\d+)", path)) and found[1] in self.tasks:
            return "200 OK", self._shown(self._go_on(self.tasks[found[1]])), []
        if method == "GET" and path == SYSTEM:
            state = "OsIsRunning" if self.running else "OsBootStarted"
            progress = {"OemLastState": state, "LastState": "OEM"}
            return "200 OK", {**self.bmc.resources[path], "PowerState": self.power, "BootProgress": progress}, []
        return None

    def _reset(self, kind: str) -> Reply:
        if any(not one.done for one in self.tasks.values()):
            self.interrupted += 1
        if kind in ("ForceOff", "GracefulShutdown"):
            self.power = "Off"
            if self.system is not None:
                self.machines.end(self.system)
        elif self.power == "Off":
            self.power = "On"
            if self.system is not None:
                self.machines.start(self.system)
        return "204 No Content", None, []

    def _update(self, given: dict[str, Any]) -> Reply:
        assert "://" not in given["ImageURI"], "NVIDIA's BMC wants host and path"
        assert given["Targets"] == ["redfish/v1/UpdateService/FirmwareInventory/DPU_OS"]
        if any(not one.done for one in self.tasks.values()):
            return _refusal("503 Service Unavailable", "UpdateInProgress")
        task = Task(id=str(len(self.tasks) + 1), body=given)
        self.tasks[task.id] = task
        if self.says:
            task.error = self.says.pop(0)
        elif not self.rshim:
            task.error = "The rshim is owned by another program."
        else:
            self._fetch(task)
        path = f"{TASKS}/{task.id}"
        return "202 Accepted", {"@odata.id": path, "Id": task.id, "TaskState": "Running"}, [("Location", path)]

    def _fetch(self, task: Task) -> None:
        if task.body["TransferProtocol"] == "SCP":
            task.content, task.error = self.scp.fetch(task.body["ImageURI"], task.body["Username"])
            return
        if task.body["TransferProtocol"] == "HTTPS":
            task.content, task.error = self.trust.fetch(task.body["ImageURI"])
            return
        url = f"{task.body['TransferProtocol'].lower()}://{task.body['ImageURI']}"
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                task.content = response.read()
        except (urllib.error.URLError, OSError):
            task.error = "Check and restart server's web service"

    def _go_on(self, task: Task) -> Task:
        if task.done or self.stuck:
            return task
        task.percent = min(100, task.percent + self.speed)
        if task.error or task.percent == 100:
            if not task.error:
                task.error = self._install(task.content)
            task.done = True
        return task

    def _shown(self, task: Task) -> dict[str, Any]:
        state = "Running" if not task.done else "Exception" if task.error else "Completed"
        shown = {"Payload": {"TargetUri": UPDATE, "JsonBody": json.dumps(task.body)}} if self.payload else {}
        return {
            "@odata.id": f"{TASKS}/{task.id}", "Id": task.id, "TaskState": state, "PercentComplete": task.percent,
            "TaskStatus": "OK" if state != "Exception" else "Critical", **shown,
            "Messages": [{"Message": task.error}] if task.done and task.error else [],
        }  # fmt: skip

    def _install(self, content: bytes) -> str:
        """Install a file as a card does. Returns what is wrong with it."""
        try:
            names, tail = split(content)
        except bfb.NotBfb:
            return "Invalid FW Package"
        if GENERATION.encode() not in names[0]:
            return "Invalid FW Package"
        files = installer(tail)
        meta = json.loads(files["meta-data"])
        system = System(meta["instance-id"], files["user-data"])
        if self.system is not None:
            self.machines.end(self.system)
        self.imaged.append(system.key)
        self.system, self.power = system, "On"
        for name, version in self.versions.items():
            path = f"{SERVICE}/FirmwareInventory/{name}"
            self.bmc.resources[path] = {**self.bmc.resources[path], "Version": version}
        self.machines._addresses[system.key] = self.address
        self.machines.start(system)
        return ""

    @property
    def address(self) -> str:
        """The address that the network gives the card, whatever is installed on it."""
        return f"{self.machines._network}.1"


def split(content: bytes) -> tuple[list[bytes], bytes]:
    """Return the components of a BFB, and what follows the last. Raises NotBfb."""
    found: list[bytes] = []
    at = 0
    while content[at : at + 4] == bfb.MAGIC:
        length = int.from_bytes(content[at + 8 : at + 12], "little")
        end = at + bfb.LENGTH + (length + 7) // 8 * 8
        bfb.check_whole(bfb.read_on(bfb.Reading(), content[at:end]))
        found.append(content[at + bfb.LENGTH : at + bfb.LENGTH + length])
        at = end
    if not found:
        raise bfb.NotBfb("nothing")
    return found, content[at:]


def installer(bf_cfg: bytes) -> dict[str, str]:
    """Run a bf.cfg as the installer does. Return the files of the seed for cloud-init that it has written."""
    with tempfile.TemporaryDirectory(prefix="drydock-mnt-") as folder:
        script = bf_cfg.decode().replace("/mnt/", f"{folder}/") + '\n[ -n "$ubuntu_PASSWORD" ] && bfb_modify_os\n'
        subprocess.run(["bash", "-eu", "-s"], input=script, text=True, check=True, timeout=30)
        seed = Path(folder) / "var/lib/cloud/seed/nocloud-net"
        assert all(one.stat().st_mode & 0o077 == 0 for one in seed.iterdir())
        return {one.name: one.read_text() for one in seed.iterdir()}


def image(*, size: int = 1 << 16, generation: str = GENERATION) -> bytes:
    """Return a small BFB for a generation of cards."""
    return bfb.component(29, generation.encode()) + bfb.component(62, bytes(range(256)) * (size // 256))


@contextlib.contextmanager
def flashing(bmc: Bluefield) -> Iterator[Card]:
    """Give a BMC a card that it can install."""
    machines = Machines()
    card = Card(bmc, machines)
    bmc.more = card.answer
    bmc.resources["/redfish/v1"]["Tasks"] = {"@odata.id": "/redfish/v1/TaskService"}
    bmc.resources["/redfish/v1/TaskService"] = {"@odata.id": "/redfish/v1/TaskService", "Tasks": {"@odata.id": TASKS}}
    try:
        yield card
    finally:
        bmc.more = None
        machines.close()
