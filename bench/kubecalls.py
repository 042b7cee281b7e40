"""Counts each step that a worker of the bench carries out: its calls to the API server and its SQL statements.

Loaded into that worker only. Calls outside a step are those of watches, and of discoveries.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from blueprints.kube import client
from leases.engine.core.database import run
from leases.engine.lifecycle import runner

_KEEP = """
    INSERT INTO bench_call (resource, phase, step, seconds, calls, longest, statements)
    VALUES (%s, %s, %s, %s, %s, %s, %s)"""
_one: Any = runner._one
_go_on: Any = runner._go_on
_call: Any = client.Connection.call


@dataclass
class _Counts:
    resource: int = 0
    phase: str = ""
    step: str = ""
    calls: list[float] = field(default_factory=list)
    statements: int = 0

    def statement(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        self.statements += 1
        return execute(sql, params, many, context)


class _Local(threading.local):
    counts: _Counts | None = None


_local = _Local()


def _counted(run_id: int) -> bool:
    began, counts = time.perf_counter(), _Counts()
    _local.counts = counts
    try:
        with connection.execute_wrapper(counts.statement):
            done = bool(_one(run_id))
    finally:
        _local.counts = None
    if counts.resource:
        longest = max(counts.calls, default=0.0)
        _keep(counts, time.perf_counter() - began, longest)
    return done


def _keep(counts: _Counts, spent: float, longest: float) -> None:
    given = (counts.resource, counts.phase, counts.step, spent, len(counts.calls), longest, counts.statements)
    run(_KEEP, given)


def _named(current: Any, *given: Any) -> bool:
    if _local.counts is not None:
        _local.counts.resource, _local.counts.phase = current.resource_id, current.phase
        _local.counts.step = current.step
    return bool(_go_on(current, *given))


def _timed(self: Any, method: str, path: str, **options: Any) -> Any:
    if path.startswith("/openapi"):  # once a day in each process
        return _call(self, method, path, **options)
    began = time.perf_counter()
    try:
        return _call(self, method, path, **options)
    finally:
        spent = time.perf_counter() - began
        if _local.counts is not None:
            _local.counts.calls.append(spent)
        else:
            run(_KEEP, (0, "", path[-80:], spent, 1, spent, 0))


runner._one, runner._go_on, client.Connection.call = _counted, _named, _timed
