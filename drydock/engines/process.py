"""Starting and stopping an engine's process, both with deadlines."""

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
    """Start an engine. The kernel sends it the signal `end` when its keeper dies for any reason."""
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
    """Return a function to run in a child before exec, so that the child is sent this signal when its parent dies."""
    parent = os.getpid()

    def arrange() -> None:
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, int(number))
            if os.getppid() != parent:
                os._exit(1)

    return arrange


def run(command: Sequence[str | Path], account: Account, log: Path, deadline: float, given: str = "") -> None:
    """Run a program to its end. Raises EngineError with the end of its output."""
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
    """Return the environment of an engine. It has none of our variables, which may contain keys."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def open_log(path: Path) -> BinaryIO:
    """Open a log for appending. A large log is renamed first, replacing the older one, so at most two are kept."""
    if path.exists() and path.stat().st_size > LARGEST_LOG:
        path.replace(path.with_suffix(".log.1"))
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))


def wait_ready(
    engine: str, child: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path, deadline: float
) -> None:
    """Wait until the engine answers. Raises EngineError if it ends first or the time runs out."""
    until = time.monotonic() + deadline
    while not ready():
        if child.poll() is not None:
            raise EngineError(f"{engine} ended with status {child.returncode} while starting.{last_lines(log)}")
        if time.monotonic() > until:
            raise EngineError(f"{engine} was not ready within {deadline:g} s.{last_lines(log)}")
        time.sleep(0.02)


def stop(child: subprocess.Popen[bytes], escalation: Sequence[tuple[signal.Signals, float]]) -> None:
    """Send one signal after another, waiting the given seconds after each, until the engine has exited."""
    for number, seconds in (*escalation, (signal.SIGKILL, 5.0)):
        if child.poll() is not None:
            return
        child.send_signal(number)
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            continue


def clear(folder: Path, name: str, patience: float = 10.0) -> None:
    """End the processes that an earlier keeper left running in a data folder. Raises EngineError if one is left."""
    left = occupants(folder, name)
    for process in left:
        _signal(process, signal.SIGINT)
    _, alive = psutil.wait_procs(left, timeout=patience)
    for process in alive:
        _signal(process, signal.SIGKILL)
    _, alive = psutil.wait_procs(alive, timeout=5)
    if alive := occupants(folder, name):
        raise EngineError(
            f"Process {alive[0].pid} uses {folder} and could not be ended.", hint="End the process yourself."
        )


def occupants(folder: Path, name: str) -> list[psutil.Process]:
    """Return the processes with this name whose working directory is the folder."""
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
