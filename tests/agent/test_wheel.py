"""The agent by itself: a wheel of its own, which needs the standard library only."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import drydock_agent
from drydock_agent import GROUP, load_drivers

ROOT = Path(__file__).resolve().parents[2]
ALONE = """
import sys
sys.path[:0] = sys.argv[1:]
from drydock_agent import FolderTree, load_drivers, scan
drivers = load_drivers()
print(sorted(one.name for one in drivers.drivers), len(scan(FolderTree("/nonexistent"), drivers=drivers).devices))
loaded = {name.split(".")[0] for name in sys.modules}
print(sorted(loaded - set(sys.stdlib_module_names) - {"__main__", "drydock_agent"}))
"""


def project(path: str) -> dict:
    return tomllib.loads((ROOT / path / "pyproject.toml").read_text())["project"]


def test_it_is_built_offline_and_finds_its_drivers_alone(tmp_path):
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT / "clients/agent",
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        opened.extractall(tmp_path / "site")
    assert "drydock_agent/py.typed" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"drydock_agent", "drydock_leases_agent"}
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", ALONE, str(tmp_path / "site")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    shipped = sorted(project("clients/agent")["entry-points"][GROUP])
    assert run.stdout == f"{shipped} 0\n[]\n"


def test_both_distributions_register_every_driver_of_the_package():
    assert project(".")["version"] == project("clients/agent")["version"]
    assert project("clients/agent").get("dependencies", []) == []
    registered = project(".")["entry-points"][GROUP]
    assert registered == project("clients/agent")["entry-points"][GROUP]
    folder = Path(drydock_agent.__file__).parent / "drivers"
    modules = {
        path.stem for path in folder.glob("*.py") if path.stem != "__init__" and "    paths = " in path.read_text()
    }
    assert {name.removesuffix("_") for name in registered} == modules
    assert {one.name for one in load_drivers().drivers} >= set(registered)
