"""A shell on this machine, as the account of an endpoint and with its own terminal.

The shell gets a terminal of its own, and this process copies between it and ours. If the shell shared ours, the account
could type into our terminal.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import subprocess
import termios
import tty
from collections.abc import Iterator
from types import FrameType

from interfaces import launch as launching
from interfaces.endpoints import LocalEndpoint
from interfaces.local.restrictions import join, started

_PART = 1 << 16
_LAST_PARTS = 64
"""Parts of output that are read after the process has ended, if a program that it left behind keeps writing."""
_SHELL = "if [ -x /bin/bash ]; then exec /bin/bash -i; else exec /bin/sh -i; fi\n"


def attach(endpoint: LocalEndpoint, line: str = "", *, stdin: int = 0, stdout: int = 1) -> int:
    """Run `line`, or a shell, in a new terminal connected to ours, and return its exit code. Raises NotStarted.

    If an exception ends this function, the processes of the session are terminated.
    """
    ours, theirs = pty.openpty()
    try:
        _resize(stdin, ours)
        if os.geteuid() == 0:
            os.fchown(theirs, endpoint.uid, endpoint.gid)
        os.fchmod(theirs, 0o600)
        process = _started(endpoint, os.ttyname(theirs), line)
    finally:
        os.close(theirs)
    try:
        with _raw(stdin), _resized(stdin, ours):
            _copy(process, ours, stdin, stdout)
        code = process.wait()
        return 128 - code if code < 0 else code
    finally:
        os.close(ours)  # the kernel sends SIGHUP to what still uses the terminal
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _started(endpoint: LocalEndpoint, terminal: str, line: str) -> subprocess.Popen[bytes]:
    """Start the process on the terminal.

    The process reads its script only once it is in its control group. It is the leader of a session, so the terminal
    that it opens becomes its controlling terminal.
    """
    process = started(endpoint, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    variables = launching.exports([*endpoint.environment, ("TERM", os.environ.get("TERM") or "dumb")])
    script = f'exec <{terminal} >{terminal} 2>&1\n{variables}cd -- "$HOME" || exit 126\n'
    script += f"exec /bin/sh -c {launching.quoted(line)}\n" if line else _SHELL
    try:
        join(process.pid, endpoint)
        assert process.stdin is not None
        process.stdin.write(launching.one_line(script))
        process.stdin.close()
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process


def _copy(process: subprocess.Popen[bytes], ours: int, stdin: int, stdout: int) -> None:
    """Copy between the two terminals until the process has ended and all of its output was read.

    Does not wait for programs that the process left running.
    """
    sources, left = [ours, stdin], _LAST_PARTS
    while left:
        ended = process.poll() is not None
        left -= ended
        ready, _, _ = select.select(sources, [], [], 0 if ended else 0.1)
        if ours in ready:
            part = _read(ours)
            if not part and not _opening(process):
                return
            _write(stdout, part)
        elif ended:
            return
        if stdin in ready:
            if part := _read(stdin):
                _write(ours, part)
            else:
                sources.remove(stdin)
                _write(ours, b"\x04")


def _opening(process: subprocess.Popen[bytes]) -> bool:
    """Wait briefly for a process that is opening or closing the terminal.

    Return whether the process is still running.
    """
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.02)
    return process.returncode is None


def _read(source: int) -> bytes:
    try:
        return os.read(source, _PART)
    except OSError:  # EIO: nobody has the other side open
        return b""


def _write(target: int, part: bytes) -> None:
    while part:
        part = part[os.write(target, part) :]


@contextlib.contextmanager
def _raw(stdin: int) -> Iterator[None]:
    """Pass every key that is typed in this block on to the process, including Ctrl-C."""
    if not os.isatty(stdin):
        yield
        return
    before = termios.tcgetattr(stdin)
    tty.setraw(stdin, termios.TCSADRAIN)  # what was typed ahead stays
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _resized(stdin: int, ours: int) -> Iterator[None]:
    """Resize the new terminal whenever the size of ours changes."""

    def changed(number: int, frame: FrameType | None) -> None:
        _resize(stdin, ours)

    before = signal.signal(signal.SIGWINCH, changed)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def _resize(stdin: int, ours: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(ours, termios.TIOCSWINSZ, fcntl.ioctl(stdin, termios.TIOCGWINSZ, bytes(8)))
