"""Client processes of the concurrency tests: `python -m tests.leases.clients ACTION JSON`, begun by a line on stdin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Clients:
    """Processes that wait for the same start and print one JSON value each."""

    def __init__(self, action: str, arguments: Sequence[dict[str, Any]]) -> None:
        from django.db import connection

        from tests.settings import DATABASE

        environment = os.environ | {
            DATABASE: str(connection.settings_dict["NAME"]),
            "DJANGO_SETTINGS_MODULE": "tests.settings",
        }
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.leases.clients", action, json.dumps(given)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment,
            )
            for given in arguments
        ]  # fmt: skip

    def __enter__(self) -> Clients:
        for process in self.processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        return self

    def go(self) -> list[Any]:
        """Start all and wait for what they say."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = []
        for process in self.processes:
            said, _ = process.communicate(timeout=90)
            assert process.returncode == 0, said
            answers.append(json.loads(said))
        return answers

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def allocate(owner: int, times: int, request: dict[str, Any], key: str = "") -> list[int]:
    """Ask `times` times; the ids of the leases."""
    from leases.engine import requesting
    from leases.requests import read

    asked = read(request | ({"idempotency_key": key} if key else {}))
    return [requesting.request(asked, owner, actor="client").id for _ in range(times)]


def allocate_and_serve(owner: int, times: int, request: dict[str, Any]) -> list[int]:
    """Ask, then do what a worker would do with the hint at once."""
    from leases.engine import serving

    found = allocate(owner, times, request)
    serving.serve(request["type"])
    return found


def churn(owner: int, times: int, request: dict[str, Any]) -> int:
    """Small newcomers without end: ask and release, over and over; how many were granted."""
    from leases.engine import ending
    from leases.models import Lease

    granted = 0
    for _ in range(times):
        (lease_id,) = allocate(owner, 1, request)
        granted += Lease.objects.filter(pk=lease_id, state="active").exists()
        ending.release(lease_id, actor="client")
    return granted


def release(leases: list[int]) -> int:
    """Release these."""
    from leases.engine import ending

    for lease_id in leases:
        ending.release(lease_id, actor="client")
    return len(leases)


def group(owner: int, times: int, requests: list[dict[str, Any]], different: str = "") -> int:
    """Ask for groups, serve them and release those that were granted; how many were."""
    from leases.engine import ending, requesting, serving
    from leases.models import Lease
    from leases.requests import read

    granted = 0
    for _ in range(times):
        _, ids = requesting.request_group([read(r) for r in requests], owner, actor="client", different=different)
        for resource_type in {r["type"] for r in requests}:
            serving.serve(resource_type)
        states = set(Lease.objects.filter(pk__in=ids).values_list("state", flat=True))
        assert states in ({"active"}, {"pending"}), states
        granted += states == {"active"}
        for lease_id in ids:
            ending.release(lease_id, actor="client")
    return granted


ACTIONS: dict[str, Callable[..., Any]] = {
    action.__name__: action for action in (allocate, allocate_and_serve, churn, release, group)
}


def main() -> None:
    import django

    django.setup()
    from django.db import connection

    from leases import hints

    connection.ensure_connection()
    print("ready", flush=True)
    sys.stdin.readline()
    with hints.collected():
        answer = ACTIONS[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
