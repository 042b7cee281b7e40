"""PostgreSQL is stopped under load, for a moment and for 15 seconds: all go on by themselves, and log little."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from drydock.engines import POSTGRESQL
from tests.outages.servers import FAST, IMMEDIATE, OwnServers, PrivateEngines, environment
from tests.outages.shell import Shell
from tests.outages.site import Site, problems

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PROCESSES = {"worker": 3}
"""How many processes write to a log, where they are several: a line a second is what each may write."""
STEPS = [str(n) for n in range(1, 13)]
COUNTING = f"for n in {' '.join(STEPS)}; do echo $n; sleep 0.5; done"


def outage(site: Site, how, seconds: float) -> tuple[float, Counter[tuple[str, int]]]:
    """Stop the database so long: when it was back, and what the web process answered meanwhile."""
    until, seen = time.monotonic() + seconds, Counter[tuple[str, int]]()
    site.servers.stop(POSTGRESQL, how)
    while time.monotonic() < until and isinstance(site.servers, OwnServers):
        for path in ("/api/v1/leases", "/admin/", "/healthz"):
            answer = site.get(path)
            seen[path, answer.status] += 1
            if answer.status == 503:
                assert int(answer.headers["Retry-After"]) >= 1
                assert answer.headers["Content-Type"].startswith(
                    "application/problem+json" if path.startswith("/api/") else "text/html"
                )
                assert "The database is not reachable" in answer.body
        time.sleep(0.2)
    site.servers.start(POSTGRESQL)
    return time.time(), seen


@pytest.mark.parametrize(("how", "seconds"), [(FAST, 1), (IMMEDIATE, 15)], ids=["fast", "immediate"])
def test_all_go_on_when_the_database_is_back(site, how, seconds):
    site.load()
    began = time.time()
    back, seen = outage(site, how, seconds)
    site.goes_on(back)
    lasted = time.time() - began
    heard = site.heard()
    site.settle()
    for name, text in heard.items():
        assert "Traceback" not in text, f"{name}: {text}"
        assert len(problems(text)) <= PROCESSES.get(name, 1) * (lasted + 3), f"{name}: {text}"
    if isinstance(site.servers, OwnServers):
        assert seen["/api/v1/leases", 503]
        assert seen["/admin/", 503]
        assert not [(path, status) for path, status in seen if status not in (200, 503)]
        assert {status for path, status in seen if path == "/healthz"} == {200}


def test_programs_of_the_shell_outlive_a_restart(site):
    with Shell(site.environment) as shell:
        shell("blueprints", "add", "this", "local_host", "slots=8")
        kept = str(shell.json("lease", "host", "--keep", "--heartbeat-limit", "1h")["leases"][0]["id"])
        works = shell.start("lease", "host", "--heartbeat-limit", "10s", "--", "sh", "-c", COUNTING)
        runs = shell.start("run", kept, "--", "sh", "-c", COUNTING)
        waits = shell.start("wait", kept, "--for", "ended")
        for program in (works, runs):
            program.until_said("1\n")
        outage(site, FAST, 3)
        assert works.end().split() == STEPS
        assert runs.end().split() == STEPS
        shell("release", kept)
        waits.end()
    with site.database() as database:
        site.until(lambda: not database.execute("SELECT id FROM leases_lease WHERE state <> 'destroyed'").fetchall())


def test_a_lease_that_waits_outlives_15_seconds_without_a_database(site):
    with Shell(site.environment) as shell:
        first = str(shell.json("lease", "fake_activated", "--exclusive", "--keep")["leases"][0]["id"])
        second = str(shell.json("lease", "fake_activated", "--exclusive", "--keep")["leases"][0]["id"])
        waits = shell.start("lease", "fake_activated", "--", "true")
        with site.database() as database:
            site.until(lambda: database.execute("SELECT id FROM leases_lease WHERE state = 'pending'").fetchall())
        outage(site, IMMEDIATE, 15)
        shell("release", first, second)
        waits.end()


def test_the_private_worker_of_a_command_outlives_a_restart(engines: PrivateEngines):
    with Shell(environment(engines)) as shell:
        shell("blueprints", "add", "this", "local_host", "slots=2")
        works = shell.start("lease", "host", "--", "sh", "-c", COUNTING)
        works.until_said("1\n")
        engines.stop(POSTGRESQL, IMMEDIATE)
        assert works.end().split() == STEPS
        assert shell.json("leases") == []
