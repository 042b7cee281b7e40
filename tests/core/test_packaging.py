"""What pip installs of us is what we install ourselves; lock files name no registry."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def ranges(name: str) -> list[str]:
    lines = (line.split("#")[0].strip() for line in (ROOT / name).read_text().splitlines())
    return [line for line in lines if line and not line.startswith("-")]


def test_pyproject_and_requirements_name_the_same_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sorted(project["dependencies"]) == sorted(ranges("requirements.in"))


def test_every_requirement_has_a_reason_and_a_hash():
    for name in ("requirements", "requirements-dev", "requirements-build"):
        wanted = [line for line in (ROOT / f"{name}.in").read_text().splitlines() if line and line[0] not in "#-"]
        assert [line for line in wanted if "#" not in line] == []
        locked = (ROOT / f"{name}.txt").read_text()
        pinned = re.findall(r"^[\w.\[\]-]+==\S+", locked, re.MULTILINE)
        assert len(pinned) >= len(wanted)
        assert all(f"{pin.split(' ')[0]}" in locked for pin in pinned)
        assert locked.count("--hash=sha256:") >= len(pinned)
        assert "://" not in locked
