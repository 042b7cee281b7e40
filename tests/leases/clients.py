"""Client processes of the concurrency tests: `python -m tests.leases.clients ACTION JSON`, begun by a line on stdin.

The process imports Django once and forks one client for each of its arguments.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from drydock.engines.process import end_with_parent

ROOT = Path(__file__).resolve().parents[2]


class Clients:
    """Processes that wait for the same start and return one JSON value each."""

    def __init__(self, action: str, arguments: Sequence[dict[str, Any]]) -> None:
        from django.db import connection

        from tests.settings import DATABASE

        environment = os.environ | {
            DATABASE: str(connection.settings_dict["NAME"]),
            "DJANGO_SETTINGS_MODULE": "tests.settings",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.leases.clients", action, json.dumps(arguments)], text=True, cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip

    def __enter__(self) -> Clients:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def start(self) -> None:
        """Let all of them begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def go(self) -> list[Any]:
        """Let all of them begin, and return their values."""
        self.start()
        return self.answers()

    def answers(self) -> list[Any]:
        """Wait until all have ended, and return their values."""
        answers, _ = self._process.communicate(timeout=90)
        assert self._process.returncode == 0, answers
        return list(json.loads(answers))

    def __exit__(self, *error: object) -> None:
        self._process.kill()  # its clients end with it
        with self._process:
            pass


def allocate(owner: int, times: int, request: dict[str, Any], key: str = "") -> list[int]:
    """Ask `times` times; the ids of the leases."""
    from leases.engine.scheduling import request as lease_request
    from leases.validation.requests import read

    asked = read(request | ({"idempotency_key": key} if key else {}))
    return [lease_request.request(asked, owner, actor="client").id for _ in range(times)]


def allocate_and_serve(owner: int, times: int, request: dict[str, Any]) -> list[int]:
    """Ask, then do what a worker would do with the hint at once."""
    from leases.engine.queue import serve

    found = allocate(owner, times, request)
    serve.serve(request["type"])
    return found


def churn(owner: int, times: int, request: dict[str, Any]) -> int:
    """Small newcomers without end: ask and release, over and over; how many were granted."""
    from leases.engine.lifecycle import release as lease_release
    from leases.models import Lease

    granted = 0
    for _ in range(times):
        (lease_id,) = allocate(owner, 1, request)
        granted += Lease.objects.filter(pk=lease_id, state="active").exists()
        lease_release.release(lease_id, actor="client")
    return granted


def release(leases: list[int]) -> int:
    """Release these."""
    from leases.engine.lifecycle import release as lease_release

    for lease_id in leases:
        lease_release.release(lease_id, actor="client")
    return len(leases)


def group(owner: int, times: int, requests: list[dict[str, Any]], different: str = "") -> int:
    """Ask for groups, serve them and release those that were granted; how many were."""
    from leases.engine.lifecycle import release as lease_release
    from leases.engine.queue import serve
    from leases.engine.scheduling import request as lease_request
    from leases.models import Lease
    from leases.validation.requests import read

    granted = 0
    for _ in range(times):
        _, ids = lease_request.request_group([read(r) for r in requests], owner, actor="client", different=different)
        for resource_type in {r["type"] for r in requests}:
            serve.serve(resource_type)
        states = set(Lease.objects.filter(pk__in=ids).values_list("state", flat=True))
        assert states in ({"active"}, {"pending"}), states
        granted += states == {"active"}
        for lease_id in ids:
            lease_release.release(lease_id, actor="client")
    return granted


def release_many(leases: list[int], inside: bool) -> int:
    """Release these, all of them inside one transaction or one by one, and what follows as a worker would."""
    from django.db import transaction

    from leases.engine.lifecycle import release as lease_release
    from leases.messaging.inline import settle

    with transaction.atomic() if inside else contextlib.nullcontext():
        for lease_id in leases:
            lease_release.release(lease_id, actor="client")
    settle()
    return len(leases)


def meddle(owner: int, seed: int, times: int) -> dict[str, int]:
    """Do one of everything at random, as owners, operators, workers and the sweep do; how often each was refused."""
    from django.contrib.auth import get_user_model
    from django.db import transaction
    from django.db.models import Q

    from blueprints.models import Blueprint
    from drydock.core.errors import DrydockError
    from drydock_client.values import BlueprintChange
    from leases.engine.upkeep import sweep
    from leases.messaging.inline import settle
    from leases.models import Lease, Resource
    from leases.operations import blueprints, callers, costs, installation, leases, lifetimes, permissions, resources

    chance = random.Random(seed)
    user = get_user_model().objects.get(pk=owner)
    who = callers.caller(user)
    root = callers.caller(get_user_model().objects.get(username="root"))

    def some_of(found: Any) -> int:
        return chance.choice(list(found.values_list("pk", flat=True)[:50]) or [0])

    live = Lease.objects.filter(state__in=["pending", "acquired", "active"])
    there = Resource.objects.filter(~Q(state__in=["destroyed", "broken"]), origin="built")

    def group() -> None:
        leases.request_group(
            who, [{"type": "fake", "slots": chance.randint(1, 3)} for _ in range(chance.randint(2, 9))]
        )

    def drain() -> None:
        resources.drain(root, some_of(there), drained=chance.random() < 0.3, reason="meddling")

    def switch() -> None:
        name = chance.choice(list(Blueprint.objects.values_list("name", flat=True)))
        chance.choice(
            [
                lambda: blueprints.drain(root, name, drained=chance.random() < 0.2),
                lambda: blueprints.change(root, name, BlueprintChange(max_resources=chance.randint(2, 4))),
                lambda: (blueprints.disable(root, name), blueprints.enable(root, name)),
            ]
        )()

    def several() -> None:
        with transaction.atomic():
            for lease in sorted({some_of(live) for _ in range(4)}):
                leases.release(who, lease)

    def site() -> int:
        """A lease that needs another one, on a resource that needs one for life."""
        return leases.request(who, {"type": "fake_activated", "ttl": "1h"})

    def authorize() -> None:
        chance.choice([permissions.authorize, permissions.decline])(root, chance.choice(["left", "right"]), user=user)

    def set_apart() -> None:
        resource = some_of(there)
        resources.quarantine(root, resource, message="meddling")
        resources.unquarantine(root, resource)

    def hold() -> None:
        lease = some_of(live)
        leases.hold(who, lease, ttl="1m")
        leases.unhold(who, lease)

    acts: list[tuple[int, Callable[[], object]]] = [
        (6, group),
        (6, lambda: leases.request(who, {"type": "fake", "slots": chance.randint(1, 8), "ttl": "1h"})),
        (10, lambda: leases.release(who, some_of(live))),
        (3, lambda: lifetimes.extend(who, some_of(live), ttl="10m")),
        (2, lambda: leases.retry(root, some_of(live))),
        (2, drain), (1, switch),
        (3, site), (2, several), (1, authorize), (1, set_apart), (1, hold),
        (1, lambda: resources.check(root, some_of(there))),
        (1, lambda: installation.reclaim(root, limit=3)),
        (1, lambda: leases.heartbeat(who, some_of(live))),
        (1, lambda: permissions.remove_quota(root, user=user)),
        (1, lambda: costs.remove_budget(root, user=user)),
        (1, lambda: resources.retire(root, some_of(there))),
        (1, lambda: resources.force_destroy(root, some_of(there), reason="meddling")),
        (2, lambda: permissions.set_quota(root, user=user, limits={"max_slots": chance.choice([4, 12, None])})),
        (2, lambda: costs.set_budget(root, user=user, max_hourly=chance.choice([0.5, 5, 50]))),
        (4, settle), (2, sweep.sweep),
    ]  # fmt: skip
    refused: dict[str, int] = {}
    for act in chance.choices([act for _, act in acts], [weight for weight, _ in acts], k=times):
        try:
            act()
        except DrydockError as error:
            refused[type(error).__name__] = refused.get(type(error).__name__, 0) + 1
    return refused


def share_trees(owner: int, seed: int, times: int) -> dict[str, int]:
    """Lease wholes, parts and both as a group at random, move parts and take them out of service; how often refused."""
    from django.db import IntegrityError

    from drydock.core.errors import Busy
    from leases.engine.lifecycle import release as lease_release
    from leases.engine.scheduling import request as lease_request
    from leases.engine.upkeep import sweep
    from leases.messaging.inline import settle
    from leases.models import Lease, Resource
    from leases.validation.requests import read

    chance = random.Random(seed)
    wholes, parts = (Resource.objects.filter(type=name) for name in ("fake", "fake_cloud"))
    live = Lease.objects.filter(state__in=["pending", "acquired", "active"])

    def some_of(found: Any) -> int:
        return chance.choice(list(found.values_list("pk", flat=True)) or [0])

    def whole() -> dict[str, Any]:
        return {"type": "fake"} | chance.choice([{"exclusive": True}, {"slots": 4}, {"slots": 2}])

    def ask(asked: dict[str, Any]) -> object:
        return lease_request.request(read(asked), owner, actor="client")

    def group() -> None:
        asked = [read({"type": "fake", "exclusive": True}), *[read({"type": "fake_cloud"})] * chance.randint(1, 3)]
        lease_request.request_group(chance.sample(asked, len(asked)), owner, actor="client")

    def switch() -> None:
        column = chance.choice(["drained", "quarantined"])
        Resource.objects.filter(pk=some_of(chance.choice([wholes, parts]))).update(**{column: chance.random() < 0.3})

    acts: list[tuple[int, Callable[[], object]]] = [
        (4, lambda: ask(whole())), (8, lambda: ask({"type": "fake_cloud"})), (2, group),
        (14, lambda: lease_release.release(some_of(live), actor="client")), (4, switch),
        (1, lambda: parts.filter(pk=some_of(parts)).update(part_of=some_of(wholes))),
        (3, settle), (1, sweep.sweep),
    ]  # fmt: skip
    refused: dict[str, int] = {}
    for act in chance.choices([act for _, act in acts], [weight for weight, _ in acts], k=times):
        try:
            act()
        except (IntegrityError, Busy) as error:
            refused[type(error).__name__] = refused.get(type(error).__name__, 0) + 1
    return refused


def watch_trees(times: int) -> list[str]:
    """Look at the rules of resource trees over and over while others lease; what was ever wrong."""
    from chaos.proof import tree_violations

    return sorted({said for _ in range(times) for said in tree_violations()})


ACTIONS: dict[str, Callable[..., Any]] = {
    action.__name__: action
    for action in (
        allocate,
        allocate_and_serve,
        churn,
        release,
        group,
        release_many,
        meddle,
        share_trees,
        watch_trees,
    )
}


def client(action: str, given: dict[str, Any], start: Any, answer: Any, arrange: Callable[[], None]) -> None:
    """Wait for the start, carry out the action, and send what it returns."""
    from django.db import connection

    from leases.messaging import hints

    arrange()
    connection.ensure_connection()
    start.wait()
    start.wait()
    with hints.collected():
        answer.send(ACTIONS[action](**given))


def main() -> None:
    import django

    django.setup()
    from leases.engine.upkeep import sweep  # noqa: F401  # each client would import it
    from leases.messaging import inline  # noqa: F401
    from leases.operations import leases  # noqa: F401

    fork, given = multiprocessing.get_context("fork"), json.loads(sys.argv[2])
    start, answers = fork.Barrier(len(given) + 1, timeout=60), [fork.Pipe(duplex=False) for _ in given]
    arrange = end_with_parent(signal.SIGKILL)
    clients = [
        fork.Process(target=client, args=(sys.argv[1], one, start, sender, arrange), daemon=True)
        for one, (_, sender) in zip(given, answers, strict=True)
    ]
    for process in clients:
        process.start()
    for _, sender in answers:
        sender.close()
    start.wait()
    print("ready", flush=True)
    sys.stdin.readline()
    start.wait()
    print(json.dumps([answer.recv() for answer, _ in answers]))
    for process in clients:
        process.join()


if __name__ == "__main__":
    main()
