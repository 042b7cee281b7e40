"""What we give machines is what cloud-init takes: by the check that cloud-init itself brings (Debian's package)."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from blueprints import registry
from blueprints.cloud import interruption
from blueprints.userdata import user_data
from interfaces.keys import new_key_pair
from tests.peers import require

CONTROL = new_key_pair("drydock")
HOST = new_key_pair("drydock-host")
ALSO = {
    "packages": ["htop"], "runcmd": [["systemctl", "start", "x"], "echo done"], "users": [{"name": "ada"}],
    "write_files": [{"path": "/etc/motd", "content": "hello"}], "timezone": "UTC", "bootcmd": ["true"],
}  # fmt: skip


def checked(text: str, folder: Path) -> tuple[int, str]:
    """What `cloud-init schema --config-file` says of it."""
    program = Path(require("cloud-init"))
    file = folder / "user-data"
    file.write_text(text)
    code = program.parents[1] / "lib" / "python3" / "dist-packages"
    command = [sys.executable, "-W", "ignore", "-m", "cloudinit.config.schema", "--config-file", file]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": str(code)}
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("also", [None, ALSO], ids=["ours alone", "with the operator's"])
@pytest.mark.parametrize("ends_at", [None, dt.datetime(2027, 1, 1, tzinfo=dt.UTC)], ids=["", "with its end"])
@pytest.mark.parametrize("host_key", [None, HOST], ids=["its own host key", "our host key"])
@pytest.mark.parametrize("kind", ["", "ec2", "gce", "azure"])
def test_cloud_init_takes_our_user_data(also, ends_at, host_key, kind, tmp_path):
    reader = registry.kind(kind).Config.interruption if kind else ""
    assert bool(reader) is bool(kind)
    programs = interruption.cloud_config(reader) if reader else None
    text = user_data(
        user="drydock", public_key=CONTROL.public, host_key=host_key, ends_at=ends_at, also=also, programs=programs
    )
    code, said = checked(text, tmp_path)
    assert code == 0, said
    assert "Valid cloud-config" in said


def test_the_dead_mans_switch_is_set_without_waiting_for_it(tmp_path):
    """Its timer starts after sysinit.target, which waits for the bootcmd that sets it."""
    end = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    text = user_data(user="drydock", public_key=CONTROL.public, host_key=HOST, ends_at=end)
    os.mkfifo(tmp_path / "ran")
    (tmp_path / "systemd-run").write_text(f"#!/bin/sh\necho $$ $@ >{tmp_path}/ran\nexec sleep 60\n")
    (tmp_path / "systemd-run").chmod(0o755)
    (command,) = json.loads(text.partition("\n")[2])["bootcmd"]
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(command, capture_output=True, timeout=30, env={**os.environ, "PATH": path}, check=True)
    pid, *words = (tmp_path / "ran").read_text().split()
    os.kill(int(pid), signal.SIGKILL)
    assert words[-2:] == ["systemctl", "poweroff"]
    left = next(word.partition("=")[2] for word in words if word.startswith("--on-active="))
    assert 3500 < int(left) <= 3600


def test_what_it_would_not_take_is_told(tmp_path):
    code, said = checked('#cloud-config\n{"users": 7}\n', tmp_path)
    assert code == 1
    assert "7 is not of type" in said


def test_cloud_init_takes_the_user_data_of_a_machine_whose_control_account_is_root(tmp_path):
    text = user_data(user="root", public_key=CONTROL.public, host_key=HOST)
    said = json.loads(text.removeprefix("#cloud-config\n"))
    assert said["disable_root"] is False, "root could not log in otherwise"
    code, said = checked(text, tmp_path)
    assert code == 0, said
