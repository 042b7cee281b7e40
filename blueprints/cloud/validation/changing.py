"""Checks that change the main machine, and the end of it."""

from __future__ import annotations

from blueprints.cloud.client import ChangesType, Reboots, ResizesVolume, StopsStarts
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.validation.ground import Ground
from blueprints.cloud.validation.living import boot_id, rebooted
from blueprints.cloud.validation.waiting import LeftOut, expect
from blueprints.cloud.values import Instance, Lifecycle

_KEPT = "drydock-validation-kept"
_DISK = """
for one in /sys/class/block/*/device/rescan; do [ -e "$one" ] && echo 1 | sudo -n tee "$one" > /dev/null 2>&1; done
lsblk -bdno SIZE,TYPE | awk '$2 == "disk" && $1 > most { most = $1 } END { printf "%.0f\\n", most }'
"""


def reboot(ground: Ground) -> str:
    """Another boot of the same machine."""
    client, machine = ground.client, ground.machine.instance
    assert isinstance(client, Reboots)
    before = boot_id(ground)
    ground.ask(client.reboot, machine)
    rebooted(ground, before, "It lets us in after a reboot")
    now = ground.until_state(machine, Lifecycle.RUNNING, ground.limits.running)
    expect(now.id == machine.id, f"It is {now.id} now; it was {machine.id}.")
    return ""


def stop_start(ground: Ground) -> str:
    """Off and on again, with its disk."""
    assert isinstance(ground.client, StopsStarts)
    ground.run(f"echo {ground.marks.run} > $HOME/{_KEPT}; sync")
    before = boot_id(ground)
    address = ground.address(ground.machine.instance)
    try:
        _off(ground)
        answers = ground.outside.connects(address, ground.wish.ssh_port)
        expect(not answers, "It is stopped, and its SSH server answers.")
    finally:
        _on(ground)
    rebooted(ground, before, "It lets us in after a start")
    kept = ground.run(f"cat $HOME/{_KEPT}; rm -f $HOME/{_KEPT}").strip()
    expect(kept == ground.marks.run, f"What was on its disk is {kept!r} now.")
    return f"at {ground.address(ground.machine.instance)} now"


def _off(ground: Ground) -> None:
    """Stopped; asked for again, which is success."""
    client, machine = ground.client, ground.machine.instance
    assert isinstance(client, StopsStarts)
    ground.ask(client.stop, machine)
    stopped = ground.until_state(machine, Lifecycle.STOPPED, ground.limits.stopped)
    ground.ask(client.stop, stopped)


def _on(ground: Ground) -> None:
    """Running; asked for again, which is success."""
    client, machine = ground.client, ground.machine.instance
    assert isinstance(client, StopsStarts)
    ground.ask(client.start, machine)
    running = ground.until_state(machine, Lifecycle.RUNNING, ground.limits.running)
    ground.ask(client.start, running)


def resize_volume(ground: Ground) -> str:
    """A larger disk, as the guest sees it."""
    client, machine = ground.client, ground.machine.instance
    assert isinstance(client, ResizesVolume)
    before = _disk_gib(ground)
    wanted = int(before) + 3
    expect(before > 0, "The guest sees no disk.")
    try:
        client.resize_volume(machine, wanted)
    except CloudError as error:
        if error.meaning is not Meaning.CONFLICT or not isinstance(client, StopsStarts):
            raise
        _resized_while_off(ground, wanted)
    ground.ask(client.resize_volume, machine, wanted)
    ground.until(f"The guest sees {wanted} GiB", lambda: _disk_gib(ground) >= wanted, ground.limits.change)
    return f"from {before:.0f} to {wanted} GiB"


def _resized_while_off(ground: Ground, wanted: int) -> None:
    """Some disks grow only so."""
    assert isinstance(ground.client, ResizesVolume)
    before = boot_id(ground)
    try:
        _off(ground)
        ground.ask(ground.client.resize_volume, ground.machine.instance, wanted)
    finally:
        _on(ground)
    rebooted(ground, before, "It lets us in after a start")


def _disk_gib(ground: Ground) -> float:
    said = ground.run(_DISK).strip()
    return int(said) / 2**30 if said.isdigit() else 0.0


def change_type(ground: Ground) -> str:
    """Another type while it is off, and back in service as that."""
    client, machine, wanted = ground.client, ground.machine.instance, ground.wish.other_type
    assert isinstance(client, ChangesType)
    assert isinstance(client, StopsStarts), "who changes types stops and starts"
    if not wanted:
        raise LeftOut("There is no other type to change to.")
    before = boot_id(ground)
    try:
        _off(ground)
        ground.ask(client.change_type, machine, wanted)
        changed = ground.until("The type is read", lambda: _of_type(ground, wanted), ground.limits.change)
        ground.ask(client.change_type, changed, wanted)
    finally:
        _on(ground)
    rebooted(ground, before, "It lets us in after a start")
    there = ground.machine.instance.type
    expect(there == wanted, f"It runs as {there}.")
    return f"from {machine.type} to {wanted}"


def _of_type(ground: Ground, wanted: str) -> Instance | None:
    found = ground.read(ground.machine.instance)
    return found if found is not None and found.type == wanted else None


def terminate(ground: Ground) -> str:
    """Its end, asked for twice while it goes and once when it is gone."""
    machine = ground.machine.instance
    for _ in range(2):
        ground.ask(ground.client.terminate, machine)

    def over() -> bool:
        found = ground.read(machine)
        return found is None or found.state is Lifecycle.TERMINATED

    ground.until("It is gone", over, ground.limits.ended)
    ground.ask(ground.client.terminate, machine)
    address = ground.address(machine)
    expect(not ground.outside.connects(address, ground.wish.ssh_port), "It is gone, and its SSH server answers.")
    return ""


def nothing_left(ground: Ground) -> str:
    """No machine, and nothing that stood under any name of this run."""
    left = ground.clear()
    expect(not left, " ".join(left))
    found = ground.ask(ground.client.instances, ground.wish.location, dict(ground.marks.of_run))
    there = [one.key or one.id for one in found if one.state is not Lifecycle.TERMINATED]
    expect(not there, f"Still listed: {', '.join(there)}.")
    for order in ground.orders.values():
        rest = ground.ask(ground.client.sweep, order.location, order.zone, order.key, order.tags)
        expect(not rest, f"Under {order.key}: {', '.join(rest)}.")
    return f"{len(ground.orders)} names looked through"
