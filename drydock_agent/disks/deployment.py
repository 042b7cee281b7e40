"""The deployment of an image: downloaded, checked, written to a disk, read back, and given its seed."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drydock_agent.disks import images, partitions
from drydock_agent.disks.blocks import Blocks, Report
from drydock_agent.disks.download import Download
from drydock_agent.disks.errors import DiskError
from drydock_agent.disks.hints import select
from drydock_agent.disks.inventory import Disk, disks
from drydock_agent.disks.jobs import Journal
from drydock_agent.disks.machine import Machine
from drydock_agent.disks.requests import WriteRequest
from drydock_agent.disks.sinks import HEAD, DiskSink, FileSink, Sink, ThreadSink, ZstdSink, no_memory, too_large

_RESERVE = 64 << 20
"""Bytes of memory that an image leaves free."""
_EDGE = 1 << 20


def target(machine: Machine, request: WriteRequest) -> Disk:
    """Return the disk that the hints select. Raises DiskError."""
    return select(disks(machine), request.disk)


def write(machine: Machine, request: WriteRequest, disk: Disk, journal: Journal) -> dict[str, Any]:
    """Write an image to a disk. Return the result of the job. Raises DiskError; the disk then cannot be booted."""
    return _Deployment(machine, request, disk, journal).run()


@dataclasses.dataclass
class _Deployment:
    machine: Machine
    request: WriteRequest
    disk: Disk
    journal: Journal

    def run(self) -> dict[str, Any]:
        """Write, verify, and add the seed."""
        node = self.machine.node(self.disk.name)
        with self._staging() as folder, Download(self.request.url, ca=self.request.ca).closing() as download:
            with Blocks(node) as blocks:
                self._check_length(download, blocks)
                # From here to the end of the job, whatever was on the disk before cannot be booted either.
                blocks.wipe(first=_EDGE, last=_EDGE)
                try:
                    size = self._written(download, blocks, node, folder)
                    self._finish(blocks, size)
                except BaseException:
                    with contextlib.suppress(DiskError):
                        blocks.wipe(first=_EDGE, last=_EDGE)
                    raise
                blocks.reread_partitions()
            received = download.received
        return {
            "disk": self.disk.to_json(), "sha256": self.request.sha256.lower(), "bytes": received,
            "virtual_size_bytes": size,
        }  # fmt: skip

    def _written(self, download: Download, blocks: Blocks, node: Path, folder: Path) -> int:
        """Write the image and read it back. Return its size unpacked."""
        if self.request.format.startswith("raw"):
            return self._streamed(download, blocks)
        return self._converted(download, blocks, node, folder / "image")

    def _streamed(self, download: Download, blocks: Blocks) -> int:
        """Write an image while it is downloaded. Its first bytes follow when its hash is known."""
        # The hash of a raw image is that of its download, which costs enough to compute it once.
        sink = DiskSink(blocks, self._most(blocks), is_hashed=self.request.format != "raw")
        self._downloaded(download, self._through(ThreadSink(sink)), 60)
        self._check_layout(sink.head)
        sink.commit()
        self._read_back(blocks, sink.size, sink.digest or self.request.sha256.lower())
        return sink.size

    def _converted(self, download: Download, blocks: Blocks, node: Path, file: Path) -> int:
        """Store an image, check what it refers to, then write it."""
        room = images.room(self.machine, file.parent) - _RESERVE
        # No image of a disk of this size has a larger file; it would be a bomb.
        most = blocks.size + blocks.size // 8 + _RESERVE
        refuse = no_memory if room < most else too_large
        if download.length is not None and download.length > min(room, most):
            raise refuse(min(room, most))
        self._downloaded(download, self._through(FileSink(file, min(room, most), refuse)), 40)
        images.check_header(file)
        size = images.virtual_size(self.machine, file)
        if size > self._most(blocks):
            raise too_large(self._most(blocks))
        images.convert(self.machine, file, node, self._part(40, 75, "Writing"))
        blocks.sync()
        self._check_layout(blocks.read(0, 8192))
        images.compare(self.machine, file, node, size, self._part(75, 95, "Reading back"))
        return size

    def _through(self, sink: Sink) -> Sink:
        return ZstdSink(self.machine, sink) if self.request.format.endswith(".zst") else sink

    def _downloaded(self, download: Download, sink: Sink, percent: float) -> None:
        """Pass the download to a sink. Raises DiskError unless it has the hash that the request gives."""
        found = hashlib.sha256()
        report = self._part(0, percent, "Downloading")
        try:
            while piece := download.read():
                found.update(piece)
                sink.write(piece)
                report(100 * download.received / download.length if download.length else 50)
            if found.hexdigest() != self.request.sha256.lower():
                raise DiskError(
                    "wrong_hash", f"The SHA-256 of the image is {found.hexdigest()}, and not {self.request.sha256}."
                )
            sink.finish()
        except BaseException:
            sink.abort()
            raise

    def _read_back(self, blocks: Blocks, size: int, digest: str) -> None:
        found = hashlib.sha256()
        report = self._part(60, 95, "Reading back")
        for offset, length in blocks.spans(size):
            # Direct reads have whole pages; the disk has some bytes more than the image.
            found.update(blocks.read(offset, min(-(-length // 4096) * 4096, blocks.size - offset))[:length])
            report(100 * (offset + length) / size)
        if found.hexdigest() != digest:
            raise DiskError("verification", f"{self.disk.name} does not hold what was written to it.")

    def _finish(self, blocks: Blocks, size: int) -> None:
        """Adapt the partition table to the disk, and add the seed."""
        self._part(95, 99, "Adding the seed to")(0)
        label = partitions.layout(blocks.read(0, 8192)).label
        if size < blocks.size:
            partitions.fix(self.machine, self.disk.name, label)
        if self.request.seed:
            partitions.add(self.machine, self.disk.name, blocks, self.request.seed)

    def _check_length(self, download: Download, blocks: Blocks) -> None:
        """Refuse what is known to be too large before anything is written."""
        if download.length == 0:
            raise DiskError("too_short", "The image has no bytes.")
        most = self._most(blocks)
        if self.request.format == "raw" and download.length is not None and download.length > most:
            raise too_large(most)

    def _check_layout(self, head: bytes) -> None:
        """Raise DiskError if the image cannot work on this disk."""
        found = partitions.layout(head)
        if self.request.seed and not found.label:
            raise DiskError("image", "The image has no partition table, so the seed has no place on the disk.")
        if found.label == "gpt" and found.sector != self.disk.sector_bytes:
            raise DiskError(
                "image",
                f"The image was made for sectors of {found.sector} bytes; {self.disk.name} has sectors of "
                f"{self.disk.sector_bytes} bytes.",
            )

    def _most(self, blocks: Blocks) -> int:
        """Return how many bytes the image may have unpacked."""
        size = blocks.size
        if self.request.seed:
            size -= -(-len(self.request.seed) // HEAD) * HEAD + partitions.RESERVED
        return max(0, min(size, self.request.max_size_bytes or size))

    @contextlib.contextmanager
    def _staging(self) -> Iterator[Path]:
        """Make an empty folder for the image, and remove it afterwards. Also what a killed job has left."""
        folder = self.machine.state / "images"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _part(self, first: float, last: float, phase: str) -> Report:
        """Return a function that maps the percent of a phase to that of the job."""
        return lambda percent: self.journal.report(first + (last - first) * percent / 100, f"{phase} {self.disk.name}.")
