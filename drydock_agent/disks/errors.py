"""The error of everything that works on disks."""

from __future__ import annotations


class DiskError(Exception):
    """A request was refused, or a disk or an image failed. `code` is for programs, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def to_json(self) -> dict[str, str]:
        """Return the error as it is printed."""
        return {"code": self.code, "message": self.message}
