"""Over REST: how long one owner waits while another one has 200 requests for a host that never answers.

`python -m bench.hanging PORT TOKEN JOB` is that other owner's program: clients that ask for the job, and come again
when they are told to.
"""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from bench.figures import Figure, figure, seconds
from bench.web import Caller, server, token

CLIENTS, BOUND = 200, 3.0
_SETTLE = 3.0
"""Seconds until all clients have asked and those who found a place hang."""


def figures(owner: int, count: int) -> Iterator[Figure]:
    """The 99th percentile of `count` answers to an owner beside the hanging ones, against the same without them."""
    from django.contrib.auth import get_user_model

    from leases.messaging.inline import settle
    from leases.models import Job

    other = get_user_model()._default_manager.create_user("hanging")
    with server("bench.hangingwsgi", threads=16, environment={"DJANGO_SETTINGS_MODULE": "drydock.settings"}) as one:
        mine, shown = token(owner), token(other.pk)
        idle = _p99(Caller(one.port, mine), count)
        hanging = Caller(one.port, shown)
        lease = hanging.lease()
        settle()
        job = _hanging_job(hanging, lease["id"])
        command = [sys.executable, "-m", "bench.hanging", str(one.port), shown, str(job)]
        with subprocess.Popen(command) as clients:
            try:
                time.sleep(_SETTLE)
                beside = _p99(Caller(one.port, mine), count)
                if clients.poll() is not None:
                    raise RuntimeError("The hanging clients have ended.")
            finally:
                clients.kill()
        Caller(one.port, shown).release(lease)
    Job.objects.all().delete()  # the sections that follow remove leases as they please
    yield figure("GET me, p99", idle, "ms")
    yield figure(
        f"GET me, p99, beside {CLIENTS} hanging clients", beside, "ms", f"{BOUND:g} x idle", beside / idle / BOUND
    )


def _p99(caller: Caller, count: int) -> float:
    taken = sorted(seconds(caller.me) for _ in range(count + 3))
    return taken[int(len(taken) * 0.99)] * 1000


def _hanging_job(caller: Caller, lease: int) -> int:
    with contextlib.suppress(RuntimeError):  # the host does not answer; the job is there
        caller.post(f"/api/v1/leases/{lease}/jobs", {"command": ["hang"]})
    return int(caller.get("/api/v1/jobs")["results"][0]["id"])


def _ask_again_and_again(port: int, shown: str, job: int) -> None:
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("GET", f"/api/v1/jobs/{job}", headers={"Authorization": f"Bearer {shown}"})
            answer = connection.getresponse()
            answer.read()
            time.sleep(float(answer.headers.get("Retry-After", "0")))
        except OSError:
            time.sleep(1)
        finally:
            connection.close()


if __name__ == "__main__":
    given = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    for _ in range(CLIENTS):
        threading.Thread(target=_ask_again_and_again, args=given).start()
