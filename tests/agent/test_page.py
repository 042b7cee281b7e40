"""How to write a hardware driver: the package of the page, word for word, found by its entry point."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "write-a-hardware-driver.md"


def test_the_driver_of_the_page_is_found_works_and_is_short(tmp_path):
    text = PAGE.read_text()
    driver, test = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (project,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert len((driver + project).splitlines()) < 100
    (tmp_path / "acme_hardware.py").write_text(driver)
    (tmp_path / "test_acme.py").write_text(test)
    info = tmp_path / "acme_hardware-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-hardware\nVersion: 1.0\n")
    entry_points = project[project.index('[project.entry-points."') :]
    (info / "entry_points.txt").write_text(
        entry_points.replace('[project.entry-points."', "[").replace('"]', "]").replace('"', "")
    )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(tmp_path),
         str(tmp_path / "test_acme.py")],
        cwd=tmp_path, env={"PYTHONPATH": f"{tmp_path}:{PAGE.parents[2]}", "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 passed" in run.stdout
