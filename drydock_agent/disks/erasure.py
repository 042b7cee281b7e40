"""The erasure of disks: canaries, the best method that works, and the verification, for each disk."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from drydock_agent.disks import ata, firmware, nvme
from drydock_agent.disks.blocks import Blocks, Report
from drydock_agent.disks.canaries import Canaries, check_all, check_samples, check_table
from drydock_agent.disks.errors import DiskError
from drydock_agent.disks.inventory import Disk, choose, disks
from drydock_agent.disks.jobs import Journal
from drydock_agent.disks.machine import Machine
from drydock_agent.disks.methods import OF_CONTROLLER, PATTERNED, READ_WHOLE
from drydock_agent.disks.requests import EraseRequest
from drydock_agent.messages import timestamp

AT_ONCE = 16
"""Disks that are erased at the same time. The others wait."""


def targets(machine: Machine, request: EraseRequest) -> list[Disk]:
    """Return the disks to erase. Raises DiskError if there is none, or one of them is in use."""
    chosen = choose(disks(machine), request.disks)
    if not chosen:
        raise DiskError("no_disk", "This machine has no fixed disk.")
    for disk in chosen:
        if disk.is_busy:
            disk.check()
    return chosen


def erase(machine: Machine, request: EraseRequest, chosen: list[Disk], journal: Journal) -> dict[str, Any]:
    """Erase disks, disks of different controllers at the same time. Return the result of the job."""
    board = _Board(journal, [one.name for one in chosen])
    sound = frozenset(one.name for one in chosen if not one.problem)
    erasures = [_Erasure(machine, request, one, sound, board) for one in chosen]
    records: dict[str, dict[str, Any]] = {}

    def group(members: Iterable[_Erasure]) -> None:
        for one in members:
            records[one.disk.name] = one.run()

    by_controller = [list(found) for _, found in itertools.groupby(sorted(erasures, key=_place), key=_place)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(group, by_controller))
    result: dict[str, Any] = {"disks": [records[one.name] for one in chosen]}
    return result | (_after(machine, board) if not request.disks else _NOT_AFTER)


_NOT_AFTER = {"boot_entries_removed": [], "boot_entries_problem": "", "tpm": "kept"}
"""If only some disks are erased, the machine keeps what may belong to the others."""


def _after(machine: Machine, board: _Board) -> dict[str, Any]:
    board.say("Removing boot entries and clearing the TPM.")
    removed, problem = firmware.remove_boot_entries(machine)
    return {
        "boot_entries_removed": removed, "boot_entries_problem": problem, "tpm": firmware.clear_tpm(machine),
    }  # fmt: skip


def _place(one: _Erasure) -> str:
    return one.disk.nvme.controller if one.disk.nvme else one.disk.name


class _Board:
    """Percent and phase of all disks of a job."""

    def __init__(self, journal: Journal, names: list[str]) -> None:
        self._journal, self._lock = journal, threading.Lock()
        self._percents = dict.fromkeys(names, 0.0)
        self._phases = dict.fromkeys(names, "waiting")

    def tell(self, name: str, percent: float, phase: str) -> None:
        """Record how far a disk is."""
        with self._lock:
            self._percents[name], self._phases[name] = percent, phase
            shown = [f"{one} {phase} ({self._percents[one]:.0f} %)" for one, phase in self._phases.items()]
            more = f", and {len(shown) - 8} more" if len(shown) > 8 else ""
            total = sum(self._percents.values()) / len(self._percents)
            self._journal.report(min(99.0, total), f"Erasing disks: {', '.join(shown[:8])}{more}.")

    def say(self, sentence: str) -> None:
        """Record what happens after the disks."""
        with self._lock:
            self._journal.report(99.0, sentence)


@dataclasses.dataclass
class _Erasure:
    """The erasure of one disk."""

    machine: Machine
    request: EraseRequest
    disk: Disk
    sound: frozenset[str]
    """The names of the disks that this job erases."""
    board: _Board
    tried: list[dict[str, str]] = dataclasses.field(default_factory=list)

    def run(self) -> dict[str, Any]:
        """Erase the disk. Return its record, whatever happens."""
        began, method, problem = datetime.now(UTC), "", self.disk.problem
        if not problem:
            try:
                self._before()
                method = self._erased()
                problem = "" if method else self._failed()
            except (DiskError, OSError) as error:
                problem = str(error)
            problem = self._still_locked() or problem
        self._tell(100.0, "not erased" if problem else "erased")
        disk = self.disk
        return {
            "name": disk.name, "serial": disk.serial, "wwn": disk.wwn, "model": disk.model,
            "size_bytes": disk.size_bytes, "method": method, "tried": self.tried,
            "bytes": disk.size_bytes if method else 0, "started_at": timestamp(began),
            "ended_at": timestamp(datetime.now(UTC)), "verified": bool(method) and not problem, "problem": problem,
        }  # fmt: skip

    def _before(self) -> None:
        """Finish what an earlier, interrupted erasure has left. Raises DiskError if the disk hides a part of itself."""
        if self.disk.nvme and nvme.is_sanitizing(self.machine, self.disk.nvme):
            nvme.wait(self.machine, self.disk.nvme, self._part(0, 5, "finishing an earlier sanitize operation"))
        if self.disk.ata:
            if self.disk.ata.enabled:
                ata.unlock(self.machine, self.disk.name)
            if problem := ata.hidden(self.machine, self.disk.name):
                raise DiskError("disk", problem)

    def _erased(self) -> str:
        """Try the methods, best first. Return the one that was verified, or an empty string."""
        for method in self.disk.methods:
            if method not in self.request.allowed:
                continue
            try:
                self._try(method)
            except (DiskError, OSError) as error:
                if isinstance(error, DiskError) and error.code in ("busy", "read_only"):
                    raise
                self.tried.append({"method": method, "error": str(error)})
            else:
                return method
        return ""

    def _try(self, method: str) -> None:
        """Plant canaries, erase, and verify. Raises DiskError."""
        disk, machine = self.disk, self.machine
        self._refuse_neighbours(method)
        node = machine.node(disk.name)
        self._tell(1.0, "writing canaries")
        with Blocks(node) as blocks:
            canaries = Canaries(blocks.size, min(self.request.samples, 1024))
            canaries.plant(blocks)
        whole = method in READ_WHOLE
        self._carry_out(method, self._part(2, 50 if whole else 90, method))
        with Blocks(node, writable=False) as blocks:
            canaries.check(blocks)
            report = self._part(50 if whole else 90, 100, "verifying")
            if whole:
                check_all(blocks, report)
            else:
                check_samples(blocks, self.request.samples, patterned=method in PATTERNED, report=report)
            check_table(blocks)
            blocks.reread_partitions()

    def _carry_out(self, method: str, report: Report) -> None:
        disk, machine = self.disk, self.machine
        report(0.0)
        if method == "overwrite":
            with Blocks(machine.node(disk.name)) as blocks:
                blocks.zero(report)
        elif method == "discard":
            self._discard()
        elif method.startswith("ata_"):
            ata.erase(machine, disk.name, enhanced=method.endswith("_enhanced"), report=report)
        elif disk.nvme and method.startswith("nvme_sanitize_"):
            action = nvme.CRYPTO_ERASE if method.endswith("_crypto") else nvme.BLOCK_ERASE
            nvme.sanitize(machine, disk.nvme, action, report)
        elif disk.nvme:
            settings = nvme.CRYPTOGRAPHIC if method.endswith("_crypto") else nvme.USER_DATA
            nvme.format(machine, disk.nvme, disk.name, settings)

    def _discard(self) -> None:
        done = self.machine.run("blkdiscard", str(self.machine.node(self.disk.name)), seconds=3600)
        if not done.ok:
            raise DiskError("method", f"blkdiscard failed: {done.reason}.")

    def _refuse_neighbours(self, method: str) -> None:
        """Raise DiskError if a method would also erase a namespace that nobody asked to erase."""
        space = self.disk.nvme
        if space is None or not (method in OF_CONTROLLER or (method.startswith("nvme_format") and space.formats_all)):
            return
        if spared := [one for one in space.others if one not in self.sound]:
            raise DiskError(
                "method", f"It would also erase {', '.join(spared)} on the same controller, which is not to be erased."
            )

    def _still_locked(self) -> str:
        """Return a problem if the disk has an ATA password, with which it would be unusable after a power cycle."""
        if not (self.disk.ata and self.disk.ata.supported):
            return ""
        state = ata.features(self.machine, self.disk.name)
        return "A password that is not Drydock's is set on the disk." if state and state.enabled else ""

    def _failed(self) -> str:
        if not self.tried:
            return f"The disk supports none of the allowed methods. It supports {', '.join(self.disk.methods)}."
        last = self.tried[-1]
        return f"No method erased the disk. The last one, {last['method']}: {last['error']}"

    def _part(self, first: float, last: float, phase: str) -> Report:
        """Return a function that maps the percent of a phase to that of the disk."""
        return lambda percent: self._tell(first + (last - first) * percent / 100, phase)

    def _tell(self, percent: float, phase: str) -> None:
        self.board.tell(self.disk.name, percent, phase)
