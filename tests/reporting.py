"""What a run says beside pytest's own summary: each failure at once, and what the tests cost."""

from __future__ import annotations

import resource
from typing import Any

import pytest

LONG = 20.0
"""Seconds that a test of `make test` should not take on an idle machine."""
PEAK = "peak_mib"


class Failures:
    """Prints each failure when it happens: a run that is stopped prints no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the test, the phase and the reason, in one line."""
        if report.outcome not in ("failed", "rerun"):
            return
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.write_line(f"\n{report.outcome}: {report.nodeid} ({report.when}): {reason_of(report)}")


class Cost:
    """Collects durations of tests and the peak memory of workers."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.peaks: dict[str, int] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase to its test."""
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker of pytest-xdist says of itself at its end."""
        self.peaks[node.gateway.id] = getattr(node, "workeroutput", {}).get(PEAK, 0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """List the longest tests that took more than LONG, and the workers' memory."""
        long = sorted(((took, test) for test, took in self.seconds.items() if took > LONG), reverse=True)
        if long:
            terminalreporter.section(f"{len(long)} tests took more than {LONG:.0f} s")
            for took, test in long[:25]:
                terminalreporter.write_line(f"{took:6.1f} s {test}")
        if self.peaks:
            memory = ", ".join(f"{name} {mib} MiB" for name, mib in sorted(self.peaks.items()))
            terminalreporter.write_line(
                f"{sum(self.seconds.values()):.0f} s of tests; peak memory of workers: {memory}"
            )


def reason_of(report: pytest.TestReport) -> str:
    """Return the first line of what went wrong, or nothing if pytest does not say."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash else report.longrepr or "").strip().splitlines()
    return lines[0][:300] if lines else ""


def peak_mib() -> int:
    """Return the most memory that this process has used."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def register(config: pytest.Config) -> None:
    """Report in the run's first process, where the reports of all workers arrive."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config), "drydock-failures")
        config.pluginmanager.register(Cost(), "drydock-cost")
