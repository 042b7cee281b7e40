"""Run tools such as nvidia-smi on this machine, each with a time limit and a limit on its output."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping

from drydock_agent.tree import TOOLS

SECONDS = 20.0
"""Timeout in seconds for each tool. A lost GPU can make nvidia-smi hang indefinitely."""

BYTES = 4 << 20

TIMEOUT, TOO_LONG = "timeout", "too long"


def collect(tools: Mapping[str, tuple[str, ...]], *, seconds: float = SECONDS) -> dict[str, str]:
    """Run the tools that are installed and return their output as files of a tree."""
    files: dict[str, str] = {}
    for name, argv in tools.items():
        if shutil.which(argv[0]):
            text, status = run(argv, seconds=seconds)
            files[f"{TOOLS}/{name}.out"] = text
            files[f"{TOOLS}/{name}.status"] = status
    return files


def run(argv: tuple[str, ...], *, seconds: float = SECONDS) -> tuple[str, str]:
    """Run a tool. Return its standard output, and its exit code as text or the reason why it was stopped."""
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except OSError as error:
        return "", f"not started: {error.strerror}"
    output, stopped = b"", ""
    try:
        output, stopped = _read(process, time.monotonic() + seconds)
    finally:
        if stopped or process.poll() is None:
            _end(process)
        if process.stdout:
            process.stdout.close()
    return output[:BYTES].decode("utf-8", "replace"), stopped or str(process.returncode)


def _read(process: subprocess.Popen[bytes], until: float) -> tuple[bytes, str]:
    """Read all output. The second value says why the tool has to be stopped, or is empty."""
    pieces: list[bytes] = []
    size = 0
    with selectors.DefaultSelector() as selector:
        assert process.stdout is not None
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            left = until - time.monotonic()
            if left <= 0 or not selector.select(left):
                return b"".join(pieces), TIMEOUT
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
            if size > BYTES:
                return b"".join(pieces), TOO_LONG
    try:
        process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return b"".join(pieces), TIMEOUT
    return b"".join(pieces), ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a tool with everything that it started. One in an uninterruptible sleep is left to the kernel."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(2)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        return
