"""Programs of this machine that the build runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from drydock.core.errors import DrydockError, InvalidRequest

PACKAGES = {
    "apt-get": "apt", "mmdebstrap": "mmdebstrap", "xorriso": "xorriso", "zstd": "zstd", "mformat": "mtools",
    "mcopy": "mtools",
}  # fmt: skip
"""The programs, and the Debian packages that contain them."""
_CLEAN = ("PATH", "HOME", "TMPDIR", "http_proxy", "https_proxy", "no_proxy", "APT_CONFIG")


def missing() -> list[str]:
    """Return the packages of the programs that are missing on this machine."""
    return sorted({package for program, package in PACKAGES.items() if not shutil.which(program)})


def require() -> None:
    """Raise InvalidRequest if a program is missing."""
    if packages := missing():
        raise InvalidRequest(
            f"Building a ramdisk needs programs that are not installed on this machine: {', '.join(packages)}.",
            hint=f"On Debian: apt install {' '.join(packages)}",
        )


def run(words: Sequence[str], *, epoch: int, seconds: float, env: Mapping[str, str] | None = None) -> str:
    """Run a program and return what it printed. Raises DrydockError if it fails or takes too long.

    It sees `epoch` as the current time where it supports SOURCE_DATE_EPOCH, and nothing of this process's environment
    that could change what it makes.
    """
    kept = {name: os.environ[name] for name in _CLEAN if name in os.environ}
    clean = {**kept, "LC_ALL": "C.UTF-8", "TZ": "UTC", "SOURCE_DATE_EPOCH": str(epoch), **(env or {})}
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        env=clean, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise DrydockError(f"{words[0]} did not end within {seconds / 60:.0f} minutes.") from None
            raise
    if process.returncode:
        raise DrydockError(f"{words[0]} failed (exit code {process.returncode}): {_last_lines(err or out)}")
    return out


def versions() -> dict[str, str]:
    """Return the versions of the programs whose output depends on their version."""
    return {name: _version(name) for name in ("mmdebstrap", "xorriso", "zstd", "mformat")}


def _version(name: str) -> str:
    done = subprocess.run([name, "--version"], capture_output=True, text=True, errors="replace", timeout=60)
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if any(map(str.isdigit, line))]
    return lines[0][:100] if lines else "unknown"


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "W:"))]
    return " / ".join((errors or lines)[-4:])[-1000:] or "it printed nothing"


def read_text(name: str) -> str:
    """Return a file of the ramdisk's system."""
    return (Path(__file__).parent / "system" / name).read_text()
