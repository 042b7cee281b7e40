"""What the console brings for the browser is what its README says, and nothing comes from elsewhere."""

from __future__ import annotations

import hashlib
from pathlib import Path

import leases

STATIC = Path(leases.__file__).parent / "static" / "drydock"


def test_htmx_is_the_file_that_its_readme_names():
    said = (STATIC / "htmx" / "README.md").read_text()
    assert hashlib.sha256((STATIC / "htmx" / "htmx.min.js").read_bytes()).hexdigest() in said
    assert (STATIC / "htmx" / "LICENSE").read_text().startswith("Zero-Clause BSD")
