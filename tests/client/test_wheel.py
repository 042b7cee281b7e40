"""The client by itself: a wheel of its own, which needs neither Django nor the engine."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import urllib3

ROOT = Path(__file__).resolve().parents[2]
ALONE = """
import sys
sys.path[:0] = sys.argv[1:]
import drydock_client.http, drydock_client.token_store, drydock_client.trees
from drydock_client.http import HttpClient
foreign = {"django", "pydantic", "rest_framework", "typer", "celery", "drydock", "leases", "blueprints", "interfaces"}
print(sorted(foreign & {name.split(".")[0] for name in sys.modules}), drydock_client.__file__)
"""


def test_it_is_built_offline_and_imported_alone(tmp_path):
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT / "clients/python",
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        opened.extractall(tmp_path / "site")
    assert "drydock_client/py.typed" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"drydock_client", "drydock_leases_client"}
    assert not [name for name in names if name.endswith(".pyc")]
    # Of what is installed here only urllib3 is there for it.
    (tmp_path / "needed").mkdir()
    (tmp_path / "needed" / "urllib3").symlink_to(Path(urllib3.__file__).parent)
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", ALONE, str(tmp_path / "site"), str(tmp_path / "needed")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(f"[] {tmp_path}")


def test_both_packages_ask_for_the_same():
    said = [tomllib.loads((ROOT / path / "pyproject.toml").read_text())["project"] for path in (".", "clients/python")]
    assert said[0]["version"] == said[1]["version"]
    assert set(said[1]["dependencies"]) <= set(said[0]["dependencies"])
