"""A process that is forked while a thread of it imports a module has a child that can import the module, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORKED = """
import contextlib, os, signal, sys, threading
from blueprints import registry
from drydock.core import forking

registry.BUILT_IN["slow"] = "slow_module:Slow"


def use():
    with contextlib.suppress(registry.KindBroken):
        {use}


other = threading.Thread(target=use)
other.start()
while "slow_module" not in sys.modules:
    pass
child = os.fork()
if child == 0:
    signal.alarm(10)
    use()
    os._exit(0 if sys.modules["slow_module"].done else 1)
other.join()
assert sys.modules["slow_module"].done
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("use", ["forking.load('slow_module')", "registry.kind('slow')"])
def test_the_child_of_a_fork_does_not_wait_for_an_import_of_its_parent(tmp_path: Path, use: str) -> None:
    (tmp_path / "slow_module.py").write_text("import time\n\ntime.sleep(1)\ndone = True\n")
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-c", FORKED.format(use=use)], env={**os.environ, "PYTHONPATH": path}, timeout=60
    )
    assert done.returncode == 0
