"""The kind local_host keeps the contract, and what a lease did on this machine ends with it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from blueprints import hostshell
from blueprints.amounts import Amounts
from blueprints.answers import Json, NeededLock, Ready, Wait
from blueprints.local import claims, folders, leasing, machine
from blueprints.local.kind import LocalHost
from blueprints.specs import LeaseView, ResourceView
from blueprints.testing.bench import always_mine
from blueprints.testing.conformance import KindConformance, Outside
from drydock.core.errors import InvalidRequest
from interfaces.command.contract import Command
from interfaces.contract import Interface
from interfaces.errors import PathEscape, Unreachable
from interfaces.filesystem.contract import Filesystem
from tests.blueprints import host_peers as peers
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
    (running,) = peers.eventually(lambda: [p for p in peers.alive(one.facts["uid"]) if p.name() == "sleep"])
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
    lease = hosts.activated(hosts.lease(host))
    assert lease.facts["uid"] == FIRST_UID
    end(hosts, lease)


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


def test_the_folder_of_uids_may_vanish_while_it_is_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, tries = Path.mkdir, []

    def mkdir(self: Path, *args: Any, **kwargs: Any) -> None:
        tries.append(self)
        if len(tries) == 1:  # there when it was made, gone when it was looked at
            raise FileExistsError(17, "File exists", str(self))
        real(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    home = Path("/tmp/home")
    assert claims.take(FIRST_UID, home)
    monkeypatch.undo()
    monkeypatch.setattr(claims, "FOLDER", tries[0])
    claims.give_back(home)
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
            assert "under its uid" in waits.sentence
        assert not folders.home_of(lease).exists()
    assert isinstance(leasing.make_home(replace(spec, deadline=60), {}), Ready)
    hosts.ready("deactivate", host, replace(lease, facts=account.facts))


def test_a_folder_with_things_of_others_stays_but_is_nobodys(hosts: Hosts, lease: LeaseView) -> None:
    peers.needs_root()
    shared = Path(f"/tmp/dd-shared-{os.getpid()}")
    with peers.removed(shared):
        command(lease).check(f"mkdir -m 777 {shared}")
        (shared / "of-root").write_text("kept")
        end(hosts, lease)
        assert (shared / "of-root").read_text() == "kept"
        assert shared.stat().st_uid == 0


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
