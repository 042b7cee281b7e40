"""What pip installs of us is what we install ourselves, under names that are ours; lock files name no registry."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from drydock import DISTRIBUTION

ROOT = Path(__file__).parents[2]


def ranges(name: str) -> list[str]:
    lines = (line.split("#")[0].strip() for line in (ROOT / name).read_text().splitlines())
    return [line for line in lines if line and not line.startswith("-")]


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_installation_has_the_sdks_of_all_kinds_that_we_ship():
    extras = [one for wanted in project()["optional-dependencies"].values() for one in wanted]
    assert sorted(project()["dependencies"] + extras) == sorted(ranges("requirements.in"))


def test_it_starts_in_a_path_with_a_blank_and_letters_of_any_alphabet_in_the_plain_c_locale(tmp_path):
    """Python before 3.13 reads .pth files in the encoding of the locale."""
    checkout = tmp_path / "odd pläce é"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", checkout / ".venv"], check=True)
    (packages,) = (checkout / ".venv").glob("lib/python*/site-packages")
    here = Path(sysconfig.get_path("purelib"))
    for path in here.glob("_editable_impl_drydock*.pth"):
        shutil.copy(path, packages)
    (checkout / "drydock").mkdir()
    (checkout / "drydock" / "__init__.py").touch()
    run = [checkout / ".venv" / "bin" / "python", "-c", "import drydock; print(ascii(drydock.__file__))"]
    environment = {"LC_ALL": "C", "LOCPATH": "/nonexistent", "PATH": os.defpath}
    done = subprocess.run(run, env=environment, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ascii(str(checkout / "drydock" / "__init__.py"))


WITHOUT = """
import sys
sys.modules[sys.argv[2]] = None
from blueprints import registry
from blueprints.cloud.faults import SdkNotInstalled
try:
    registry.kind(sys.argv[1]).client_class()
except SdkNotInstalled as error:
    print(error.message)
"""


@pytest.mark.parametrize(
    ("kind", "extra", "package"),
    [("ec2", "aws", "botocore"), ("gce", "gcp", "google.cloud"), ("azure", "azure", "azure.mgmt.compute")],
)
def test_a_missing_sdk_is_named_with_a_command_that_installs_it(kind, extra, package):
    wanted = project()["optional-dependencies"][extra]
    run = [sys.executable, "-c", WITHOUT, kind, package]
    told = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    command = told.partition("pip install ")[2]
    assert told.startswith(f"The kind {kind} needs packages that are not installed")
    assert sorted(re.findall(r"'([^']+)'", command)) == sorted(wanted)


OURS = {"drydock-leases", "drydock-leases-client", "drydock-sandcastle"}
"""Names of the distributions made here. On PyPI, `drydock` is a stranger's; the first two were free on 2026-11-22."""

_INSTALLS = re.compile(r"(?:pipx? install|uv (?:pip install|add|tool install)|pipx run|uvx|conda install)([^\n`;&#]*)")
_NAMED = re.compile(r"^[\"'`(]*(drydock[a-z0-9_.-]*)")
_EXTRA = re.compile(r"(?<![\w./-])(drydock[a-z_-]*)\[(?:aws|gcp|azure|[a-z]+,)")


def texts() -> dict[str, str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    binary, here = (".png", ".gif", ".woff2"), str(Path(__file__).relative_to(ROOT))
    names = [name for name in listed.split("\0") if name and name != here and not name.endswith(binary)]
    return {name: (ROOT / name).read_text(errors="replace") for name in names if (ROOT / name).is_file()}


def suggested(text: str) -> list[str]:
    """Names of distributions like ours that a text tells to install."""
    words = [word for found in _INSTALLS.finditer(text) for word in found[1].split()]
    return [m[1].rstrip(".") for word in words if (m := _NAMED.match(word))] + _EXTRA.findall(text)


def test_no_text_suggests_a_distribution_that_is_not_ours():
    assert suggested("Run `pip install 'drydock[aws]'`.") == ["drydock", "drydock"]
    assert suggested("pip install --upgrade drydock-client") == ["drydock-client"]
    found = {name: [one for one in suggested(text) if one not in OURS] for name, text in texts().items()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_what_is_built_here_has_our_names_and_needs_nothing_of_a_stranger():
    for folder in (".", "clients/python", "examples/sandcastle"):
        one = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        assert one["name"] in OURS
        needed = [re.split(r"[^\w.-]", each)[0] for each in one["dependencies"]]
        assert [name for name in needed if name.startswith("drydock") and name not in OURS] == []
    assert project()["name"] == DISTRIBUTION


def test_both_distributions_carry_the_licence():
    for folder in (".", "clients/python"):
        one = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        assert (one["license"], one["license-files"]) == ("Apache-2.0", ["LICENSE"])
        assert (ROOT / folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_every_requirement_has_a_reason_and_a_hash():
    for name in ("requirements", "requirements-dev", "requirements-build", "requirements-generator"):
        wanted = [line for line in (ROOT / f"{name}.in").read_text().splitlines() if line and line[0] not in "#-"]
        assert [line for line in wanted if "#" not in line] == []
        locked = (ROOT / f"{name}.txt").read_text()
        pinned = re.findall(r"^[\w.\[\]-]+==\S+", locked, re.MULTILINE)
        assert len(pinned) >= len(wanted)
        assert all(f"{pin.split(' ')[0]}" in locked for pin in pinned)
        assert locked.count("--hash=sha256:") >= len(pinned)
        assert "://" not in locked
