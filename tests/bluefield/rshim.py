"""The rshim of a card on its host: a folder with `boot`, `misc` and `console`, behind a real SSH server.

with peers.server(address) as host, rshim(folder, card) as device:
    ...

A thread stands for the driver and the card. It reads the FIFO `boot` up to its end, as the card does, and installs what
it has read by `tests.bmc.flashing`: every component must be whole, and the bf.cfg behind it is run as the installer
runs it. `misc` shows settings and the log as rshim-user-space 2.8 does, and obeys what is written to it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from blueprints.amounts import Amounts
from blueprints.contract import Fields
from blueprints.specs import Asked, BlueprintView, Control, LeaseView, ResourceView
from drydock.core import clock
from interfaces.endpoints import SshEndpoint
from interfaces.transports import transport_to
from tests.blueprints.host_peers import Server
from tests.bmc.flashing import Card

_PACE = 0.02
STALE = ("INFO[PSC]: PSC BL1 START", "INFO[MISC]: Linux up", "INFO[MISC]: DPU is ready")
"""The log of the boot before."""
INSTALLED = (
    "INFO[PSC]: PSC BL1 START", "INFO[BL2]: start", "INFO[BL2]: boot mode (rshim)", "INFO[BL2]: DDR POST passed",
    "INFO[BL31]: start", "INFO[UEFI]: eMMC probed", "INFO[MISC]: Linux up", "INFO[MISC]: Found bf.cfg",
    "INFO[MISC]: Ubuntu installation started",
    "INFO[MISC]: BFB-Installer: Installing DPU OS passed, total 78% complete", "INFO[MISC]: Installation finished",
    "INFO[MISC]: Rebooting...", "INFO[PSC]: PSC BL1 START", "INFO[UEFI]: exit Boot Service", "INFO[MISC]: Linux up",
    "INFO[MISC]: DPU is ready",
)  # fmt: skip
"""The log of an installation, as NVIDIA's documents show it."""
_COMMAND = re.compile(r"([A-Z_]+) (\d)\n")


@dataclass(eq=False)
class Rshim:
    """The driver of one card, and what the card says through it."""

    folder: Path
    card: Card
    logs: tuple[str, ...] = INSTALLED
    """What the card says about its next installation. The system starts with the line that says so, if any does."""
    bmc: Callable[[], bool] = field(default=lambda: False)
    """Whether the BMC has the rshim, which leaves the host in drop mode."""
    gives: bool = True
    """Whether the other owner gives the rshim away when it is forced to."""
    taken: bool = False
    """Whether another owner than the BMC has it."""
    settings: dict[str, int] = field(default_factory=lambda: {"DISPLAY_LEVEL": 0, "BOOT_MODE": 1})
    info: dict[str, str] = field(
        default_factory=lambda: {"DEV_INFO": "BlueField-3(Rev 1)", "OPN_STR": "N/A", "BF_MODE": "DPU mode"}
    )
    locked: bool = False
    log: list[str] = field(default_factory=lambda: list(STALE))
    streams: int = 0
    """Files that were read to their end."""
    dropped: int = 0
    """Streams that began while the other side had the rshim, which the driver refuses."""
    written: list[str] = field(default_factory=list)
    """What was written to `misc`."""
    paused: threading.Event = field(default_factory=threading.Event)
    """While it is set, the card takes no more bytes."""
    receiving: bool = False
    _shown: str = ""

    @property
    def drop(self) -> bool:
        return self.taken or self.bmc()

    def render(self) -> str:
        level = self.settings["DISPLAY_LEVEL"]
        lines = [
            f"DISPLAY_LEVEL   {level} (0:basic, 1:advanced, 2:log)", f"BF_MODE         {self.info['BF_MODE']}",
            f"BOOT_MODE       {self.settings['BOOT_MODE']} (0:rshim, 1:emmc, 2:emmc-boot-swap)",
            "BOOT_TIMEOUT    300 (seconds)", "USB_TIMEOUT     40 (seconds)",
            f"DROP_MODE       {int(self.drop)} (0:normal, 1:drop)", "SW_RESET        0 (1: reset)",
            "DEV_NAME        pcie-0000:03:00.2", f"DEV_INFO        {self.info['DEV_INFO']}",
            f"OPN_STR         {self.info['OPN_STR']}", "UP_TIME         4172(s)",
            f"SECURE_NIC_MODE {int(self.locked)} (0:no, 1:yes)", "FORCE_CMD       0 (1: send Force command)",
        ]  # fmt: skip
        if level == 2:
            ruler = "-" * 39
            lines += [ruler, "             Log Messages", ruler, *(f" {one}" for one in self.log)]
        return "\n".join(lines) + "\n"

    def turn(self) -> None:
        """Obey what was written to `misc`, and show what is new."""
        misc = self.folder / "misc"
        found = misc.read_text()
        if found != self._shown and (command := _COMMAND.fullmatch(found)):
            self.written.append(found.strip())
            self._obey(command[1], int(command[2]))
            self._shown = ""
        if found == "" and self._shown:
            return  # it is being written to
        if self.render() != self._shown:
            self._shown = self.render()
            misc.write_text(self._shown)

    def _obey(self, name: str, value: int) -> None:
        if name in self.settings:
            self.settings[name] = value
        elif name == "FORCE_CMD" and value and self.gives:
            self.taken = False
        elif name == "DROP_MODE" and value:
            self.taken = True
        elif name == "SW_RESET" and value and self.card.system is not None:
            self.log.clear()
            self.card.machines.end(self.card.system)
            if self.settings["BOOT_MODE"]:
                self.card.machines.start(self.card.system)

    def install(self, content: bytes, stopped: threading.Event) -> None:
        """Say what the card says about what it got, and start its system when it says so."""
        self.streams += 1
        self.settings["BOOT_MODE"] = 1
        self.log.clear()
        for line in self.logs:
            if stopped.wait(_PACE):
                return
            if line.endswith("DPU is ready") and (wrong := self.card._install(content)):
                line = f"ERR[MISC]: CRITICAL ERROR: {wrong}"
            self.log.append(line)
            self.turn()


def _drive(device: Rshim, stopped: threading.Event) -> None:
    boot = os.open(device.folder / "boot", os.O_RDONLY | os.O_NONBLOCK)
    content = bytearray()
    try:
        while not stopped.wait(_PACE / 2):
            device.turn()
            while not device.paused.is_set():
                try:
                    part = os.read(boot, 1 << 16)
                except BlockingIOError:
                    break  # there is a writer, and nothing to read
                if part and not content:
                    device.dropped += device.drop
                    device.receiving = True
                content += part
                if not part:
                    device.receiving = False
                    if content:
                        device.install(bytes(content), stopped)
                        content.clear()
                    break
    finally:
        os.close(boot)


@contextlib.contextmanager
def rshim(folder: Path, card: Card) -> Iterator[Rshim]:
    """Give a host the rshim of a card, at a folder."""
    folder.mkdir()
    os.mkfifo(folder / "boot")
    os.mkfifo(folder / "console")
    (folder / "misc").touch()
    device, stopped = Rshim(folder, card), threading.Event()
    device.turn()
    thread = threading.Thread(target=_drive, args=(device, stopped))
    thread.start()
    try:
        yield device
    finally:
        stopped.set()
        thread.join()
    assert not device.dropped, "the driver refuses a stream in drop mode"


def host_lease(server: Server, folder: Path, *, controlled: bool = True) -> LeaseView:
    """Return a lease on the host behind an SSH server, with a home of its own, as the engine hands it to a step."""
    home = folder / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    endpoint = SshEndpoint(host=server.address, port=server.port, user="root", host_keys=(server.host.public,))
    transport = transport_to(endpoint, private_key=server.control.private)
    control = Control(transport=transport, uid=60_999, gid=60_999, home=str(home)) if controlled else None
    blueprint = BlueprintView(id=9, name="hosts", kind="ssh_host", generation=1, config=Fields())
    row = ResourceView(
        id=4, key="host4", name="h1", type="host", origin="registered", blueprint=blueprint, attributes={},
        capacity=Amounts(slots=4),
    )  # fmt: skip
    return LeaseView(
        id=16, key="host4-lease", owner="", asked=Asked(type="host", requirements=Fields(), amounts=Amounts()),
        resource=row, controlled=lambda _: control,
    )  # fmt: skip


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until something holds."""
    end = clock.monotonic() + seconds
    while not holds():
        assert clock.monotonic() < end, "it did not come true"
        clock.sleep(0.02)


def emptied(folder: Path) -> None:
    """Remove the home of a lease, as its end does."""
    shutil.rmtree(folder / "home", ignore_errors=True)
