"""Reading and writing the blocks of a disk, past the page cache where the disk allows it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from drydock_agent.disks.errors import DiskError

CHUNK = 4 << 20
_PAGE = 4096
_REREAD_PARTITIONS = 0x125F
"""The request BLKRRPART of the kernel."""

Report = Callable[[float], None]


class Blocks:
    """An open disk. On a real machine nothing else can mount or claim it meanwhile."""

    def __init__(self, path: Path, *, writable: bool = True, exclusive: bool = True) -> None:
        self.name = path.name
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            # For a block device, O_EXCL without O_CREAT means that neither mounts nor other claims exist.
            self._plain = os.open(path, flags | (os.O_EXCL if exclusive else 0))
        except OSError as error:
            raise _failed(error, self.name, "be opened") from None
        self._direct = _open_direct(self._plain, writable)
        self._buffer = mmap.mmap(-1, CHUNK)
        self.size = os.lseek(self._plain, 0, os.SEEK_END)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the disk."""
        for handle in (self._plain, self._direct):
            if handle >= 0:
                os.close(handle)
        self._plain = self._direct = -1
        # The traceback of an error can still refer to the buffer, which then ends with it.
        with contextlib.suppress(BufferError):
            self._buffer.close()

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes as they are on the disk, at most CHUNK. Raises DiskError if they cannot be read."""
        try:
            if self._direct >= 0 and offset % _PAGE == 0 and length % _PAGE == 0:
                # The buffer of a memory map is aligned, as direct access needs it.
                with memoryview(self._buffer) as view:
                    count = os.preadv(self._direct, [view[:length]], offset)
                found = self._buffer[:count]
            else:
                os.posix_fadvise(self._plain, offset, length, os.POSIX_FADV_DONTNEED)
                found = os.pread(self._plain, length, offset)
        except OSError as error:
            raise _failed(error, self.name, f"be read at byte {offset}") from None
        if len(found) != length:
            raise DiskError("disk", f"{self.name} returned {len(found)} of {length} bytes at byte {offset}.")
        return found

    def write(self, offset: int, content: bytes | memoryview) -> None:
        """Write bytes. Call `sync` afterwards. Raises DiskError."""
        view = memoryview(content)
        try:
            while view:
                count = os.pwrite(self._plain, view, offset)
                view, offset = view[count:], offset + count
        except OSError as error:
            raise _failed(error, self.name, f"be written at byte {offset}") from None

    def sync(self) -> None:
        """Force everything written to the disk, and forget what the cache has of it. Raises DiskError."""
        try:
            os.fsync(self._plain)
            os.posix_fadvise(self._plain, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise _failed(error, self.name, "be written") from None

    def zero(self, report: Report) -> int:
        """Write zeros over the whole disk, once. Return the number of bytes. Raises DiskError."""
        with memoryview(self._buffer) as view:
            view[:] = bytes(CHUNK)
            for offset, length in self.spans():
                try:
                    self._zero(view[:length], offset)
                except OSError as error:
                    raise _failed(error, self.name, f"be written at byte {offset}") from None
                report(100 * (offset + length) / self.size)
        self.sync()
        return self.size

    def _zero(self, view: memoryview, offset: int) -> None:
        while view:
            aligned = self._direct >= 0 and offset % _PAGE == 0 and len(view) % _PAGE == 0
            count = os.pwritev(self._direct if aligned else self._plain, [view], offset)
            view, offset = view[count:], offset + count

    def wipe(self, *, first: int, last: int) -> None:
        """Write zeros over the first and the last bytes. Raises DiskError."""
        self.write(0, bytes(min(first, self.size)))
        last = min(last, self.size)
        self.write(self.size - last, bytes(last))
        self.sync()

    def spans(self, end: int | None = None) -> Iterator[tuple[int, int]]:
        """Yield offset and length of chunks that cover the disk, or its first `end` bytes."""
        end = self.size if end is None else end
        for offset in range(0, end, CHUNK):
            yield offset, min(CHUNK, end - offset)

    def reread_partitions(self) -> None:
        """Ask the kernel to read the partition table again. Regular files have none to read."""
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._plain, _REREAD_PARTITIONS)


def _open_direct(plain: int, writable: bool) -> int:
    """Open the same disk for direct access, or return -1 where the file system has none."""
    try:
        return os.open(f"/proc/self/fd/{plain}", (os.O_RDWR if writable else os.O_RDONLY) | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return -1


def _failed(error: OSError, name: str, what: str) -> DiskError:
    if error.errno == errno.EBUSY:
        return DiskError("busy", f"{name} is in use: it is mounted, or part of another device.")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return DiskError("read_only", f"{name} cannot be written to: {error.strerror}.")
    return DiskError("disk", f"{name} cannot {what}: {error.strerror}.")
