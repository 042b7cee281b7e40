"""The kind local_host keeps the contract, and what a lease did on this machine ends with it."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from blueprints import hostscripts, hostshell
from blueprints.amounts import Amounts
from blueprints.answers import Json, NeededLock, Ready, Wait
from blueprints.local import actions, claims, folders, leasing, machine
from blueprints.local.kind import LocalHost
from blueprints.specs import LeaseView, ResourceView
from blueprints.testing.bench import always_mine
from blueprints.testing.conformance import KindConformance, Outside
from drydock.core import clock
from drydock.core.errors import InvalidRequest
from interfaces.command.contract import Command
from interfaces.contract import Interface
from interfaces.errors import PathEscape, Unreachable
from interfaces.filesystem.contract import Filesystem
from tests.blueprints import host_peers as peers
from tests.blueprints import survivors
from tests.blueprints.host_peers import AS_ROOT, FIRST_UID

# Waiting for others who use the accounts of this machine does not count.
pytestmark = pytest.mark.timeout(120, func_only=True)


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with peers.alone():
        yield


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for homes that accounts may pass through."""
    made = Path(tempfile.mkdtemp(prefix="drydock-hosts-", dir="/tmp"))
    made.chmod(0o711)
    uids = made / "uids"
    monkeypatch.setattr(claims, "FOLDER", uids)
    with peers.removed(made):
        yield made / "hosts"


class TestLocalHost(KindConformance):
    """The contract, with the rights that the tests have."""

    kind = LocalHost()

    @pytest.fixture(autouse=True)
    def _folder(self, folder: Path) -> Iterator[None]:
        self.folder = folder
        yield
        if AS_ROOT:
            assert not peers.alive(FIRST_UID)
            assert not peers.files_of(FIRST_UID)
        assert not folder.exists()
        assert not claims.taken()

    def config(self) -> Json:
        return {"folder": str(self.folder), "slots": 3, "region": "lab", "first_uid": FIRST_UID, "uids": 50}

    def requirements(self) -> Json:
        return {"arch": machine.attributes()["arch"], "os": "linux", "region": ["lab", "west"], "min_vcpus": 1}

    def impossible(self) -> Json:
        return {"region": "moon"}

    def amounts(self) -> Amounts:
        return Amounts(slots=1, cpu_millicores=500, ram_mib=100)

    def outside(self) -> Sequence[Outside]:
        found = sorted(self.folder.iterdir()) if self.folder.exists() else []
        return [Outside(name=one.name, tags=json.loads((one / folders.MARKER).read_text())) for one in found]

    def kill(self, resource: ResourceView) -> None:
        (folders.folder_of(resource) / folders.MARKER).unlink()

    def access_of(self, lease: LeaseView) -> Sequence[str]:
        home = folders.home_of(lease)
        found = [str(home)] if home.exists() else []
        if AS_ROOT and lease.facts.get("uid"):
            found += [str(one.pid) for one in peers.alive(lease.facts["uid"])]
        return found

    def use(self, interface: Interface) -> None:
        use(interface)


def use(interface: Interface) -> None:
    """Something small with either interface."""
    if isinstance(interface, Command):
        assert interface.check(["pwd"]).text.strip()
    if isinstance(interface, Filesystem):
        interface.write_text("a", "b")
        assert interface.read_text("a") == "b"


class Hosts(TestLocalHost):
    """The bench of the tests below."""

    __test__ = False

    def __init__(self, folder: Path, **more: Any) -> None:
        self.folder = folder
        self.more = more

    def config(self) -> Json:
        return super().config() | self.more

    def lock(self, needed: NeededLock) -> str:
        return needed.candidates[0]


@pytest.fixture
def hosts(folder: Path) -> Iterator[Hosts]:
    bench = Hosts(folder)
    yield bench
    assert not folder.exists(), "a test left its host"
    assert not claims.taken()


@pytest.fixture
def host(hosts: Hosts) -> Iterator[ResourceView]:
    built = hosts.built()
    yield built
    hosts.destroyed(built)


@pytest.fixture
def lease(hosts: Hosts, host: ResourceView) -> Iterator[LeaseView]:
    held = hosts.activated(hosts.lease(host))
    yield held
    end(hosts, held)


def end(hosts: Hosts, lease: LeaseView) -> None:
    """Release, and see that nothing of it is left."""
    hosts.ready("deactivate", lease.resource, lease)
    assert not folders.home_of(lease).exists()
    assert not peers.marked(f"DRYDOCK_LEASE={lease.key}")
    if AS_ROOT:
        assert not peers.alive(lease.facts["uid"])
        assert not peers.files_of(lease.facts["uid"])


def command(lease: LeaseView) -> Command:
    found = lease.interface("command")
    assert isinstance(found, Command)
    return found


def test_a_lease_says_where_it_is(lease: LeaseView) -> None:
    said = command(lease).check('echo "$(id -u) $HOME $PWD $DRYDOCK_LEASE"').text.split()
    assert said == [str(lease.facts["uid"]), lease.facts["home"], lease.facts["home"], lease.key]
    assert Path(lease.facts["home"]).stat().st_mode & 0o777 == 0o700
    assert lease.facts["connect"] == lease.facts["home"]
    assert lease.facts["isolation"] == ("uid" if AS_ROOT else "none")
    assert not lease.secrets


def test_as_root_two_leases_have_a_uid_each_and_no_way_to_each_other(hosts: Hosts, host: ResourceView) -> None:
    peers.needs_root()
    one, two = (hosts.activated(_named(hosts, host, name)) for name in ("one", "two"))
    assert one.facts["uid"] != two.facts["uid"]
    command(one).check("echo mine >secret; sleep 600 >/dev/null 2>&1 &")
    (running,) = peers.eventually(lambda: peers.named("sleep", one.facts["uid"]))
    assert not command(two).run(["cat", f"{one.facts['home']}/secret"]).ok
    assert not command(two).run(["kill", str(running.pid)]).ok
    assert command(two).run("id -G; id -u").text.split() == [str(two.facts["uid"])] * 2
    end(hosts, one)
    assert command(two).check("echo alive").text == "alive\n"
    end(hosts, two)


def test_a_uid_of_another_installation_is_not_taken(hosts: Hosts, host: ResourceView) -> None:
    peers.needs_root()
    theirs = folders.folder_of(host).parent.parent / "home"
    assert claims.take(FIRST_UID, theirs)
    assert not claims.take(FIRST_UID, Path("/elsewhere"))
    lease = hosts.activated(hosts.lease(host))
    assert lease.facts["uid"] == FIRST_UID + 1
    end(hosts, lease)
    assert claims.taken() == {FIRST_UID}
    claims.give_back(theirs)


def test_a_uid_whose_host_was_removed_by_hand_is_free_again(hosts: Hosts, host: ResourceView) -> None:
    peers.needs_root()
    claims.take(FIRST_UID, Path("/gone/host/home"))
    assert FIRST_UID not in claims.free([FIRST_UID, FIRST_UID + 1], 2)
    assert claims.free([FIRST_UID], 1) == [FIRST_UID]


def test_a_uid_is_given_once_whoever_asks_at_the_same_time(folder: Path) -> None:
    homes = [Path(f"/tmp/home-{number}") for number in range(8)]

    def have(home: Path) -> bool:
        got = [claims.take(FIRST_UID, home) for _ in range(20)]
        if any(got):
            claims.give_back(home)
        return all(got) or not any(got)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(have, homes))
    assert not claims.taken()


@pytest.mark.parametrize("clean", [False, True])
def test_a_daemon_ends_with_the_lease(hosts: Hosts, lease: LeaseView, clean: bool) -> None:
    if clean:
        peers.needs_root()
    command(lease).check(peers.daemon(clean=clean))
    if AS_ROOT:
        peers.eventually(lambda: peers.alive(lease.facts["uid"]))
    else:
        peers.eventually(lambda: peers.marked(f"DRYDOCK_LEASE={lease.key}"))
    end(hosts, lease)


def test_a_lease_whose_name_begins_as_anothers_is_left_alone(hosts: Hosts, host: ResourceView) -> None:
    short, longer = (hosts.activated(_named(hosts, host, name)) for name in ("1", "12"))
    for lease in (short, longer):
        command(lease).check(peers.daemon())
    end(hosts, short)
    assert peers.eventually(lambda: peers.marked(f"DRYDOCK_LEASE={longer.key}"))
    end(hosts, longer)


def test_a_job_ends_with_the_lease(hosts: Hosts, lease: LeaseView) -> None:
    from interfaces.command.jobs import JobSpec

    command(lease).jobs.start(JobSpec(id="long", words="trap '' TERM; sleep 600; sleep 600"))
    end(hosts, lease)


def test_a_fork_bomb_ends_with_the_lease(hosts: Hosts, lease: LeaseView) -> None:
    peers.needs_root()
    command(lease).check(peers.BOMB)
    counted = Path(lease.facts["home"], "generations")
    peers.eventually(lambda: counted.exists() and counted.stat().st_size > 90)
    end(hosts, lease)


def test_links_planted_in_the_home_lead_nowhere(hosts: Hosts, lease: LeaseView, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    home = Path(lease.facts["home"])
    command(lease).check(
        f"ln -s {tmp_path} out; ln -s /etc etc; mkdir d; ln -s / d/root; mkdir .drydock; ln -s /etc .drydock/x"
    )
    files = lease.interface("filesystem")
    assert isinstance(files, Filesystem)
    with pytest.raises(PathEscape):
        files.read_bytes("etc/passwd")
    end(hosts, lease)
    assert (tmp_path / "precious").read_text() == "kept"
    assert Path("/etc/passwd").exists()
    assert not home.exists()


def test_closed_and_deep_folders_are_removed(hosts: Hosts, lease: LeaseView) -> None:
    command(lease).check("mkdir -p a/b; echo x >a/b/c; chmod 000 a/b; chmod 000 a; mkdir dead; chmod 500 dead")
    command(lease).check("n=0; while [ $n -lt 1500 ]; do mkdir d && cd d; n=$((n + 1)); done")
    end(hosts, lease)


def test_what_the_uid_left_in_common_places_is_removed(hosts: Hosts, lease: LeaseView) -> None:
    peers.needs_root()
    for place in peers.PLACES:
        command(lease).check(
            f"cd {place} && echo x >dd-left-$$ && mkdir -m 700 dd-$$.d && ln -s /etc dd-$$.d/etc && chmod 0 dd-$$.d"
        )
    if shutil.which("ipcmk"):
        command(lease).check("ipcmk -M 4096 && ipcmk -Q && ipcmk -S 1")
    assert len(peers.files_of(lease.facts["uid"])) == 6
    end(hosts, lease)
    for name in ("shm", "msg", "sem"):
        assert str(lease.facts["uid"]) not in Path(f"/proc/sysvipc/{name}").read_text().split()


def test_on_a_busy_machine_a_lease_waits_until_all_was_looked_through(
    hosts: Hosts, host: ResourceView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers.needs_root()
    slow = tmp_path / "find"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    with monkeypatch.context() as busy:
        busy.setattr(hostshell, "SWEEP_UID", f"PATH={tmp_path}:$PATH\n{hostshell.SWEEP_UID}")
        lease = hosts.lease(host)
        spec = replace(hosts.spec("activate", host, lease), deadline=2.5, locks={"uid": str(FIRST_UID)})
        account = leasing.give_account(spec, {})
        assert isinstance(account, Ready)
        spec = replace(spec, lease=replace(lease, facts=account.facts))
        for _ in range(2):
            waits = leasing.make_home(spec, {})
            assert isinstance(waits, Wait), waits
            assert "under this uid" in waits.sentence
        assert not folders.home_of(lease).exists()
    assert isinstance(leasing.make_home(replace(spec, deadline=60), {}), Ready)
    hosts.ready("deactivate", host, replace(lease, facts=account.facts))


MOVING = """
import os, shutil, sys
place = sys.argv[1]
print(flush=True)
while True:
    for n in range(40):
        home, away = f"{place}/m{n}", f"{place}.away/m{n}"
        os.makedirs(f"{home}/a/b/c/d/e/f/g", exist_ok=True)
        os.rename(home, away)
        shutil.rmtree(away)
"""


def test_folders_that_others_move_away_meanwhile_hide_nothing_from_the_sweep(hosts: Hosts, host: ResourceView) -> None:
    """Such a move ends a search by find with all that it had still before it."""
    peers.needs_root()
    uid, place = FIRST_UID + 97, Path(f"/tmp/dd-moving-{os.getpid()}")
    with peers.removed(place), peers.removed(Path(f"{place}.away")):
        for folder in (place, Path(f"{place}.away")):
            folder.mkdir()
        movers = [
            subprocess.Popen(
                [sys.executable, "-c", MOVING, str(place)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            for _ in range(2)
        ]
        try:
            for mover in movers:
                assert mover.stdout is not None
                mover.stdout.readline()
            for n in range(12):
                litter = place / f"z{n}"
                litter.touch()
                os.chown(litter, uid, uid)
                # A search that is ended again and again takes long on a busy machine: each sweep has its own time.
                sweep = leasing.shell(hosts.spec("deactivate", host))
                done = sweep.as_root(hostscripts.SWEEP_UID, str(uid), "3")
                assert done.split()[-1] != "0" or not litter.exists(), n
        finally:
            for mover in movers:
                mover.kill()
                mover.communicate()


@pytest.mark.parametrize(("ends", "left"), [("exit 1", "1"), ('case " $* " in *" / "*) echo /;; esac; exit 1', "0")])
def test_a_search_that_ended_early_is_not_taken_for_clean(
    hosts: Hosts, host: ResourceView, tmp_path: Path, ends: str, left: str
) -> None:
    peers.needs_root()
    (tmp_path / "find").write_text(f"#!/bin/sh\n{ends}\n")
    (tmp_path / "find").chmod(0o755)
    sweep = leasing.shell(hosts.spec("deactivate", host))
    done = sweep.as_root(f"PATH={tmp_path}:$PATH\n{hostscripts.SWEEP_UID}", str(FIRST_UID + 97), "20")
    assert done.split()[-1] == left


def test_a_folder_with_things_of_others_stays_but_is_nobodys(hosts: Hosts, lease: LeaseView) -> None:
    peers.needs_root()
    shared = Path(f"/tmp/dd-shared-{os.getpid()}")
    with peers.removed(shared):
        command(lease).check(f"mkdir -m 777 {shared}")
        (shared / "of-root").write_text("kept")
        end(hosts, lease)
        assert (shared / "of-root").read_text() == "kept"
        assert shared.stat().st_uid == 0


SWAPPING = """#!/bin/sh
for named; do :; done
case $named in
  {tree}/*|./*) rm -rf "$named.was"; mv "$named" "$named.was"; ln -s {target} "$named";;
esac
exec {chmod} "$@"
"""
"""A `chmod` before which another lease, which may write there, puts a link in the place of what was found."""


def test_a_link_that_another_lease_swaps_in_meanwhile_has_root_change_nothing(
    hosts: Hosts, lease: LeaseView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers.needs_root()
    target = tmp_path / "of-root"
    target.touch(mode=0o400)
    command(lease).check("mkdir -p open/closed; chmod 0 open/closed; chmod 777 . open")
    failing, again = tmp_path / "rm", tmp_path / "again"
    failing.write_text(f'#!/bin/sh\n[ -e {again} ] || {{ : >{again}; exit 1; }}\nexec {shutil.which("rm")} "$@"\n')
    swapping = tmp_path / "chmod"
    swapping.write_text(SWAPPING.format(tree=lease.facts["home"], target=target, chmod=shutil.which("chmod")))
    for program in (failing, swapping):
        program.chmod(0o755)
    monkeypatch.setattr(hostshell, "REMOVE_TREE", f"PATH={tmp_path}:$PATH\n{hostscripts.REMOVE_TREE}")
    end(hosts, lease)
    assert again.exists()
    assert target.stat().st_mode & 0o777 == 0o400


def test_a_home_that_others_keep_busy_does_not_take_the_machine_from_all(
    hosts: Hosts, host: ResourceView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another lease makes files in a home that was opened to it, faster than root removes them."""
    peers.needs_root()
    lease = hosts.activated(hosts.lease(host))
    uid, home = lease.facts["uid"], Path(lease.facts["home"])
    command(lease).check("chmod 777 .; touch mine")
    with monkeypatch.context() as busy:
        busy.setattr(hostshell, "PATIENCE", 0.0)
        busy.setattr(hostshell, "REMOVE_TREE", "echo 1")
        hosts.ready("deactivate", host, lease)
        assert not home.exists()
        assert folders.aside_of(home).parent.stat().st_mode & 0o777 == 0o700
        assert isinstance(actions.check_health(hosts.spec("check", host), {}), Ready)
        assert uid in claims.taken(), "what is left is under its number"
    assert isinstance(actions.check_health(hosts.spec("check", host), {}), Ready)
    assert not folders.aside(home.parent)
    assert not claims.taken()


def test_destroying_the_host_ends_leases_that_were_left_on_it(hosts: Hosts) -> None:
    built = hosts.built()
    held = hosts.activated(hosts.lease(built))
    command(held).check(peers.daemon())
    command(held).check("echo x >file")
    hosts.destroyed(built)
    assert not peers.marked(f"DRYDOCK_LEASE={held.key}")


def test_on_another_machine_nothing_is_done_and_nothing_is_taken_for_gone(
    hosts: Hosts, lease: LeaseView, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = machine.identity()
    monkeypatch.setattr(machine, "identity", lambda: "elsewhere")
    for phase in ("activate", "deactivate", "check", "destroy"):
        outcome = hosts.run(phase, lease.resource, lease)
        assert outcome.ended == "failed"
        assert "elsewhere" in str(outcome.answer)
    with pytest.raises(Unreachable, match="elsewhere"):
        lease.interface("command")
    assert Path(lease.facts["home"]).exists()
    monkeypatch.setattr(machine, "identity", lambda: here)


@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_a_place_that_cannot_be_trusted_is_refused(folder: Path, mode: int) -> None:
    peers.needs_root()
    folder.mkdir()
    folder.chmod(mode)
    hosts = Hosts(folder)
    (problem,) = hosts.kind.check_blueprint(hosts.blueprint())
    assert problem.fatal
    outcome = hosts.run("build", hosts.resource())
    assert outcome.ended == "failed"
    assert "operator" in str(outcome.answer)


def test_a_full_disk_is_unhealthy(folder: Path) -> None:
    hosts = Hosts(folder)
    resource = hosts.built()
    full = Hosts(folder, min_free_mib=1 << 40)
    outcome = full.run("check", full.resource(hosts.draft()))
    assert outcome.ended == "failed"
    hosts.destroyed(resource)


def test_the_config_bounds_capacity_and_keeps_nobody_out(folder: Path) -> None:
    draft = Hosts(folder, cpu_millicores=1500, ram_mib=512, disk_mib=100).draft()
    assert draft.capacity == Amounts(slots=3, cpu_millicores=1500, ram_mib=512, disk_mib=100)
    with pytest.raises(ValueError, match="65534"):
        Hosts(folder, first_uid=65000, uids=1000).blueprint()


def test_the_interfaces_ask_whether_the_lease_holds(lease: LeaseView) -> None:
    with pytest.raises(InvalidRequest):
        lease.resource.blueprint.kind and LocalHost().interfaces()["command"](lease, always_mine).check([])  # type: ignore[attr-defined]


def _named(hosts: Hosts, host: ResourceView, name: str) -> LeaseView:
    lease = hosts.lease(host)
    return replace(lease, key=f"{lease.key}-{name}")


def test_a_process_whose_first_thread_has_exited_ends_with_the_lease(hosts: Hosts, lease: LeaseView) -> None:
    sign = Path(lease.facts["home"], "sign")
    command(lease).check(survivors.words(survivors.EXITED_LEADER, str(sign)))
    survivor = int(peers.eventually(lambda: sign.exists() and sign.read_text()))
    peers.eventually(lambda: survivor in peers.headless(lease.facts["uid"]))
    try:
        end(hosts, lease)
        peers.eventually(lambda: not Path(f"/proc/{survivor}").exists())
    finally:
        with suppress(ProcessLookupError):
            os.kill(survivor, signal.SIGKILL)


def test_a_group_is_ended_whatever_uid_its_processes_have(hosts: Hosts, lease: LeaseView) -> None:
    peers.needs_root()
    group = json.loads(json.dumps(lease.facts["endpoint"]))["cgroup"]
    if not group:
        pytest.skip("no cgroup v2 tree that may be written")
    stray = subprocess.Popen(["sleep", "600"])
    try:
        Path(group, "cgroup.procs").write_text(str(stray.pid))
        end(hosts, lease)
        assert stray.wait(10) == -signal.SIGKILL
        assert not Path(group).exists()
    finally:
        stray.kill()
        stray.wait()


def test_a_group_that_is_gone_after_a_restart_is_made_again(hosts: Hosts, lease: LeaseView) -> None:
    peers.needs_root()
    group = lease.facts["endpoint"]["cgroup"]
    if not group:
        pytest.skip("no cgroup v2 tree that may be written")
    Path(group).rmdir()
    assert Path(group).name in command(lease).check(["cat", "/proc/self/cgroup"]).text
    end(hosts, lease)


def test_no_process_of_a_lease_can_gain_privileges(hosts: Hosts, host: ResourceView) -> None:
    from interfaces.command.jobs import JobSpec

    peers.needs_root()
    older, newer = (hosts.activated(_named(hosts, host, name)) for name in ("older", "newer"))
    shared = Path(f"/tmp/dd-setuid-{os.getpid()}")
    with peers.removed(shared):
        command(newer).check(f"mkdir -m 755 {shared}; cp {survivors.PYTHON} {shared}/left; chmod 4755 {shared}/left")
        other = f"{shared}/left -I -c 'import os; print(os.geteuid())'"
        assert command(older).check(other).text.strip() == str(older.facts["uid"])
        command(older).jobs.start(JobSpec(id="one", words=other))
        command(older).jobs.wait("one", timeout=60, every=0.05)
        assert command(older).jobs.output("one").content.decode().strip() == str(older.facts["uid"])
    files = older.interface("filesystem")
    assert isinstance(files, Filesystem)
    files.write_text("a", "b")
    found = [Path(f"/proc/{one.pid}/status").read_text() for one in peers.alive(older.facts["uid"])]
    assert found
    assert all("NoNewPrivs:\t1" in status for status in found)
    end(hosts, older)
    end(hosts, newer)


def test_keys_in_the_kernel_end_with_the_lease(hosts: Hosts, lease: LeaseView) -> None:
    peers.needs_root()
    _need_keys(command(lease).run(survivors.words(survivors.KEYS)).ok)
    assert lease.facts["uid"] in claims._with_keys()
    end(hosts, lease)
    assert lease.facts["uid"] not in claims._with_keys()


def test_keys_are_cleared_by_perl_where_there_is_no_python(hosts: Hosts, lease: LeaseView) -> None:
    peers.needs_root()
    peers.require("perl")
    _need_keys(command(lease).run(survivors.words(survivors.KEYS)).ok)
    without = hostscripts.SWEEP_UID.replace("python3", "none").replace("/usr/libexec/platform-python", "none")
    leasing.shell(hosts.spec("deactivate", lease.resource)).as_root(without, str(lease.facts["uid"]), "20")
    assert lease.facts["uid"] not in claims._with_keys()


def test_a_uid_whose_keys_cannot_be_cleared_is_not_handed_out(hosts: Hosts) -> None:
    peers.needs_root()
    hosts.more = {"first_uid": FIRST_UID + 98, "uids": 2}
    host = hosts.built()
    lease = hosts.activated(hosts.lease(host))
    _need_keys(command(lease).run(survivors.words(survivors.KEYS, "closed")).ok)
    end(hosts, lease)
    assert lease.facts["uid"] in claims._with_keys()
    assert claims.free([lease.facts["uid"]], 1) == []
    hosts.destroyed(host)


def _need_keys(there: bool) -> None:
    if not there:
        pytest.skip("the kernel gives no keys here")


def test_message_queues_end_with_the_lease(hosts: Hosts, lease: LeaseView) -> None:
    peers.needs_root()
    queue = f"/dd-left-{os.getpid()}"
    if not command(lease).run(survivors.words(survivors.QUEUE, queue, "make")).ok:
        pytest.skip("the kernel gives no message queues here")
    assert subprocess.run(survivors.words(survivors.QUEUE, queue), check=False).returncode == 0
    end(hosts, lease)
    assert subprocess.run(survivors.words(survivors.QUEUE, queue), check=False).returncode


def test_a_file_that_another_lease_has_taken_home_is_not_the_next_owners(hosts: Hosts, host: ResourceView) -> None:
    peers.needs_root()
    giver, taker = (hosts.activated(_named(hosts, host, name)) for name in ("giver", "taker"))
    command(giver).check("chmod 711 . && mkdir -m 777 d && touch d/left && chmod 4777 d/left")
    command(taker).check(f"mv {giver.facts['home']}/d/left left")
    end(hosts, giver)
    with suppress(FileNotFoundError):  # the homes of this test are in /tmp, which is swept as well
        left = Path(taker.facts["home"], "left").stat()
        assert (left.st_uid, left.st_mode & 0o6000) == (0, 0)
    end(hosts, taker)


def test_uids_go_round_and_rest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    window, homes = range(FIRST_UID, FIRST_UID + 3), [Path(f"/tmp/home-{number}") for number in range(2)]
    for uid, home in zip(window, homes, strict=False):
        assert claims.take(uid, home)
    for home in reversed(homes):
        claims.give_back(home)
    assert claims.free(window, 9) == [FIRST_UID + 2]
    assert claims.free(window[:2], 9) == [FIRST_UID + 1, FIRST_UID], "where all rest, the longest first"
    later = clock.now() + dt.timedelta(seconds=claims.REST + 1)
    monkeypatch.setattr(clock, "now", lambda: later)
    assert claims.free(window, 9) == [FIRST_UID + 2, FIRST_UID + 1, FIRST_UID]


def test_leases_cannot_read_the_proof_of_their_host(hosts: Hosts, lease: LeaseView) -> None:
    peers.needs_root()
    marker = folders.folder_of(lease.resource) / folders.MARKER
    assert not command(lease).run(["cat", str(marker)]).ok
    marker.chmod(0o644)  # as earlier versions left it
    hosts.ready("check", lease.resource)
    assert not command(lease).run(["cat", str(marker)]).ok


@pytest.mark.parametrize("hiding", ["tmpfs none", "proc -o hidepid=2 proc"])
def test_who_cannot_see_processes_does_not_say_that_there_are_none(hiding: str) -> None:
    peers.needs_root()
    peers.require("setpriv", "unshare")
    line = f'mount --make-rprivate / && mount -t {hiding} /proc && exec setpriv --bounding-set=-sys_ptrace "$@"'
    words = ["unshare", "-m", "/bin/sh", "-c", line, "sh", "/bin/sh", "-c", hostscripts.END_UID, "sh"]
    said = subprocess.run([*words, str(FIRST_UID), "1"], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (71, ""), said


def test_without_root_a_process_whose_first_thread_has_exited_is_found_by_its_mark(folder: Path) -> None:
    peers.needs_root()
    uid, mark = FIRST_UID + 97, f"DRYDOCK_LEASE=marked-{os.getpid()}"
    sign = folder.parent / "sign"
    sign.touch()
    os.chown(sign, uid, uid)
    name, value = mark.split("=")
    account: dict[str, Any] = {"user": uid, "group": uid, "extra_groups": [], "cwd": "/", "check": True}
    attack = survivors.words(survivors.EXITED_LEADER, str(sign))
    subprocess.run(attack, env={name: value, "PATH": os.defpath}, **account)
    peers.eventually(lambda: peers.headless(uid))
    words = ["/bin/sh", "-c", hostscripts.END_MARKED, "sh", mark, "/no/such/home", "20"]
    assert subprocess.run(words, env={"PATH": os.defpath}, capture_output=True, text=True, **account).stdout == "0\n"
    assert not peers.alive(uid)


def test_processes_that_live_shorter_than_a_search_takes_are_ended(folder: Path) -> None:
    peers.needs_root()
    peers.require("perl", "setpriv")
    uid, generations = FIRST_UID + 98, folder.parent / "generations"
    generations.touch()
    os.chown(generations, uid, uid)
    line = (
        "open my $said, '>>', $ARGV[0]; my $end = time + 60; while (time < $end) { exit if fork; syswrite $said, 'x' }"
    )
    account: dict[str, Any] = {"user": uid, "group": uid, "extra_groups": [], "cwd": "/", "check": True}
    subprocess.run(["perl", "-e", line, str(generations)], **account)
    peers.eventually(lambda: generations.stat().st_size > 100)
    words = ["/bin/sh", "-c", hostscripts.END_UID, "sh", str(uid), "60"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    size = generations.stat().st_size
    time.sleep(0.5)  # hundreds of generations
    assert (said, generations.stat().st_size) == ("0\n", size)


# Reading all processes takes longer than a process of the chain lives; reading a few does not.
SLOW_GREP = """#!/bin/sh
[ $# -lt 30 ] || sleep 0.4
PATH=${PATH#*:} exec grep "$@"
"""
CHAIN = """
body='[ "$1" -lt 100 ] || exit 0; sleep 0.2; setsid /bin/sh -c "$0" "$0" $(($1 + 1)) &'
setsid /bin/sh -c "$body" "$body" 0
"""


def test_what_starts_its_successor_while_a_busy_host_is_searched_is_ended(tmp_path: Path) -> None:
    name, mark = "DRYDOCK_LEASE", f"DRYDOCK_LEASE=chain-{os.getpid()}"
    _program(tmp_path / "grep", SLOW_GREP)
    subprocess.run(
        ["/bin/sh", "-c", CHAIN], env={name: mark.partition("=")[2], "PATH": os.defpath}, cwd="/", check=True
    )
    peers.eventually(lambda: peers.marked(mark))
    words = ["/bin/sh", "-c", hostscripts.END_MARKED, "sh", mark, "/no/such/home", "60"]
    found = subprocess.run(words, env={"PATH": f"{tmp_path}:{os.defpath}"}, cwd="/", capture_output=True, text=True)
    time.sleep(0.5)  # longer than one process of the chain lives
    assert (found.stdout, peers.marked(mark)) == ("0\n", []), found


UNREAPED_GREP = """#!/bin/sh
folder=${0%/*} pid=
touch "$folder/start"
while [ ! -s "$folder/started" ]; do sleep 0.02; done
read -r pid <"$folder/started"
case " $* " in *" /proc/$pid/task/$pid/FILE "*)
  touch "$folder/leave"
  until PATH=${PATH#*:} grep -q '^State:.Z' /proc/$pid/status; do sleep 0.02; done;;
esac
PATH=${PATH#*:} exec grep "$@"
"""


@pytest.mark.parametrize("read", ["environ", "status"])
def test_what_ends_while_it_is_read_and_is_not_reaped_does_not_hide_its_child(tmp_path: Path, read: str) -> None:
    """The first search is held until a process has started; the second until that has a child and has ended.

    It ends before its environment is read, or when it has been found and its state is read.
    """
    mark = f"DRYDOCK_LEASE=unreaped-{os.getpid()}"
    _program(tmp_path / "grep", UNREAPED_GREP.replace("FILE", read))
    words = ["/bin/sh", "-c", hostscripts.END_MARKED, "sh", mark, "/no/such/home", "60"]
    path, marked = {"PATH": f"{tmp_path}:{os.defpath}"}, {"PATH": os.defpath, **dict([mark.split("=")])}
    with subprocess.Popen(words, env=path, cwd="/", stdout=subprocess.PIPE, text=True) as ending:
        peers.eventually((tmp_path / "start").exists)
        parent = subprocess.Popen(
            ["/bin/sh", "-c", "read -r _; setsid sleep 60 & exit 0"], env=marked, cwd="/", stdin=subprocess.PIPE
        )
        (tmp_path / "number").write_text(f"{parent.pid}\n")
        (tmp_path / "number").rename(tmp_path / "started")
        peers.eventually((tmp_path / "leave").exists)
        assert parent.stdin is not None
        parent.stdin.close()
        found = ending.communicate()[0]
    left = peers.marked(mark)
    parent.wait()
    assert (found, left) == ("0\n", [])


COUNTING_GREP = """#!/bin/sh
echo x >>${0%/*}/searches
sleep 0.5
PATH=${PATH#*:} exec grep "$@"
"""
ENDLESS = 'while [ ! -e "$1/end" ]; do env "$2" sleep 30 & sleep 0.1; done'


def test_what_starts_more_than_can_be_ended_is_given_up_when_the_time_is_over(tmp_path: Path) -> None:
    """On a slow host, each search finds another process that must be ended."""
    mark = f"DRYDOCK_LEASE=endless-{os.getpid()}"
    _program(tmp_path / "grep", COUNTING_GREP)
    words = ["/bin/sh", "-c", hostscripts.END_MARKED, "sh", mark, "/no/such/home"]
    endless = ["/bin/sh", "-c", ENDLESS, "sh", str(tmp_path), mark]
    with subprocess.Popen(endless, cwd="/", start_new_session=True) as starter:
        peers.eventually(lambda: peers.marked(mark))
        slow = {"PATH": f"{tmp_path}:{os.defpath}"}
        found = subprocess.run([*words, "2"], env=slow, cwd="/", capture_output=True, text=True)
        searches = len((tmp_path / "searches").read_text().splitlines())
        (tmp_path / "end").touch()
        assert starter.wait() == 0
    left = subprocess.run([*words, "60"], cwd="/", capture_output=True, text=True)
    assert (left.stdout, peers.marked(mark)) == ("0\n", []), left
    assert int(found.stdout) > 0
    assert searches < 40


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_what_the_uid_left_below_run_is_removed(hosts: Hosts, lease: LeaseView) -> None:
    peers.needs_root()
    common = Path(f"/run/dd-common-{os.getpid()}")
    with peers.removed(common):
        common.mkdir()
        common.chmod(0o1777)
        command(lease).check(f"echo x >{common}/left")
        end(hosts, lease)
        assert not list(common.iterdir())
