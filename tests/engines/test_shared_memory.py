"""A system without /dev/shm: workers and `make up` say what is missing, in one sentence and without a traceback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

_WITHOUT = """
mount -t tmpfs none "$1" && cp -a /dev/null /dev/zero /dev/random /dev/urandom "$1" && mount --bind "$1" /dev || exit 77
shift; exec "$@"
"""
_WORKER = ("-m", "celery", "-A", "drydock.celery", "--quiet", "worker", "-Q", "periodic", "-c", "1")


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root: a /dev of its own is mounted")
@pytest.mark.parametrize("program", [_WORKER, ("-m", "drydock.up")], ids=["worker", "up"])
def test_without_shared_memory_workers_say_what_to_mount(program: tuple[str, ...], folders: Callable[..., Path]):
    folder = folders()
    dev = folder / "dev"
    dev.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ours = {"DRYDOCK_STATE": str(folder / "state"), "DRYDOCK_WEB_PORT": str(port)}
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("DRYDOCK_", "DATABASE_", "BROKER_"))
    }
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", _WITHOUT, "sh", str(dev), sys.executable, *program],
        env={**kept, **ours, "DJANGO_SETTINGS_MODULE": "drydock.settings"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if ended.returncode == 77:
        pytest.skip(f"no mount is allowed here: {ended.stderr}")
    assert ended.returncode == 1
    assert "mount -t tmpfs" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (folder / "state" / "db").exists(), "nothing is started first"
