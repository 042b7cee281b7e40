"""The how-to's example: a kind in a package of its own is installed, found, and passes the conformance suite."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "sandcastle"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, installed as a stranger would, without a network."""
    target = tmp_path_factory.mktemp("installed")
    source = tmp_path_factory.mktemp("source")
    subprocess.run(["cp", "-R", f"{EXAMPLE}/.", str(source)], check=True)
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, "--target", target, source], check=True)
    return target


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_it_is_installed_found_and_conforms(installed: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("DRYDOCK_TEST", "PYTEST"))}
    suite = str(Path(__file__).with_name("sandcastle_suite.py"))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", suite]
    done = subprocess.run(words, cwd=ROOT, env=env | {"PYTHONPATH": str(installed)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_it_has_fewer_than_a_hundred_lines_of_python() -> None:
    lines = [line for file in EXAMPLE.rglob("*.py") for line in file.read_text().splitlines() if line.strip()]
    assert len(lines) < 100, len(lines)


def test_the_page_shows_the_code_as_it_is() -> None:
    page = (ROOT / "docs" / "how-to" / "kind.md").read_text()
    blocks = [block.split("```")[0] for block in page.split("```python\n")[1:]]
    code = "\n".join(file.read_text() for file in EXAMPLE.rglob("*.py"))
    shown = [line for block in blocks for line in block.splitlines() if line.strip() and not line.startswith("# ")]
    assert shown
    for line in shown:
        assert line in code, f"the page shows what the example does not have: {line}"
