"""`drydock demo` as `make demo` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.blueprints import device_peers
from tests.cli.conftest import ROOT


@pytest.fixture
def place():
    folder = Path(tempfile.mkdtemp(prefix="dd-demo-", dir="/tmp"))
    folder.chmod(0o711)
    yield folder
    folder.rmdir()


SCENES = {
    (): ("A host on this machine", "gets it when the first lease ends", "served by nginx", "Nothing is left"),
    ("--hardware",): (
        "The same for the captured tree",
        "CUDA_VISIBLE_DEVICES is GPU-",
        "below it is leased by",
        "its silence is noticed, under attention",
        "it returns, and so does the GPU",
        "Nothing is left",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--hardware",)])
def test_the_demo_comes_true_and_leaves_nothing(place, options):
    environment = {**os.environ, "DRYDOCK_STATE": str(place / "mine"), "TMPDIR": str(place)}
    environment["DJANGO_SETTINGS_MODULE"] = "a_project.of_the_users.settings"
    command = [sys.executable, "-m", "drydock", "demo", *options]
    # The demo of hardware hands out device nodes of this machine, as other tests do.
    with device_peers.one_at_a_time() if options else nullcontext():
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    assert " NO " not in done.stdout
    for scene in SCENES[options]:
        assert scene in done.stdout
    assert list(place.iterdir()) == []
