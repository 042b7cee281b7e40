"""Bare metal: many BMCs called at once, the cost of checking idle machines, and what is ours of a boot.

`python -m bench.metal [machines]` on an empty database of its own (DRYDOCK_STATE); prints a table. The BMCs are those
of `bench.bmcs`; the boots need sshd.
"""

from __future__ import annotations

import datetime as dt
import getpass
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import bmcs, population
from bench.bmcs import PASSWORD, SSHD, USERNAME, Doubles
from bench.figures import Figure, figure, show
from bench.installation import prepare
from bench.latency import until, user, worker

BMCS, WORKERS, LATENCY = 500, 4, 0.1
"""BMCs, worker processes (each makes one call at a time), and the seconds that a BMC takes for each call."""
AT_MOST = 1.3
FLEET, INTERVAL, SHARE = 1_000, 60.0, 0.1
"""Idle machines, seconds between two checks of one, and the share of a core that all checks may take."""
INSPECTIONS = 3600.0
"""Seconds between two inspections of an idle machine by its checks: the default of `idle_inspect_interval`."""
OURS = 3.0
"""Seconds of a boot that may be ours."""
BOOTS = 5
_CONFIG: dict[str, Any] = {
    "credential": "bench-control", "bmc_credential": "bench-bmc", "accounts": "shared", "trusted": True,
    "idle_power": "off", "compare": "report", "min_free_mib": 1, "bmc_timeout": 12,
    "idle_inspect_interval": INSPECTIONS,
}  # fmt: skip
_CHECKED = "SELECT count(*) FROM leases_resource WHERE blueprint_id = %s AND check_at > now() + interval '30 minutes'"
_WRONG = "SELECT name, message FROM leases_resource WHERE blueprint_id = %s AND message <> '' LIMIT 1"
_INSPECTED = """
    UPDATE leases_resource SET facts = facts || jsonb_build_object('inspected_at', %s::text) WHERE blueprint_id = %s"""
_LATER = "UPDATE leases_resource SET check_at = NULL WHERE blueprint_id = %s"
_DUE = """
    UPDATE leases_resource r SET check_at = now() + s.n * %s * interval '1 s'
    FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM leases_resource WHERE blueprint_id = %s) s
    WHERE r.id = s.id AND s.n <= %s"""
_FEW, _PART = 12, 5
"""Hosts that are checked first, so that workers have imported what they need, and the part of all that is polled."""
_IDLE = 6.0
"""Seconds for which the CPU of workers is measured that have nothing to do."""


def figures(owner: int, *, machines: int = BMCS, boots: int = BOOTS, latency: float = LATENCY) -> Iterator[Figure]:
    """All figures; workers of their own run meanwhile."""
    from blueprints.models import Credential
    from interfaces.keys import new_key_pair

    control = new_key_pair("control")
    Credential.objects.create(name="bench-control", secrets={"private_key": control.private})
    Credential.objects.create(name="bench-bmc", secrets={"username": USERNAME, "password": PASSWORD})
    with worker(WORKERS, "bench.noop", beat=True) as process:
        yield from _storm(machines, latency, control.public)
        yield from _polling(machines, control.public, process)
        if os.access(SSHD, os.X_OK):
            yield from _boots(owner, boots, control.public)
        else:
            print(f"{SSHD} is not installed, so no boot is measured.", file=sys.stderr)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((bmcs.address(0), 0))
        return int(probe.getsockname()[1])


# Checks


def _storm(machines: int, latency: float, key: str) -> Iterator[Figure]:
    """Check all machines at once."""
    with bmcs.doubles(machines, _free_port(), latency) as doubles, _hosts(doubles, key) as blueprint:
        _warm(blueprint, ago=0)
        calls = doubles.told()["calls"]
        seconds = _checked(blueprint, machines, 0.0)
        calls = doubles.told()["calls"] - calls
    ideal = latency * calls / WORKERS
    yield figure("calls of a check of a BMC", calls / machines, "calls")
    yield figure(f"{machines} BMCs checked at once", seconds, "s", f"{latency:g} s x calls / {WORKERS} workers",
                 seconds / ideal)  # fmt: skip
    yield figure("the same against the limit", seconds, "s", f"{AT_MOST:g} x that", seconds / ideal / AT_MOST)


def _polling(machines: int, key: str, process: subprocess.Popen[bytes]) -> Iterator[Figure]:
    """Check machines at the rate of a fleet, and measure the CPU of workers and database beyond that of idle ones."""
    count = max(_FEW, machines // _PART)
    with bmcs.doubles(count, _free_port(), 0.0) as doubles, _hosts(doubles, key) as blueprint:
        _warm(blueprint, ago=2 * INSPECTIONS)
        # The first inspection finds out how the power is polled; the second one is like all later ones.
        _, full, plain = (_cpu_of_check(blueprint, count, process, ago=ago * INSPECTIONS) for ago in (2, 2, 0))
    each, bare = (plain, full), [_bare(inspected=inspected) for inspected in (False, True)]
    for what, ours, theirs in zip(("a check", "a check that inspects"), each, bare, strict=True):
        yield figure(f"CPU of {what}", ours * 1000, "ms", "the bare calls of its driver", ours / theirs)
    share, alone = _share(*each), _share(*bare)
    name = f"{FLEET} idle machines, each checked every {INTERVAL:g} s"
    yield figure(name, share, "cores", f"{SHARE:g} cores", share / SHARE)
    yield figure("the bare calls of their driver", alone, "cores", f"{SHARE:g} cores", alone / SHARE)


def _share(plain: float, full: float) -> float:
    """The cores that the checks of a fleet take, of which some inspect the hardware."""
    inspecting = INTERVAL / INSPECTIONS
    return FLEET / INTERVAL * ((1 - inspecting) * plain + inspecting * full)


def _cpu_of_check(blueprint: int, count: int, process: subprocess.Popen[bytes], *, ago: float) -> float:
    idle = _cpu(process, lambda: time.sleep(_IDLE)) / _IDLE
    _inspected(blueprint, ago=ago)
    began = time.perf_counter()
    spent = _cpu(process, lambda: _checked(blueprint, count, INTERVAL / FLEET))
    return max(0.0, spent - idle * (time.perf_counter() - began)) / count


def _cpu(process: subprocess.Popen[bytes], work: Callable[[], object]) -> float:
    """The CPU seconds of the workers and their connections meanwhile."""
    from bench.peers import cpu_of_server
    from leases.engine.core.database import rows

    database = str(rows("SELECT current_database()")[0][0])
    before = cpu_of_server(process.pid, database)
    work()
    return cpu_of_server(process.pid, database) - before


def _checked(blueprint: int, count: int, apart: float) -> float:
    """Let hosts be due for a check, one every `apart` seconds. Return the seconds until all were checked."""
    from leases.engine.core.database import rows, run

    run(_LATER, (blueprint,))
    run(_DUE, (apart, blueprint, count))
    began = time.perf_counter()
    until(lambda: rows(_CHECKED, (blueprint,))[0][0] == count, 900, 0.2)
    seconds = time.perf_counter() - began
    if wrong := rows(_WRONG, (blueprint,)):
        raise RuntimeError(f"A check of {wrong[0][0]} failed: {wrong[0][1]}")
    return seconds


def _inspected(blueprint: int, *, ago: float) -> None:
    """Let the last inspection of all hosts be so many seconds ago."""
    from leases.engine.core.database import run

    moment = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=ago)
    run(_INSPECTED, (moment.isoformat(), blueprint))


def _warm(blueprint: int, *, ago: float) -> None:
    """Let workers check some hosts, so that they have imported what they need."""
    from leases.models import Resource

    _inspected(blueprint, ago=ago)
    _checked(blueprint, min(_FEW, Resource.objects.filter(blueprint=blueprint).count()), 0.0)


@contextmanager
def _hosts(doubles: Doubles, key: str) -> Iterator[int]:
    """Insert the rows of idle hosts, and remove them afterwards. Yields the id of their blueprint."""
    from blueprints.baremetal.kind import BareMetal

    _, blueprint = prepare(
        "bare_metal", "bench-metal", resource_type="host", config=_CONFIG, max_resources=None, min_ready=0,
        check_interval=dt.timedelta(hours=1),
    )  # fmt: skip
    kind, given = BareMetal(), []
    config = kind.Config.model_validate(_CONFIG)
    for number in range(doubles.count):
        bmc = {"driver": "redfish", **doubles.access(number)}
        stored = {"address": bmcs.address(number), "host_keys": [key], "user": "bench", "bmc": bmc}
        draft = kind.register(config, kind.Registration.model_validate(stored))
        given.append((draft, stored))
    population.registered(blueprint, given)
    try:
        yield blueprint
    finally:
        population.remove([blueprint])


def _bare(*, inspected: bool, times: int = 20) -> float:
    """The CPU seconds of the calls of a check by the driver alone, in this process."""
    from blueprints.bmc.contract import Logs, Measures, Polled
    from blueprints.bmc.redfish import Redfish

    driver = Redfish()
    credential = {"username": USERNAME, "password": PASSWORD}
    with bmcs.doubles(1, _free_port(), 0.0) as doubles:
        access = driver.Access.model_validate(doubles.access(0))
        spent = []
        with driver.open(access, credential, deadline=60) as bmc:
            assert isinstance(bmc, Polled)
            known = bmc.power_poll()
        for _ in range(times + 2):
            began = time.process_time()
            if not inspected:
                driver.poll_power(access, credential, known, deadline=60)
            else:
                with driver.open(access, credential, deadline=60) as bmc:
                    bmc.power()
                with driver.open(access, credential, deadline=60) as bmc:
                    bmc.inspect()
                    assert isinstance(bmc, Measures)
                    bmc.sensors()
                    assert isinstance(bmc, Logs)
                    bmc.entries()
            spent.append(time.process_time() - began)
    return statistics.median(spent[2:])


# Boots


def _boots(owner: int, boots: int, control: str) -> Iterator[Figure]:
    """Lease machines that are off, one after another. What their BMCs and their start take is not ours."""
    from leases.models import Resource
    from leases.operations import resources
    from leases.operations.callers import caller

    with tempfile.TemporaryDirectory(prefix="dd-bench-metal-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        keys = [_server(folder, number, control) for number in range(boots)]
        prepare("bare_metal", "bench-boots", resource_type="host", config=_CONFIG, max_resources=None, min_ready=0)
        with bmcs.doubles(boots, _free_port(), 0.01, folder) as doubles:
            who, made = caller(_operator()), []
            for number, (port, key) in enumerate(keys):
                bmc = {"driver": "redfish", **doubles.access(number)}
                given = {
                    "name": f"boot-{number}", "address": bmcs.address(number), "port": port, "host_keys": [key],
                    "user": getpass.getuser(), "bmc": bmc, "slots": 1,
                }  # fmt: skip
                made.append(resources.register(who, "bench-boots", given).id)
            until(lambda: Resource.objects.filter(pk__in=made, state="active").count() == boots, 180, 0.05)
            ours = [_one_boot(owner, doubles) for _ in range(boots)]
            for pk in made:
                resources.force_destroy(who, pk, reason="The bench has ended.")
    scripted = f"{bmcs.POWER + bmcs.BOOT:g} s of its machine subtracted"
    median, longest = statistics.median(ours), max(ours)
    yield figure(f"request to active with a boot, {scripted}, p50", median, "s", f"{OURS:g} s", median / OURS)
    yield figure("the same, longest", longest, "s", f"{OURS:g} s", longest / OURS)


def _operator() -> Any:
    from django.contrib.auth import get_user_model

    found, _ = get_user_model().objects.get_or_create(
        username="bench-operator", defaults={"is_superuser": True, "is_staff": True}
    )
    return found


def _one_boot(owner: int, doubles: Doubles) -> float:
    """Lease a machine, and keep it. Return the seconds until it is active, without those of the machine."""
    from leases.allocator import Allocator
    from leases.engine.core.database import rows

    before = doubles.told()["switched"]
    began = time.time()
    lease = Allocator("host", owner=user(owner), exclusive=True, allowed_blueprints=("bench-boots",)).allocate()
    state = "SELECT state, message FROM leases_lease WHERE id = %s"
    until(lambda: rows(state, (lease.id,))[0][0] in ("active", "broken"), 120, 0.005)
    took = time.time() - began
    if rows(state, (lease.id,))[0][0] != "active":
        raise RuntimeError(f"A lease was not served: {rows(state, (lease.id,))[0][1]}")
    switched = [after for was, after in zip(before, doubles.told()["switched"], strict=True) if was[0] != after[0]]
    (on_at, ready_at) = switched[0]
    return took - (ready_at - on_at)


def _server(folder: Path, number: int, control: str) -> tuple[int, str]:
    """Write the configuration of a machine's SSH server, with a home of its own. Return its port and its public key."""
    from interfaces.keys import new_key_pair

    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    mine, where, pair = folder / str(number), bmcs.address(number), new_key_pair("host")
    (mine / "home").mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind((where, 0))
        port = int(probe.getsockname()[1])
    (mine / "port").write_text(str(port))
    (mine / "host").touch(mode=0o600)
    (mine / "host").write_text(pair.private)
    (mine / "control").write_text(control + "\n")
    (mine / "config").write_text(
        f"Port {port}\nListenAddress {where}\nHostKey {mine}/host\nPidFile {mine}/pid\nUseDNS no\n"
        f"AuthorizedKeysFile {mine}/control {mine}/home/.ssh/authorized_keys\nSetEnv HOME={mine}/home\n"
        "StrictModes no\nUsePAM no\nPasswordAuthentication no\n"
        "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n"
    )
    return port, pair.public


def main() -> None:
    given = [int(word) for word in sys.argv[1:] if word.isdigit()]
    owner, _ = prepare(max_resources=None, min_ready=0)
    found = []
    for one in figures(owner, machines=given[0] if given else BMCS, boots=given[1] if given[1:] else BOOTS):
        found.append(one)
        print(f"{time.strftime('%H:%M:%S')}  {one.name}: {one.value:g} {one.unit}", file=sys.stderr)
    show(found)


if __name__ == "__main__":
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "drydock.settings")
    django.setup()
    main()
