"""The pages for operators: commands, options and settings in them exist, and links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from drydock import environment
from drydock.cli.program import app

ROOT = Path(__file__).parents[2]
_OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "README.md", "THREAT_MODEL.md", "deploy/README.md")
PAGES = sorted([*(ROOT / name for name in _OUTSIDE), *(ROOT / "docs").rglob("*.md")])
TRIED = [
    *sorted((ROOT / "docs/how-to").glob("*.md")),
    *(ROOT / f"{n}.md" for n in ("README", "docs/tour", "docs/tutorial")),
]


@pytest.fixture(autouse=True)
def _database():
    """Files alone are looked at."""


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    heads = [line.lstrip("# ") for line in page.read_text().splitlines() if line.startswith("#")]
    return {re.sub(r"[^a-z0-9 _-]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            assert there.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(there), f"{page.name}: {target}"


def commands(page: Path) -> list[str]:
    """What the page says to type: indented or fenced lines, and words in backquotes, that begin with `drydock `."""
    text = re.sub(r'"\$\([^)]*\)"', "TEXT", page.read_text().replace("\\\n", " "))
    lines = re.findall(r"^(?: {4}|)(?:\w+=\S+ )*(drydock [a-z].*)$", text, re.MULTILINE)
    lines += re.findall(r"`(drydock [a-z][^`]*)`", text)
    return [part.strip() for line in lines for part in re.split(r" {2,}#|\s[|;&>]+\s|\$\(", line)
            if part.strip().startswith("drydock ")]  # fmt: skip


@cache
def program() -> Any:
    """All our commands."""
    return typer.main.get_command(app)


@pytest.mark.parametrize("page", TRIED, ids=lambda page: page.name)
def test_commands_and_their_options_exist(page):
    for said in commands(page):
        words = shlex.split(said.split(" -- ")[0], comments=True)[1:]
        here = program()
        while words and hasattr(here, "commands") and not words[0].startswith("-"):
            assert words[0] in here.commands, f"{page.name}: {said}"
            here = here.commands[words.pop(0)]
        known = {name for parameter in here.params for name in (*parameter.opts, *parameter.secondary_opts)} | {
            "--help"
        }
        options = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert options <= known, f"{page.name}: {said}"


def test_commands_are_found_in_pages():
    found = [one for page in TRIED for one in commands(page)]
    assert len(found) > 60
    assert any(one.startswith("drydock blueprints change") for one in found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_named_exist(page):
    known = {environment.variable(name) for name in environment.Environment.model_fields}
    known |= {
        "DRYDOCK_USER",
        "DRYDOCK_SERVER",
        "DRYDOCK_TOKEN",
        "DRYDOCK_DEBUG",
        "DRYDOCK_LEASE",
        "DRYDOCK_INSECURE",
        "DRYDOCK_TOKENS",
        "DRYDOCK_CA",
        # What a lease on a network card or VF is given.
        "DRYDOCK_INTERFACES",
        # What a hook in the guest is given.
        "DRYDOCK_PROVIDER",
        "DRYDOCK_ACTION",
        "DRYDOCK_TIME",
        "DRYDOCK_NOTICE",
        # What a program that controls a machine is given.
        "DRYDOCK_BMC_SECONDS",
        # What a program that controls a switch is given.
        "DRYDOCK_NETWORK_SECONDS",
        "DRYDOCK_NETWORK_MAC",
        # The folder on whose disk a bench writes.
        "DRYDOCK_BENCH_DISK",
    }
    for name in re.findall(r"\bDRYDOCK_[A-Z_]+\b", page.read_text()):
        assert name in known or name.endswith("_"), f"{page.name}: {name}"


def test_every_page_is_in_the_index():
    index = ROOT / "docs/README.md"
    linked = {(index.parent / path).resolve() for path in re.findall(r"\]\(([^)#\s]+)", index.read_text())}
    wanted = {page for page in PAGES if page.is_relative_to(ROOT / "docs")} - {index}
    assert {page for page in wanted if page.resolve() not in linked and page.parent.resolve() not in linked} == set()


@pytest.mark.parametrize("page", ["THREAT_MODEL.md", "docs/features.md"])
def test_every_test_that_a_page_names_exists(page):
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / page).read_text())
    assert len(named) > 40
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text(), f"{file}::{test}"


def test_every_file_of_the_threat_model_exists():
    for path in re.findall(
        r"`((?:leases|drydock|drydock_client|deploy)/[\w/.]+)`", (ROOT / "THREAT_MODEL.md").read_text()
    ):
        assert (ROOT / path).exists(), path


def test_every_pointer_of_the_glossary_leads_to_code():
    text = (ROOT / "docs/glossary.md").read_text()
    named = re.findall(r"`(\w+)` in `([\w/]+\.py)`", text)
    assert len(named) > 30
    for name, file in named:
        assert re.search(rf"^\s*((class|def) {name}\b|{name}(:| =))", (ROOT / file).read_text(), re.MULTILINE), name
    for path in re.findall(r"`((?:leases|drydock|drydock_client|blueprints|interfaces)/[\w/.]+)`", text):
        assert (ROOT / path).exists(), path


def test_every_target_of_make_that_contributing_names_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^ {4}|`)make ([a-z-]+)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE))
    assert len(named) > 5
    assert named <= targets


def test_the_fragments_of_the_changelog_are_ones_that_towncrier_collects():
    """A fragment with a wrong name would be left out of the release's notes, and stay."""
    run = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "0.0.0"]
    draft = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    fragments = [path for path in (ROOT / "changelog.d").glob("*.md") if path.name != "README.md"]
    assert [path.name for path in fragments if path.read_text().strip() not in draft] == []


def test_pictures_are_small_and_load_nothing_from_elsewhere():
    pictures = [path for path in (ROOT / "docs/images").iterdir() if path.suffix in (".png", ".svg")]
    assert len(pictures) > 3
    for path in pictures:
        assert path.stat().st_size < 200_000, path.name
        if path.suffix == ".svg":
            assert set(re.findall(r"https?://[^\s\"<]+", path.read_text())) <= {
                "http://www.w3.org/2000/svg", "https://www.textualize.io",
            }  # fmt: skip
