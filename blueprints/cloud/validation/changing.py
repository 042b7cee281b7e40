"""Checks that change the main machine, and its termination."""

from __future__ import annotations

from blueprints.cloud.client import ChangesType, Reboots, ResizesVolume, StopsStarts
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.validation.environment import Environment
from blueprints.cloud.validation.running import boot_id, rebooted
from blueprints.cloud.validation.waiting import LeftOut, expect
from blueprints.cloud.values import Instance, Lifecycle

_KEPT = "drydock-validation-kept"
_DISK = """
for one in /sys/class/block/*/device/rescan; do [ -e "$one" ] && echo 1 | sudo -n tee "$one" > /dev/null 2>&1; done
lsblk -bdno SIZE,TYPE | awk '$2 == "disk" && $1 > most { most = $1 } END { printf "%.0f\\n", most }'
"""


def reboot(environment: Environment) -> str:
    """Reboot the machine, and check that it is the same machine afterwards."""
    client, machine = environment.client, environment.machine.instance
    assert isinstance(client, Reboots)
    before = boot_id(environment)
    environment.ask(client.reboot, machine)
    rebooted(environment, before, "The machine accepts a login after a reboot")
    now = environment.until_state(machine, Lifecycle.RUNNING, environment.limits.running)
    expect(now.id == machine.id, f"The id of the machine changed from {machine.id} to {now.id}.")
    return ""


def stop_start(environment: Environment) -> str:
    """Stop and start the machine, and check that it keeps its disk."""
    assert isinstance(environment.client, StopsStarts)
    environment.run(f"echo {environment.run_tags.run} > $HOME/{_KEPT}; sync")
    before = boot_id(environment)
    address = environment.address(environment.machine.instance)
    try:
        _off(environment)
        answers = environment.outside.connects(address, environment.wish.ssh_port)
        expect(not answers, "The machine is stopped, but its SSH server answers.")
    finally:
        _on(environment)
    rebooted(environment, before, "The machine accepts a login after a start")
    kept = environment.run(f"cat $HOME/{_KEPT}; rm -f $HOME/{_KEPT}").strip()
    expect(kept == environment.run_tags.run, f"The test file on the disk has changed and now contains {kept!r}.")
    return f"at {environment.address(environment.machine.instance)} now"


def _off(environment: Environment) -> None:
    """Stop the machine, then request the stop again, which must succeed."""
    client, machine = environment.client, environment.machine.instance
    assert isinstance(client, StopsStarts)
    environment.ask(client.stop, machine)
    stopped = environment.until_state(machine, Lifecycle.STOPPED, environment.limits.stopped)
    environment.ask(client.stop, stopped)


def _on(environment: Environment) -> None:
    """Start the machine, then request the start again, which must succeed."""
    client, machine = environment.client, environment.machine.instance
    assert isinstance(client, StopsStarts)
    environment.ask(client.start, machine)
    running = environment.until_state(machine, Lifecycle.RUNNING, environment.limits.running)
    environment.ask(client.start, running)


def resize_volume(environment: Environment) -> str:
    """Enlarge the disk, and check its size in the guest."""
    client, machine = environment.client, environment.machine.instance
    assert isinstance(client, ResizesVolume)
    before = _disk_gib(environment)
    wanted = int(before) + 3
    expect(before > 0, "The guest does not see a disk.")
    try:
        client.resize_volume(machine, wanted)
    except CloudError as error:
        if error.meaning is not Meaning.CONFLICT or not isinstance(client, StopsStarts):
            raise
        _resized_while_off(environment, wanted)
    environment.ask(client.resize_volume, machine, wanted)
    environment.until(
        f"The guest sees {wanted} GiB", lambda: _disk_gib(environment) >= wanted, environment.limits.change
    )
    return f"from {before:.0f} to {wanted} GiB"


def _resized_while_off(environment: Environment, wanted: int) -> None:
    """Grow the disk of the stopped machine, because some disks grow only then."""
    assert isinstance(environment.client, ResizesVolume)
    before = boot_id(environment)
    try:
        _off(environment)
        environment.ask(environment.client.resize_volume, environment.machine.instance, wanted)
    finally:
        _on(environment)
    rebooted(environment, before, "The machine accepts a login after a start")


def _disk_gib(environment: Environment) -> float:
    said = environment.run(_DISK).strip()
    return int(said) / 2**30 if said.isdigit() else 0.0


def change_type(environment: Environment) -> str:
    """Change the type of the stopped machine, and start it again."""
    client, machine, wanted = environment.client, environment.machine.instance, environment.wish.other_type
    assert isinstance(client, ChangesType)
    assert isinstance(client, StopsStarts), "a client that changes types must also stop and start machines"
    if not wanted:
        raise LeftOut("There is no other type to change to.")
    before = boot_id(environment)
    try:
        _off(environment)
        environment.ask(client.change_type, machine, wanted)
        changed = environment.until(
            "The new type is reported", lambda: _of_type(environment, wanted), environment.limits.change
        )
        environment.ask(client.change_type, changed, wanted)
    finally:
        _on(environment)
    rebooted(environment, before, "The machine accepts a login after a start")
    there = environment.machine.instance.type
    expect(there == wanted, f"The machine runs as {there}.")
    return f"from {machine.type} to {wanted}"


def _of_type(environment: Environment, wanted: str) -> Instance | None:
    found = environment.read(environment.machine.instance)
    return found if found is not None and found.type == wanted else None


def terminate(environment: Environment) -> str:
    """Terminate the machine: twice while it is ending, and once after it has ended."""
    machine = environment.machine.instance
    for _ in range(2):
        environment.ask(environment.client.terminate, machine)

    def over() -> bool:
        found = environment.read(machine)
        return found is None or found.state is Lifecycle.TERMINATED

    environment.until("The machine is gone", over, environment.limits.ended)
    environment.ask(environment.client.terminate, machine)
    address = environment.address(machine)
    expect(
        not environment.outside.connects(address, environment.wish.ssh_port),
        "The machine is gone, but its SSH server answers.",
    )
    return ""


def nothing_left(environment: Environment) -> str:
    """Check that neither a machine nor another object of this run is left."""
    left = environment.clear()
    expect(not left, " ".join(left))
    found = environment.ask(environment.client.instances, environment.wish.location, dict(environment.run_tags.of_run))
    there = [one.key or one.id for one in found if one.state is not Lifecycle.TERMINATED]
    expect(not there, f"These machines should no longer be listed: {', '.join(there)}.")
    for order in environment.orders.values():
        rest = environment.ask(environment.client.sweep, order.location, order.zone, order.key, order.tags)
        expect(not rest, f"These objects of {order.key} still exist: {', '.join(rest)}.")
    return f"{len(environment.orders)} names checked"
