"""The result of a command: how it ended, and the output that was kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """The result of a command.

    `exit_code` is 128 + `signal` if a signal ended the command; over SSH, the signal is derived from the code, as
    shells do. `truncated` means that bytes were omitted from the middle of `stdout` or `stderr`, which have a mark
    there. `duration` is in seconds.
    """

    exit_code: int
    signal: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False
    duration: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0

    @property
    def text(self) -> str:
        """`stdout` as text. Bytes that are not UTF-8 are replaced."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        """`stderr` as text. Bytes that are not UTF-8 are replaced."""
        return self.stderr.decode("utf-8", "replace")
