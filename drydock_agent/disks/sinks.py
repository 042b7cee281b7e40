"""Where the bytes of a download go: to a disk, to a file, or through a decompressor first."""

from __future__ import annotations

import hashlib
import os
import queue
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from drydock_agent.disks.blocks import Blocks
from drydock_agent.disks.errors import DiskError
from drydock_agent.disks.machine import Machine, end

HEAD = 1 << 20
"""Bytes at the start of a disk that are written last, so that a disk with a part of an image cannot be booted."""
_PIECE, _QUEUED, _WAIT = 1 << 20, 32, 0.5


class Sink(Protocol):
    """A destination of bytes."""

    def write(self, content: bytes) -> None:
        """Take the next bytes. Raises DiskError."""

    def finish(self) -> None:
        """Wait until everything was taken. Raises DiskError."""

    def abort(self) -> None:
        """End what runs, without an error."""


class DiskSink:
    """Writes to a disk, and keeps back the first bytes until `commit`."""

    def __init__(self, blocks: Blocks, most: int, *, is_hashed: bool) -> None:
        self._blocks, self._most = blocks, most
        self._head = bytearray()
        self._hash = hashlib.sha256() if is_hashed else None
        self.size = 0

    @property
    def head(self) -> bytes:
        """The first bytes, which are not on the disk yet."""
        return bytes(self._head)

    @property
    def digest(self) -> str:
        """The SHA-256 of everything that was taken; empty if it is known otherwise."""
        return self._hash.hexdigest() if self._hash else ""

    def write(self, content: bytes) -> None:
        """Write the next bytes. Raises DiskError if there are more than the disk may take."""
        if self.size + len(content) > self._most:
            raise too_large(self._most)
        if self._hash:
            self._hash.update(content)
        offset, rest = self.size, content
        if missing := max(0, HEAD - offset):
            self._head += content[:missing]
            offset, rest = offset + len(content[:missing]), content[missing:]
        self._blocks.write(offset, rest)
        self.size += len(content)

    def finish(self) -> None:
        """Force what was written to the disk."""
        self._blocks.sync()

    def abort(self) -> None:
        """Leave the disk without the first bytes."""

    def commit(self) -> None:
        """Write the first bytes."""
        self._blocks.write(0, self.head)
        self._blocks.sync()


class FileSink:
    """Writes to a new file that only its owner can read."""

    def __init__(self, path: Path, most: int, refuse: Callable[[int], DiskError]) -> None:
        self._most, self._refuse = most, refuse
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self.size = 0

    def write(self, content: bytes) -> None:
        """Write the next bytes. Raises what `refuse` returns if there are more than the file may have."""
        self.size += len(content)
        if self.size > self._most:
            raise self._refuse(self._most)
        view = memoryview(content)
        try:
            while view:
                view = view[os.write(self._handle, view) :]
        except OSError as error:
            raise DiskError("no_memory", f"The image cannot be stored: {error.strerror}.") from None

    def finish(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def abort(self) -> None:
        """Close the file."""
        self.finish()


class ThreadSink:
    """Passes bytes to another sink in a thread, so that the download goes on while the disk writes."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._pieces: queue.Queue[bytes | None] = queue.Queue(_QUEUED)
        self._error: DiskError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def write(self, content: bytes) -> None:
        """Pass the next bytes on."""
        self._put(content)

    def finish(self) -> None:
        """Wait for the thread, and finish the other sink."""
        self._put(None)
        self._thread.join()
        self._check()
        self._sink.finish()

    def abort(self) -> None:
        """End the thread, and the other sink."""
        self._error = self._error or DiskError("aborted", "The download ended.")
        self._thread.join(60)
        self._sink.abort()

    def _put(self, piece: bytes | None) -> None:
        while True:
            self._check()
            try:
                self._pieces.put(piece, timeout=_WAIT)
            except queue.Full:
                continue
            return

    def _run(self) -> None:
        while self._error is None:
            try:
                piece = self._pieces.get(timeout=_WAIT)
                if piece is None:
                    return
                self._sink.write(piece)
            except queue.Empty:
                continue
            except DiskError as error:
                self._error = error
            except Exception as error:
                self._error = DiskError("internal", f"Writing ended with {type(error).__name__}: {error}.")

    def _check(self) -> None:
        if self._error is not None:
            raise self._error


class ZstdSink:
    """Decompresses with zstd on the way to another sink."""

    def __init__(self, machine: Machine, sink: Sink) -> None:
        self._sink = sink
        self._error: DiskError | None = None
        # 128 MiB of window is what zstd itself allows; an image cannot demand more memory.
        self._process = machine.started("zstd", "-dcq", "--memory=128MB", "-", stdin=subprocess.PIPE)
        self._said = bytearray()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._run, self._listen)]
        for one in self._threads:
            one.start()

    def write(self, content: bytes) -> None:
        """Decompress the next bytes. Raises the error of the other sink."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(content)
        except (BrokenPipeError, ValueError):
            self._fail()

    def finish(self) -> None:
        """Wait until everything is decompressed. Raises DiskError if the stream was damaged or is not complete."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            self._fail()
        for one in self._threads:
            one.join()
        if self._error is not None or self._process.wait() != 0:
            self._fail()
        end(self._process)
        self._sink.finish()

    def abort(self) -> None:
        """Kill zstd, and end the other sink."""
        self._process.kill()
        for one in self._threads:
            one.join(60)
        end(self._process)
        self._sink.abort()

    def _run(self) -> None:
        assert self._process.stdout is not None
        try:
            while piece := self._process.stdout.read(_PIECE):
                self._sink.write(piece)
        except DiskError as error:
            self._error = error
            self._process.kill()
        except Exception as error:
            self._error = DiskError("internal", f"Writing ended with {type(error).__name__}: {error}.")
            self._process.kill()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        while piece := self._process.stderr.read(4096):
            self._said += piece[: max(0, 4096 - len(self._said))]

    def _fail(self) -> None:
        """Raise why decompressing ended."""
        for one in self._threads:
            one.join(60)
        said = " ".join(self._said.decode("utf-8", "replace").split())[:200].rstrip(".")
        raise self._error or DiskError("image", f"The image cannot be decompressed by zstd: {said or 'it is damaged'}.")


def too_large(most: int) -> DiskError:
    """Return the error of an image that has more bytes than the disk may take."""
    return DiskError("too_large", f"The image is larger than the {most} bytes that it may have on this disk.")


def no_memory(most: int) -> DiskError:
    """Return the error of an image that must be stored before it is written, and is too large for that."""
    return DiskError(
        "no_memory",
        f"The image is larger than the {most} bytes that this machine can keep in memory. Images in the formats raw "
        "and raw.zst are written while they are downloaded, and may have any size.",
    )
