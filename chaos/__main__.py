"""`python -m chaos [--seed N] [--short]`: one run; exit status 1 when a promise was broken."""

from __future__ import annotations

import argparse
import dataclasses
import json
import secrets
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from chaos import plan as plans
from chaos import site


def main() -> int:
    """Read the arguments, run, report."""
    given = _arguments().parse_args()
    scale = plans.SHORT if given.short else plans.LONG
    if given.leases:
        scale = dataclasses.replace(scale, leases=given.leases)
    plan = plans.plan(secrets.randbelow(10**6) if given.seed is None else given.seed, scale)
    console = Console(stderr=given.json)
    state = site.make_state()
    site.prepare_environment(state, scale.durable)
    began = time.monotonic()
    try:
        report = _run(plan, state, console)
    except BaseException:
        console.print(f"The run broke off; what there is of it is kept in {state}", highlight=False)
        raise
    report["seconds"]["all"] = round(time.monotonic() - began, 1)
    _clear(report, state, console, given.keep)
    from chaos.report import show

    show(report, console)
    if given.json:
        print(json.dumps(report, indent=1))
    again = f"make chaos SEED={plan.seed}{' SHORT=1' if given.short else ''}"
    said = "Every promise was kept." if report["good"] else f"A promise was broken. The same faults again: {again}"
    console.print(f"{said} ({report['seconds']['all']} s)", highlight=False)
    return 0 if report["good"] else 1


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="the plan of a former run; another one each time without")
    parser.add_argument("--short", action="store_true", help="60 leases instead of 1,000")
    parser.add_argument("--leases", type=int, help="so many instead")
    parser.add_argument("--json", action="store_true", help="the report as JSON on standard output")
    parser.add_argument("--keep", action="store_true", help="keep the state folder even when all went well")
    return parser


def _run(plan: plans.Plan, state: Path, console: Console) -> dict[str, Any]:
    import django

    django.setup()
    from chaos.report import as_json
    from chaos.run import carry_out

    run = carry_out(plan, state, lambda text: console.print(text, style="dim", highlight=False))
    return as_json(run)


def _clear(report: dict[str, Any], state: Path, console: Console, keep: bool) -> None:
    """Remove the state folder, unless somebody will want to look at it."""
    if keep or not report["good"]:
        console.print(f"Logs, plan and database are kept in {state}", highlight=False)
        return
    gone = site.remove(state)
    violations = [] if gone else [f"{state} could not be removed"]
    report["promises"].append({"promise": "no file is left", "looked_at": 1, "violations": violations})
    report["good"] = report["good"] and gone


if __name__ == "__main__":
    sys.exit(main())
