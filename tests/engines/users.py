"""Processes that use private engines, for tests that kill them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from drydock.engines import BROKER, POSTGRESQL, Config
from drydock.engines.process import occupants

SCRIPT = """
import sys
from drydock.engines import Config, ensure
config = Config.from_json(sys.argv[1])
for name in sys.argv[2].split(","):
    ensure(config, name)
print("ready", flush=True)
sys.stdin.read()
"""


def user(
    config: Config, engines: str = POSTGRESQL, before: tuple[str, ...] = (), python: str = sys.executable
) -> subprocess.Popen[str]:
    """Start a process that uses engines until it is killed or its standard input is closed."""
    root = Path(__file__).parents[2]
    modules = os.pathsep.join([str(root), *(path for path in sys.path if path.endswith("site-packages"))])
    return subprocess.Popen(
        [*before, python, "-c", SCRIPT, config.to_json(), engines],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": modules},
    )


def wait_ready(process: subprocess.Popen[str]) -> None:
    """Until the engines it asked for run."""
    assert process.stdout is not None
    said = process.stdout.readline()
    if said != "ready\n":
        process.kill()
        raise AssertionError(process.communicate()[1])


def end(process: subprocess.Popen[str]) -> None:
    """End a user in an orderly way."""
    process.communicate(timeout=90)


def postmaster(config: Config) -> psutil.Process:
    """The process that PostgreSQL's own mark names."""
    lines = (config.layout.data(POSTGRESQL) / "postmaster.pid").read_text().splitlines()
    return psutil.Process(int(lines[0]))


def keeper(config: Config) -> psutil.Process:
    """The keeper."""
    parent = postmaster(config).parent()
    assert parent is not None
    return parent


def running(config: Config) -> list[psutil.Process]:
    """Every engine process of this state folder."""
    layout = config.layout
    return occupants(layout.data(POSTGRESQL), "") + occupants(layout.data(BROKER), "")


def eventually(condition: Callable[[], object], seconds: float = 90.0) -> None:
    """Wait until it holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.05)


def query(config: Config, statement: str) -> str:
    """One value from the private database."""
    import psycopg

    where = f"host={config.layout.sockets} user=drydock dbname=drydock"
    with psycopg.connect(where, autocommit=True) as connection:
        cursor = connection.execute(statement)
        row = cursor.fetchone() if cursor.description else None
    return str(row[0]) if row else ""


def python_for(before: tuple[str, ...]) -> str | None:
    """A Python that an account can run: not ours when that lies in a closed home."""
    version = "{}.{}".format(*sys.version_info)
    check = f"import sys; sys.exit('{{}}.{{}}'.format(*sys.version_info) != '{version}')"
    for python in (sys.executable, f"/usr/bin/python{version}", "/usr/bin/python3"):
        try:
            if subprocess.run([*before, python, "-c", check], capture_output=True, cwd="/").returncode == 0:
                return python
        except OSError:
            continue
    return None
