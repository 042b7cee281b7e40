"""One run from an empty folder to an empty folder: load and faults, rest, the end of all, the proof."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from chaos import logs, processes, proof, site
from chaos.client import is_bug
from chaos.facts import facts
from chaos.plan import Plan
from chaos.processes import Process
from chaos.proof import Finding
from chaos.provider import PROVIDER
from chaos.serial import write_plan
from chaos.strikes import Stricken, measure_queues, strike

TURN = 0.05
"""Seconds between two looks of the conductor."""
PAUSE = {"worker": 0.6, "beat": 0.6, "web": 0.6, "client": 0.3}
"""Seconds for which a killed process stays down."""


@dataclass(kw_only=True)
class Run:
    """What a run is made of, and what came of it."""

    plan: Plan
    state: Path
    stricken: Stricken
    began: float = 0.0
    turn: int = -1
    findings: list[Finding] = field(default_factory=list)
    times: dict[str, float] = field(default_factory=dict)
    web: dict[str, int] = field(default_factory=lambda: {"answered": 0, "unanswered": 0})
    operator_acts: int = 0
    facts: dict[str, int] = field(default_factory=dict)
    log: Callable[[str], None] = lambda text: None

    @property
    def processes(self) -> dict[str, Process]:
        return self.stricken.processes


def carry_out(plan: Plan, state: Path, log: Callable[[str], None]) -> Run:
    """The whole run; the findings say whether every promise was kept. Ends all it has started, whatever happens."""
    from django.conf import settings

    port = site.free_port()
    stricken = Stricken(
        engines=settings.ENGINES, prefix=settings.DRYDOCK.broker_prefix, processes=_processes(plan, state, port)
    )
    run = Run(plan=plan, state=state, stricken=stricken, log=log)
    logging.getLogger("leases").setLevel(logging.ERROR)
    try:
        _timed(run, "prepare", lambda: _prepare(run))
        _timed(run, "load and faults", lambda: _load(run, port))
        _timed(run, "rest", lambda: _rest(run, port))
        _timed(run, "wind down", lambda: _wind_down(run, port))
    finally:
        _timed(run, "stop", lambda: _stop(run))
    return run


def _timed(run: Run, name: str, phase: Callable[[], None]) -> None:
    run.log(f"{name} ...")
    began = time.monotonic()
    try:
        phase()
    finally:
        run.times[name] = round(time.monotonic() - began, 1)


def _processes(plan: Plan, state: Path, port: int) -> dict[str, Process]:
    made: dict[str, Process] = {}

    def add(name: str, command: list[str], **environment: str) -> None:
        said = state / "said" / f"{name}.log"
        made[name] = Process(name=name, command=command, environment=environment, log=said)

    for number in range(plan.scale.workers - 1):
        add(f"worker-{number}", processes.worker(number))
    late = plan.scale.workers - 1
    wrong = {"CHAOS_CLOCK_SECONDS": str(plan.wrong_clock)}
    add(f"worker-{late}-wrong-clock", processes.worker(late, app="chaos.skewed"), **wrong)
    add("beat", processes.beat())
    add("web", processes.web(port))
    return made


def _prepare(run: Run) -> None:
    site.prepare_database(run.plan)
    write_plan(run.plan, run.state / "plan.json")
    for process in run.processes.values():
        process.start()


def _load(run: Run, port: int) -> None:
    """Clients ask, faults strike, and whoever dies is started again, until all orders are placed and done."""
    run.began = time.time()
    for number in range(run.plan.scale.clients):
        _add_client(run, number)
    left = list(run.plan.strikes)
    until = time.time() + run.plan.scale.seconds + run.plan.scale.patience
    clients = [process for name, process in run.processes.items() if name.startswith("client")]
    while time.time() < until and (left or not all(client.done for client in clients)):
        while left and left[0].at <= time.time() - run.began:
            _strike(run, left)
        _turn(run, port)
    late = [client.name for client in clients if not client.done]
    run.findings.append(proof.finding("clients were done in time", len(clients), late))


def _strike(run: Run, left: list[Any]) -> None:
    """Carry the next strike out; one whose aim is not there yet comes a little later."""
    what = left.pop(0)
    struck = strike(what, run.stricken)
    run.log(f"  {time.time() - run.began:6.1f} s {what.name}{'' if struck else ' (later)'}")
    if not struck and what.at < 2 * run.plan.scale.seconds:
        left.append(replace(what, at=what.at + 1.0))
        left.sort(key=lambda one: one.at)


def _add_client(run: Run, number: int) -> None:
    command = [sys.executable, "-m", "chaos.client", str(run.state / "plan.json"), str(number)]
    command += [site.owner_name(number), str(run.began)]
    log = run.state / "said" / f"client-{number}.log"
    client = Process(name=f"client-{number}", command=command, environment={}, log=log, once=True)
    run.processes[client.name] = client
    client.start()


def _turn(run: Run, port: int) -> None:
    """What is done all the time: start again who has died, act as the operator, look at the web."""
    for name, process in run.processes.items():
        process.mend(PAUSE[name.partition("-")[0]])
    now = int((time.time() - run.began) * 2)
    if now != run.turn:
        run.turn = now
        _despite_outages(lambda: _operate(run))
        _look_at_web(run, port)
        measure_queues(run.stricken)
    time.sleep(TURN)


def _despite_outages(act: Callable[[], Any]) -> Any:
    """What `act` answers, or None when the database is down; a connection that broke is not used again."""
    from django.db import Error, connection

    from drydock.core.errors import Busy, Conflict, NotFound

    try:
        return act()
    except (Conflict, NotFound, Busy):
        return None
    except Error as error:
        if is_bug(error):
            raise
        connection.close()
        return None


def _operate(run: Run) -> None:
    """The operator: does what holds ask for, and clears failures that only a person can clear."""
    from blueprints.fake.cloud import Cloud
    from blueprints.models import RememberedError
    from leases.models import Run as Plan_
    from leases.operations import callers, installation

    who = callers.caller(site.OPERATOR)
    cloud = Cloud(PROVIDER)
    for waiting in Plan_.objects.filter(waits_for="operator"):
        cloud.resolve()
        lease = waiting.lease_id
        resource = None if lease else waiting.resource_id
        _despite_outages(partial(installation.resolve, who, lease_id=lease, resource_id=resource))
        run.operator_acts += 1
    for (error,) in RememberedError.objects.filter(until=None).values_list("pk"):
        run.operator_acts += installation.clear_errors(who, error_id=error)
    if int(time.time() - run.began) % 4 == 0:
        run.operator_acts += installation.clear_errors(who)


def _look_at_web(run: Run, port: int) -> bool:
    answered = False
    address = f"http://127.0.0.1:{port}/admin/login/"
    with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=1) as answer:
        answered = answer.status == 200
    run.web["answered" if answered else "unanswered"] += 1
    return answered


def _rest(run: Run, port: int) -> None:
    """Until everything that must come to rest has."""
    _wait_for(run, port, proof.resting)
    said = [] if _look_at_web(run, port) or _look_at_web(run, port) else ["it does not answer"]
    run.findings.append(proof.finding("the web process answers again", sum(run.web.values()), said))


def _wait_for(run: Run, port: int, look: Callable[[], list[Finding]]) -> None:
    until = time.monotonic() + run.plan.scale.patience
    while True:
        found = _despite_outages(look)
        good = found is not None and not any(finding.violations for finding in found)
        if good or (time.monotonic() > until and found is not None):
            run.findings += found or []
            return
        for _ in range(6):
            _turn(run, port)


def _wind_down(run: Run, port: int) -> None:
    """Release what is still served, drain the pools, wait until all is gone; then what can be said of the past."""
    from blueprints.models import Blueprint
    from leases.models import Lease
    from leases.operations import blueprints, callers, leases

    who = callers.caller(site.OPERATOR)
    standing = Lease.objects.filter(state__in=["pending", "acquired", "active"], need="")

    def emptied() -> Any:
        # One that is lost meanwhile is asked for again.
        for pk in standing.values_list("pk", flat=True):
            leases.release(who, pk)
        return proof.emptied()

    for name in Blueprint.objects.values_list("name", flat=True):
        blueprints.drain(who, name)
    _wait_for(run, port, emptied)
    run.findings += proof.history(run.plan.orders)
    run.facts = facts()


def _stop(run: Run) -> None:
    """End all processes and the engines, and look whether anything is left."""
    for thread in run.stricken.threads:
        thread.join(10)
    stubborn = processes.stop(list(run.processes.values()))
    down = site.close_engines(run.state)
    died = [f"{p.name} ended with status {p.deaths}" for p in run.processes.values() if p.deaths and not _may_end(p)]
    raised = logs.exceptions(run.state / "said")
    left = processes.left_behind(run.state)
    count = sum(process.starts for process in run.processes.values())
    run.findings += [
        proof.finding("locks are taken in one order: no deadlock", 1, logs.deadlocks(run.stricken.engines.layout.logs)),
        proof.finding("programs end only when told or killed", count, died),
        proof.finding("programs raise only what faults explain", sum(raised.values()), logs.unexpected(raised)),
        proof.finding("processes end when they are told to", len(run.processes), stubborn),
        proof.finding("no process is left", count, left + ([] if down else ["the engines are still up"])),
    ]


def _may_end(process: Process) -> bool:
    """A Celery worker gives up by itself when its children are killed while it connects; whoever started it starts it
    again. What else could end it is told by its log."""
    return process.name.startswith("worker")
