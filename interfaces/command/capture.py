"""Keeps the beginning and the end of a stream of any length in bounded memory."""

from __future__ import annotations

from collections import deque


class Capture:
    """At most about `limit` bytes: the first half, and the last half as it slides."""

    def __init__(self, limit: int) -> None:
        self._head_room = (limit + 1) // 2
        self._tail_room = limit // 2
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.left_out = 0

    def add(self, part: bytes) -> None:
        """Take the next bytes of the stream."""
        taken = part[: self._head_room - len(self._head)]
        self._head += taken
        rest = part[len(taken) :]
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._tail_room:
            dropped = len(self._tail.popleft())
            self._tail_size -= dropped
            self.left_out += dropped

    @property
    def truncated(self) -> bool:
        """Whether bytes had to be left out."""
        return self.left_out + max(0, self._tail_size - self._tail_room) > 0

    @property
    def content(self) -> bytes:
        """What was kept, with a mark where bytes are missing."""
        tail = b"".join(self._tail)
        over = max(0, len(tail) - self._tail_room)
        missing = self.left_out + over
        if not missing:
            return bytes(self._head) + tail
        return bytes(self._head) + f"\n[... {missing} bytes left out ...]\n".encode() + tail[over:]
