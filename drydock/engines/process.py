"""Starting and stopping one engine process, each with a deadline."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import psutil

from drydock.engines.account import Account
from drydock.engines.errors import EngineError, last_lines

LARGEST_LOG = 10 * 2**20
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def start(command: Sequence[str | Path], account: Account, log: Path, end: signal.Signals) -> subprocess.Popen[bytes]:
    """Start an engine that gets `end` when its keeper dies, however that happens."""
    with open_log(log) as output:
        return subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            umask=0o077,
            env=_environment(),
            preexec_fn=end_with_parent(end),
            **account.arguments(),
        )


def end_with_parent(number: signal.Signals) -> Callable[[], None]:
    """To run in a child before exec: the child gets this signal when its parent dies, however that happens."""
    parent = os.getpid()

    def arrange() -> None:
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, int(number))
            if os.getppid() != parent:
                os._exit(1)

    return arrange


def run(command: Sequence[str | Path], account: Account, log: Path, deadline: float, given: str = "") -> None:
    """Run a program to its end; raises EngineError with the end of its output."""
    with open_log(log) as output:
        try:
            subprocess.run(
                [str(part) for part in command],
                input=given.encode(),
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                umask=0o077,
                env=_environment(),
                check=True,
                timeout=deadline,
                **account.arguments(),
            )
        except subprocess.TimeoutExpired as error:
            raise EngineError(f"{Path(command[0]).name} took longer than {deadline:g} s.{last_lines(log)}") from error
        except subprocess.CalledProcessError as error:
            failed = f"{Path(command[0]).name} ended with status {error.returncode}."
            raise EngineError(failed + last_lines(log)) from error


def _environment() -> dict[str, str]:
    """The engines see none of our variables: keys may be among them."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def open_log(path: Path) -> BinaryIO:
    """A log to append to; a large one is turned over once, so that two are kept at most."""
    if path.exists() and path.stat().st_size > LARGEST_LOG:
        path.replace(path.with_suffix(".log.1"))
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))


def wait_ready(child: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path, deadline: float) -> None:
    """Wait until the engine answers; raises EngineError when it ends first or the time runs out."""
    until = time.monotonic() + deadline
    while not ready():
        if child.poll() is not None:
            raise EngineError(f"It ended with status {child.returncode} while starting.{last_lines(log)}")
        if time.monotonic() > until:
            raise EngineError(f"It was not ready after {deadline:g} s.{last_lines(log)}")
        time.sleep(0.02)


def stop(child: subprocess.Popen[bytes], escalation: Sequence[tuple[signal.Signals, float]]) -> None:
    """Send one signal after the other, giving each its seconds, until the engine has ended."""
    for number, seconds in (*escalation, (signal.SIGKILL, 5.0)):
        if child.poll() is not None:
            return
        child.send_signal(number)
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            continue


def clear(folder: Path, name: str, patience: float = 10.0) -> None:
    """End whatever an earlier keeper left running in a data folder; after this nobody writes there."""
    left = occupants(folder, name)
    for process in left:
        _signal(process, signal.SIGINT)
    _, alive = psutil.wait_procs(left, timeout=patience)
    for process in alive:
        _signal(process, signal.SIGKILL)
    _, alive = psutil.wait_procs(alive, timeout=5)
    if alive := occupants(folder, name):
        raise EngineError(f"Process {alive[0].pid} holds {folder} and cannot be ended.", hint="End it by hand.")


def occupants(folder: Path, name: str) -> list[psutil.Process]:
    """Processes of this name that work in this folder."""
    found = []
    for process in psutil.process_iter(["name", "cwd"]):
        if process.info["cwd"] == str(folder) and str(process.info["name"]).startswith(name):
            found.append(process)
    return found


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
