"""What came of a run, for people and for programs."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from chaos.run import Run


def counts(run: Run) -> dict[str, int]:
    """What the run did."""
    killed = sum(process.killed for process in run.processes.values())
    started = sum(process.starts for process in run.processes.values())
    gave_up = sum(len(process.deaths) for process in run.processes.values())
    return {
        **{name.replace("_", " "): done for name, done in sorted(run.stricken.done.items())},
        "processes killed": killed, "processes started": started, "processes that gave up": gave_up,
        "acts of the operator": run.operator_acts,
        "web answered": run.web["answered"], "web unanswered": run.web["unanswered"],
    }  # fmt: skip


def good(run: Run) -> bool:
    """Every promise was kept, and looked at."""
    return bool(run.findings) and not any(finding.violations for finding in run.findings)


def as_json(run: Run) -> dict[str, Any]:
    """All of it as one value."""
    return {
        "seed": run.plan.seed, "good": good(run), "facts": run.facts, "counts": counts(run), "seconds": run.times,
        "promises": [
            {"promise": f.promise, "looked_at": f.looked_at, "violations": list(f.violations)} for f in run.findings
        ],
    }  # fmt: skip


def show(report: dict[str, Any], console: Console) -> None:
    """Two tables and one line."""
    done = Table(title=f"Chaos, seed {report['seed']}", box=box.SIMPLE, title_justify="left")
    done.add_column("what happened")
    done.add_column("times", justify="right")
    for name, times in {**report["facts"], **report["counts"]}.items():
        done.add_row(name, str(times))
    for name, seconds in report["seconds"].items():
        done.add_row(f"seconds: {name}", str(seconds))
    console.print(done)
    kept = Table(box=box.SIMPLE)
    kept.add_column("promise")
    kept.add_column("looked at", justify="right")
    kept.add_column("broken", justify="right")
    for promise in report["promises"]:
        broken = len(promise["violations"])
        kept.add_row(promise["promise"], str(promise["looked_at"]), f"[red]{broken}[/]" if broken else "0")
    console.print(kept)
    for promise in report["promises"]:
        for violation in promise["violations"]:
            console.print(f"[red]broken[/] {promise['promise']}: {violation}", highlight=False)
