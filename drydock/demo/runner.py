"""`make demo` and `make demo-hardware`: leases on real engines, in a state folder of their own.

A demo touches none of your data: DRYDOCK_STATE is a fresh temporary folder, and DATABASE_URL and BROKER_URL are
ignored. It exits with 0 only if every expectation was met and nothing was left behind.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import psutil

from drydock.cli.toolkit.exits import FAILURE, Stopped, described, stoppable, undisturbed
from drydock.demo.demo_output import DemoOutput
from drydock.demo.hardware import HardwareDemo
from drydock.demo.script import Demo


class Scenes(Protocol):
    """A demo that the runner can start."""

    def run(self) -> None:
        """Run all scenes."""
        ...


def main(*, hardware: bool = False) -> int:
    """Run the demo, or that of hardware, and return its exit status."""
    code = run(HardwareDemo if hardware else Demo)
    if code == 0:
        DemoOutput().scene("All checks passed. Next: docs/tour.md, or drydock lease --help")
    return code


def run(make: Callable[[DemoOutput], Scenes]) -> int:
    """Run scenes in a state folder of their own, and return the exit status."""
    stage = DemoOutput()
    state = own_state()
    code = 0
    try:
        with stoppable():
            make(stage).run()
    except Stopped as stopped:
        code = stopped.code
    except Exception as error:
        if os.environ.get("DRYDOCK_DEBUG"):
            raise
        message, _, hint = described(error)
        stage.promise("the demo finishes", False, f"{message} {hint}".strip())
    with undisturbed():
        clear(stage, state)
    if stage.broken:
        print(f"\nThe demo failed: {'; '.join(stage.broken)}", file=sys.stderr)
        return FAILURE
    return code


def own_state() -> Path:
    """Create a state folder for this run, and set up an environment that refers to nothing else."""
    for name in [*os.environ]:
        if name in ("DATABASE_URL", "BROKER_URL") or (name.startswith("DRYDOCK_") and name != "DRYDOCK_DEBUG"):
            del os.environ[name]
    state = Path(tempfile.mkdtemp(prefix="drydock-demo-"))
    if os.geteuid() == 0:
        state.chmod(0o711)  # the engines and the leases run under accounts of their own
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "drydock.settings", "DRYDOCK_STATE": str(state), "DRYDOCK_ENGINE_DURABLE": "0",
        "DRYDOCK_ENGINE_LINGER_SECONDS": "0.1",
    }  # fmt: skip
    return state


def clear(stage: DemoOutput, state: Path) -> None:
    """Stop the engines, remove the folder, and check that no process of the demo is left."""
    from drydock.engines import Config, leave, wait_until_stopped

    leave(state)
    stopped = wait_until_stopped(Config(state=state), 30)
    stage.promise("the engines have stopped", stopped)
    left = _processes(state)
    stage.promise("no process of the demo is left", not left, "; ".join(left))
    if stage.broken:
        print(f"\nLogs and data are kept in {state}", file=sys.stderr)
        return
    shutil.rmtree(state, ignore_errors=True)
    stage.promise("no file of the demo is left", not state.exists(), f"see {state}")


def _processes(state: Path) -> list[str]:

    found = []
    for process in psutil.process_iter(["pid", "cmdline", "cwd"]):
        words = [*(process.info["cmdline"] or []), process.info["cwd"] or ""]
        if process.pid != os.getpid() and any(str(state) in word for word in words):
            found.append(" ".join(words)[:200])
    return found
