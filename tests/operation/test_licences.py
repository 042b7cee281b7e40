"""What is installed at run time may be used as we use it: no GPL, no AGPL; the LGPL only imported unmodified."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
REFUSED = re.compile(
    r"(?<!L)(?<!Lesser )(?<!Library or Lesser )(A?GPL|(Affero )?General Public License)", re.IGNORECASE
)
ALLOWED = re.compile(
    r"MIT|BSD|Apache|ISC|MPL|Mozilla|PSF|Python Software Foundation|PostgreSQL|Unlicense|HPND|Zlib|LGPL|Lesser General",
    re.IGNORECASE,
)


@pytest.fixture(autouse=True)
def _database():
    """Metadata alone is looked at."""


def locked() -> list[str]:
    """The names in the run-time lock that are for this machine."""
    lines = re.findall(r"^([\w.\[\]-]+==[^\\\n]+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    wanted = [Requirement(line.split(" #")[0].strip()) for line in lines]
    return sorted(one.name for one in wanted if one.marker is None or one.marker.evaluate())


def said(of: Distribution) -> str:
    """Return the licence that a package states in its metadata, or else the titles of its licence files."""
    licences = [line for line in of.metadata.get_all("Classifier") or [] if line.startswith("License ::")]
    text = (of.metadata.get("License") or "").strip().split("\n")[0][:200]
    stated = " | ".join([*(of.metadata.get_all("License-Expression") or []), *licences, text]).strip(" |")
    return stated or " | ".join(title(of, name) for name in of.metadata.get_all("License-File") or []).strip(" |")


def title(of: Distribution, name: str) -> str:
    """Return the first line of a licence file, such as "Apache License"."""
    text = of.read_text(f"licenses/{name}") or of.read_text(name) or ""
    return next((line.strip()[:200] for line in text.splitlines() if line.strip()), "")


def problem(words: str) -> str:
    """What is wrong with a licence; nothing when it may be used. One of several offered is enough."""
    offered = re.split(r"\s+OR\s+|\|", words)
    if not any(ALLOWED.search(one) for one in offered):
        return f"not known to be allowed: {words!r}"
    kept = [one for one in offered if ALLOWED.search(one) and not REFUSED.search(one)]
    return "" if kept else f"refused: {words!r}"


def test_every_package_of_the_run_time_lock_may_be_used():
    names, found = locked(), {}
    assert len(names) > 30
    for name in names:
        try:
            found[name] = problem(said(distribution(name)))
        except PackageNotFoundError:
            found[name] = "not installed, though its marker says so"
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    ("words", "may"),
    [
        ("MIT", True), ("BSD-3-Clause", True), ("LGPL-3.0-only", True), ("GPL-3.0-or-later", False),
        ("AGPL-3.0", False), ("License :: OSI Approved :: GNU General Public License v3 (GPLv3)", False),
        ("License :: OSI Approved :: GNU Lesser General Public License v2 (LGPLv2)", True),
        ("Apache License", True), ("GNU GENERAL PUBLIC LICENSE", False), ("GNU LESSER GENERAL PUBLIC LICENSE", True),
        ("Apache-2.0 OR GPL-2.0", True), ("", False), ("Proprietary", False),
    ],
)  # fmt: skip
def test_the_check_tells_them_apart(words, may):
    assert (problem(words) == "") is may
