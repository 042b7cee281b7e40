"""`make storm`: leases on three emulated clouds that lose answers, throttle, lack and take back, while workers are
killed at any instant, also between what a cloud has done and its answer. Ends with 0 only when nothing was lost or
left."""

from __future__ import annotations

import argparse
import random
import secrets
import sys
from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Any

from drydock.cli.toolkit.exits import undisturbed
from drydock.core import clock
from drydock.demo.demo_output import DemoOutput
from tests import demos
from tests.clouds import world
from tests.clouds.troubles import TROUBLES, cleared

PATIENCE = 300.0
WORKERS = 2
KILLED_AT_CREATE = 0.15
"""How often a worker, which may be the one that asked, is killed before a cloud answers that it has made a machine."""
WISHES: tuple[dict[str, Any], ...] = (
    {}, {"choose": "price"}, {"traits": ["tdx"]}, {"ttl": "6s"}, {"allowed_blueprints": ["gce"]},
    {"allowed_blueprints": ["azure"]}, {"requirements": {"ports": [8080]}},
)  # fmt: skip
BRIEF = {
    "DRYDOCK_REMEMBER_STEP_SECONDS": "1", "DRYDOCK_REMEMBER_ZONE_SECONDS": "2", "DRYDOCK_LOOK_AGAIN_SECONDS": "2",
    "DRYDOCK_STEP_BACKOFF_LIMIT_SECONDS": "2", "DRYDOCK_ORPHAN_INTERVAL_SECONDS": "5",
    "DRYDOCK_ORPHAN_APART_SECONDS": "2",
}  # fmt: skip


class Storm:
    """One run, which its seed repeats as far as threads allow."""

    def __init__(self, stage: DemoOutput, seed: int, leases: int) -> None:
        self.stage, self.count = stage, leases
        self.chance, self.lock = random.Random(seed), Lock()
        self.done: Counter[str] = Counter()
        self.twice: list[str] = []
        self.crew = world.Crew()

    def run(self) -> None:
        """From empty clouds to empty clouds."""
        from drydock.cli.toolkit.session import connect_here

        with world.clouds(self._made) as (machines, doubles):
            self.client, self.machines, self.doubles = connect_here(), machines, doubles
            try:
                for kind, made in world.blueprints(self.client, machines, doubles).items():
                    self.stage.promise(f"{kind} is there", made.enabled, str(made.problems))
                self.crew.start(WORKERS)
                self._load()
                self._rest()
                self._wind_down()
            finally:
                with undisturbed():
                    self.crew.stop()

    def _made(self, machine: Any) -> None:
        """A cloud has made a machine and nobody knows of it yet."""
        with self.lock:
            self.done["machines made"] += 1
            self.twice += [machine.key] if machine.key in self.machines.running else []
            kill = self.chance.random() < KILLED_AT_CREATE and len(self.crew.running) > 1
            which = self.chance.randrange(len(self.crew.running)) if kill else 0
        if kill:
            self.crew.kill(which)
            self.done["workers killed while a machine was made"] += 1

    def _load(self) -> None:
        from leases.allocator import Allocator

        self.stage.scene(f"{self.count} leases while clouds fail and workers die")
        for number in range(self.count):
            wish = WISHES[number % len(WISHES)]
            lease = Allocator("host", owner=self.client.name, exclusive=True, serve_again=True, **wish).allocate()
            for _ in range(2):
                self._trouble()
            clock.sleep(self.chance.uniform(0.2, 1.2))
            if self.chance.random() < 0.2:
                lease.release()
                self.done["leases given up early"] += 1
            if self.chance.random() < 0.25:
                self._kill()
            self.crew.start(WORKERS - len(self.crew.running))
        cleared(self.doubles)

    def _trouble(self) -> None:
        name = self.chance.choice(sorted(TROUBLES))
        TROUBLES[name](self.doubles, self.chance)
        self.done[name] += 1

    def _kill(self) -> None:
        if len(self.crew.running) > 1:
            self.crew.kill(self.chance.randrange(len(self.crew.running)))
            self.done["workers killed"] += 1

    def _rest(self) -> None:
        from leases.models import Lease

        self.stage.scene("The clouds work again")
        self.crew.start(WORKERS - len(self.crew.running))
        waiting = Lease.objects.filter(state__in=["pending", "acquired", "released"])
        self._wait("every lease has ended or is served", lambda: not waiting.exists(),
                   lambda: [f"{one.pk} {one.state}: {one.message}" for one in waiting])  # fmt: skip
        self._wait("the clouds' machines equal the resources", lambda: not self._difference(), self._difference)
        served = Lease.objects.filter(state="active")
        self.stage.promise("some are served", served.exists())
        said = {one.pk: self._says(one.pk) for one in served}
        self.stage.promise("each served one answers a command", set(said.values()) <= {"here"}, str(said))
        self.stage.promise("no machine was made twice", not self.twice, str(self.twice))

    def _says(self, lease: int) -> str:
        from leases.operations import callers, interfaces

        try:
            return interfaces.command(callers.caller(self.client.name), lease).check(["echo", "here"]).text.strip()
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def _difference(self) -> list[str]:
        from leases.engine.core.specs import key
        from leases.models import Resource

        wanted = {key("r", pk) for pk in Resource.objects.filter(gone_at=None).values_list("pk", flat=True)}
        there = set(self.machines.running)
        return [f"{name} has no resource" for name in sorted(there - wanted)] + [
            f"{name} has no machine" for name in sorted(wanted - there)
        ]

    def _wind_down(self) -> None:
        from leases.models import Lease, Resource, Share, Stray

        self.stage.scene("Release: nothing is left")
        Lease.objects.filter(state__in=["pending", "acquired", "active"]).update(release_wanted="released_by_owner")
        for name in self.doubles:
            self.client.switch_blueprint(name, "drain")
        there = Resource.objects.filter(gone_at=None)
        self._wait("every machine is gone", lambda: not there.exists(),
                   lambda: [f"{one.pk} {one.state}: {one.message}" for one in there])  # fmt: skip
        self._wait("no object is left in any cloud", lambda: not world.left(self.doubles),
                   lambda: [f"{name}: {things}" for name, things in world.left(self.doubles).items()])  # fmt: skip
        self.stage.promise("no machine answers any more", not self.machines.running, str(self.machines.running))
        self.stage.promise("no share is left", not Share.objects.exists())
        strays = Stray.objects.values_list("key", flat=True)
        self._wait("nothing is taken for an orphan", lambda: not strays.exists(), lambda: list(strays.all()))
        self.done["leases"], self.done["resources"] = Lease.objects.count(), Resource.objects.count()
        self.stage.table(("what", "how often"), sorted(self.done.items()))

    def _wait(self, what: str, holds: Callable[[], bool], found: Callable[[], list[str]]) -> None:
        end = clock.monotonic() + PATIENCE
        while not holds() and clock.monotonic() < end:
            if missing := WORKERS - len(self.crew.running):
                self.crew.start(missing)  # a machine that was made late has ended one, perhaps that with the beat
            clock.sleep(0.2)
        wrong = found()
        self.stage.promise(what, not wrong, "; ".join(wrong)[:2000])


def main() -> int:
    """Read the arguments, run; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.clouds.storm", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="the troubles of a former run")
    parser.add_argument("--leases", type=int, default=60)
    given = parser.parse_args()
    stage = demos.play(lambda output: Storm(output, given.seed, given.leases).run(), world.QUICK | BRIEF, what="storm")
    again = f"--seed {given.seed} --leases {given.leases}"
    if stage.broken:
        print(f"\nA promise was broken ({again}): {'; '.join(stage.broken)}", file=sys.stderr)
        return 1
    stage.scene(f"Every promise was kept ({again}).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
