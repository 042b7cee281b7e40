"""What the summary of a run says of its cost: tests that took long, and the memory of each worker."""

from __future__ import annotations

import resource
from typing import Any

import pytest

LONG = 20.0
"""Seconds that a test of `make test` should not take on an idle machine."""
PEAK = "peak_mib"


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


def peak_mib() -> int:
    """Return the most memory that this process has used."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def register(config: pytest.Config) -> None:
    """Report costs where tests are collected and reported: in the run's first process."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Cost(), "drydock-cost")
