"""Checks of a running machine: access to it over SSH, its guest system, firewall, tags and console."""

from __future__ import annotations

import secrets
from dataclasses import replace

from blueprints.cloud.client import Console, Firewall, Tags
from blueprints.cloud.validation.environment import Environment
from blueprints.cloud.validation.waiting import Unmet, expect
from blueprints.cloud.values import Instance, Lifecycle, Rule
from blueprints.hosts import architecture
from blueprints.userdata import READY_MARK
from interfaces.errors import HostKeyMismatch, InterfaceError
from interfaces.keys import new_key_pair

RELEASES = {"ubuntu": ("20.04", "22.04", "24.04", "26.04"), "debian": ("11", "12", "13")}
"""The releases that a machine may run, by distribution."""
ARCHITECTURES = ("x86_64", "arm64")
_LARGEST = 64 << 10
_ANYWHERE = "0.0.0.0/0"
_LOOK = f"""
echo "arch=$(uname -m)"
. /etc/os-release
echo "system=$ID"
echo "release=$VERSION_ID"
echo "user=$(id -un)"
[ -d "$HOME" ] && [ -w "$HOME" ] && echo "home=$HOME"
command -v systemctl > /dev/null && echo "systemd=$(systemctl is-system-running 2> /dev/null)"
sudo -n true 2> /dev/null && echo "sudo=yes"
if command -v cloud-init > /dev/null; then echo "cloud_init=$(cloud-init status 2> /dev/null | head -n 1)"
else echo "cloud_init=absent"; fi
[ -e {READY_MARK} ] && echo "mark=yes"
true
"""
_LISTEN = """
cat > /tmp/drydock-listen-$1.py << 'END'
import os, socket, sys, time
there = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
there.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
there.bind((sys.argv[1], int(sys.argv[2])))
there.listen()
there.settimeout(1)
os.unlink(sys.argv[0])
end = time.time() + float(sys.argv[3])
while time.time() < end:
    try:
        there.accept()[0].close()
    except OSError:
        pass
END
command -v python3 > /dev/null || { echo "no python3"; exit; }
nohup python3 /tmp/drydock-listen-$1.py "$3" "$1" "$2" > /dev/null 2>&1 < /dev/null &
echo $!
"""
_TRY = """
python3 -c "import socket, sys; socket.create_connection((sys.argv[2], int(sys.argv[1])), 3)" "$1" "$2" 2> /dev/null \\
&& echo up
true
"""
_BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


def boot(environment: Environment) -> str:
    """Wait until the machine is running and has an address."""
    found = environment.until_state(environment.machine.instance, Lifecycle.RUNNING, environment.limits.running)
    _now(environment, found)
    return environment.address(found)


def _now(environment: Environment, found: Instance) -> None:
    """Store the main machine as it was read last. Its address may have changed."""
    environment.main = replace(environment.machine, instance=found)


def ssh(environment: Environment) -> str:
    """Check that the machine accepts a login, with its own host key and no other."""
    said = environment.until(
        "The machine accepts a login", lambda: environment.run("id -un").strip(), environment.limits.ssh
    )
    expect(said == environment.wish.user, f"The login account is {said!r} instead of {environment.wish.user!r}.")
    stranger = environment.endpoint(host_key=new_key_pair("stranger").public)
    try:
        environment.outside.run(stranger, environment.control.private, "true")
    except HostKeyMismatch:
        return "its host key is the expected one"
    raise Unmet("A wrong host key was accepted.")


def guest(environment: Environment) -> str:
    """Check the guest: architecture, system, account, and first boot."""
    said = environment.until("The first boot has finished", lambda: _booted(environment), environment.limits.first_boot)
    arch, system, release = architecture(said.get("arch", "")), said.get("system", ""), said.get("release", "")
    expect(arch in ARCHITECTURES, f"The machine has an unknown architecture, {arch!r}.")
    expect(arch == environment.wish.arch, f"The machine is {arch}, but {environment.wish.arch} was ordered.")
    expect(system in RELEASES, f"The machine runs {system!r}, which is not one of {', '.join(RELEASES)}.")
    expect(
        release in RELEASES[system],
        f"The machine runs {system} {release}; known releases are {', '.join(RELEASES[system])}.",
    )
    expect(said.get("home"), "The account has no writable home folder.")
    expect(said.get("sudo") == "yes", "The account cannot become root without a password.")
    systemd = said.get("systemd", "none")
    expect(systemd in ("none", "running", "degraded"), f"systemd reports {systemd!r}.")
    return f"{system} {release} on {arch}, systemd {systemd}"


def _booted(environment: Environment) -> dict[str, str] | None:
    """Return what the guest reports, once cloud-init and systemd have finished. Raises Unmet if they fail."""
    lines = (line.partition("=") for line in environment.run(_LOOK).splitlines())
    said = {name: value for name, _, value in lines}
    state = said.get("cloud_init", "")
    expect(state != "absent", "The image does not have cloud-init.")
    expect("error" not in state and "disabled" not in state, f"cloud-init reports {state!r}.")
    over = "done" in state and said.get("mark") == "yes"
    return said if over and said.get("systemd") not in ("starting", "initializing") else None


def firewall(environment: Environment) -> str:
    """Listen on a port in the guest, and check that it is reached from outside only while it is open."""
    client, machine = environment.client, environment.machine.instance
    assert isinstance(client, Firewall)
    port = 20_000 + secrets.randbelow(10_000)
    rules, address = [Rule(port=port, source=_ANYWHERE)], environment.address(machine)
    listener = _listen(environment, port)
    try:
        expect(not environment.outside.connects(address, port), f"Port {port} is reachable although it was not opened.")
        environment.ask(client.open_ports, machine, rules)
        environment.ask(client.open_ports, machine, rules)
        environment.until(
            f"Port {port} is reachable",
            lambda: environment.outside.connects(address, port),
            environment.limits.firewall,
        )
        environment.ask(client.close_ports, machine, rules)
        environment.ask(client.close_ports, machine, rules)
        closed = f"Port {port} is no longer reachable"
        environment.until(closed, lambda: not environment.outside.connects(address, port), environment.limits.firewall)
        expect(environment.run("echo in").strip() == "in", "Closing the port also closed the SSH port.")
    finally:
        _quietly(environment, f"kill {listener}")
        environment.ask(client.close_ports, machine, rules)
    return f"port {port}"


def _listen(environment: Environment, port: int) -> int:
    """Listen on a port at the machine's own address. Return the id of the listening process in the guest."""
    machine = environment.machine.instance
    inside = machine.private_address or machine.public_address
    said = environment.run(_LISTEN, str(port), "900", inside).strip()
    expect(said.isdigit(), f"No program can listen on a port of the machine: {said or 'there was no output'}.")
    environment.until(
        "The guest listens", lambda: environment.run(_TRY, str(port), inside).strip() == "up", environment.limits.call
    )
    return int(said)


def _quietly(environment: Environment, script: str) -> None:
    try:
        environment.run(script)
    except InterfaceError:
        return


def tags(environment: Environment) -> str:
    """Add a tag, and check that existing tags stay."""
    client, machine = environment.client, environment.machine.instance
    assert isinstance(client, Tags)
    wanted = {"drydock-note": environment.run_tags.run}
    for _ in range(2):
        environment.ask(client.set_tags, machine, wanted)

    def there() -> Instance | None:
        found = environment.read(machine)
        return found if found and wanted.items() <= found.tags.items() else None

    found = environment.until("The tag is reported", there, environment.limits.change)
    lost = sorted(set(environment.machine.order.tags) - set(found.tags))
    expect(not lost, f"Setting the tag removed these tags: {', '.join(lost)}.")
    listed = environment.ask(client.instances, machine.location, {**environment.run_tags.of_run, **wanted})
    expect(machine.id in [one.id for one in listed], "The machine is not listed by the new tag.")
    return ""


def console(environment: Environment) -> str:
    """Read the console output of the machine."""
    client, machine = environment.client, environment.machine.instance
    assert isinstance(client, Console)
    said = environment.until("The console has output", lambda: client.console(machine), environment.limits.change)
    size = len(said.encode())
    expect(size <= _LARGEST, f"The console returns {size} bytes at once, but at most {_LARGEST} are allowed.")
    return f"{size} bytes"


def boot_id(environment: Environment) -> str:
    """Return the id of the current boot."""
    return environment.run(_BOOT_ID).strip()


def rebooted(environment: Environment, before: str, what: str) -> None:
    """Wait until the machine accepts a login after another boot."""

    def other() -> bool:
        _now(environment, environment.read(environment.machine.instance) or environment.machine.instance)
        return bool(environment.address(environment.machine.instance)) and boot_id(environment) not in ("", before)

    environment.until(what, other, environment.limits.ssh)
