"""`make test-gpu` where there is no GPU: it says so, and its checks pass on a stand-in and notice what is wrong.

The GPU is a captured one, its nvidia-smi a program of ours, and its node another device of this machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from drydock.demo import captured
from tests.accelerators.fake_smi import FakeSmi
from tests.accelerators.gpu import anonymous
from tests.agent.hand import GPU_UUID, gpu_xml
from tests.blueprints import device_peers

pytestmark = pytest.mark.timeout(600, func_only=True)

ROOT = Path(__file__).resolve().parents[2]
Check = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def _database() -> None:
    """It has one of its own."""


def check(*options: str, **changes: str) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, "DATABASE_URL": "", "BROKER_URL": "", **changes}
    return subprocess.run(
        [sys.executable, "-m", "tests.accelerators.gpu", *options], cwd=ROOT, env=surroundings, capture_output=True,
        text=True, timeout=300,
    )  # fmt: skip


def test_it_is_skipped_where_there_is_no_driver(tmp_path: Path) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has a GPU")
    done = check("--to", str(tmp_path / "seen"), PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("test-gpu was skipped on this machine: it has no NVIDIA driver")
    assert not (tmp_path / "seen").exists()


def test_what_it_keeps_identifies_no_machine() -> None:
    other = GPU_UUID.replace("513536b6", "613536b6")
    process = "<process_info><process_name>/home/ada/secret</process_name></process_info>"
    text = anonymous(gpu_xml(processes=process) + f"MIG 1g (UUID: {other}) {GPU_UUID.upper()}")
    for secret in ("1650522003820", "513536b6", "613536b6", "/home/ada"):
        assert secret not in text.lower()
    assert text.count("GPU-00000000-0000-4000-8000-000000000001") == 2, "the same UUID stays the same"
    assert text.count("GPU-00000000-0000-4000-8000-000000000002") == 1
    assert "NVIDIA A100-SXM4-80GB" in text
    found = json.loads(anonymous(json.dumps({"identities": {"serial": "165", "mac": "0c:42"}, "name": "A100"})))
    assert found == {"identities": {"serial": "", "mac": ""}, "name": "A100"}


@pytest.fixture
def stand() -> Iterator[tuple[FakeSmi, Check]]:
    """What stands for the GPU, in a folder that other accounts may enter, and a function that runs the checks on it."""
    with device_peers.place() as place, tempfile.TemporaryDirectory(dir="/tmp", prefix="dd-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        captured.write(folder / "captured")
        smi = FakeSmi(folder / "tools")
        options = ["--captured", str(folder / "captured"), "--node", place.node(0).path, "--tools", str(smi.folder)]
        yield smi, partial(check, *options, TMPDIR=name)


@pytest.mark.slow
def test_its_checks_pass_on_a_stand_in(stand: tuple[FakeSmi, Check], tmp_path: Path) -> None:
    smi, run = stand
    before = smi.read()
    done = run("--to", str(tmp_path / "seen"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NO " not in done.stdout
    for said in (": opened", ": Permission denied", "yes all settings are those from before", "yes no share in the"):
        assert said in done.stdout, said
    assert smi.read() == before
    kept = {one.name: one.read_text() for one in (tmp_path / "seen").iterdir()}
    assert set(kept) == {"nvidia-smi.xml", "nvidia-smi-L.txt", "hardware.json"}
    assert not [name for name, text in kept.items() if captured.UUID in text or "0423718026114" in text]


@pytest.mark.slow
def test_it_fails_if_a_setting_is_not_as_before(stand: tuple[FakeSmi, Check]) -> None:
    smi, run = stand
    program = smi.folder / "nvidia-smi"
    # The power limit can be set, and has another value by the time that it is read.
    program.write_text(program.read_text().replace("-q)", "-q)\n echo $(($(cut -d. -f1 power) - 1)).00 >power", 1))
    done = run()
    assert done.returncode != 0
    assert "all settings are those from before" in done.stderr, done.stdout
