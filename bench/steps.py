"""Measures each step that a worker of the bench carries out. Loaded into that worker only."""

from __future__ import annotations

import os
import time
from typing import Any

from leases.engine.core.database import run
from leases.engine.lifecycle import runner

_one: Any = runner._one
_KEEP = """
    INSERT INTO bench_step (pid, longest, steps) VALUES (%s, %s, 1)
    ON CONFLICT (pid) DO UPDATE SET longest = greatest(bench_step.longest, EXCLUDED.longest),
        steps = bench_step.steps + 1"""


def _timed(run_id: int) -> bool:
    began = time.perf_counter()
    done = bool(_one(run_id))
    if done:
        run(_KEEP, (os.getpid(), time.perf_counter() - began))
    return done


runner._one = _timed
