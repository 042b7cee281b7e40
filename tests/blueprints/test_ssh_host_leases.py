"""What leases on registered hosts may do, what they try, and what is left of it afterwards: nothing."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from blueprints import hostshell
from blueprints.accounts import access, actions
from blueprints.answers import Failed, Json, Ready, Scope
from blueprints.specs import LeaseView, ResourceView
from blueprints.sshhost.kind import SshHost
from blueprints.testing.outcome import Outcome
from blueprints.testing.phases import Phases
from drydock.core.errors import InvalidRequest
from interfaces.command.contract import Command
from interfaces.command.jobs import JobSpec
from interfaces.errors import AuthenticationRefused, InterfaceError, PathEscape, Unreachable
from interfaces.filesystem.contract import Filesystem
from interfaces.keys import KeyPair, new_key_pair
from interfaces.ssh.pool import POOL
from interfaces.transports import transport_to
from tests.blueprints import host_peers as peers
from tests.blueprints import survivors
from tests.blueprints.host_peers import WORKER, Server
from tests.peers import require

# Waiting for others who use the accounts of this machine does not count.
pytestmark = pytest.mark.timeout(120, func_only=True)


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with peers.alone():
        yield


MINE = new_key_pair("owner")


class Hosts(Phases):
    """The bench."""

    kind: ClassVar[SshHost] = SshHost()

    def __init__(self, server: Server, *, user: str = "", **more: Any) -> None:
        self.server, self.user, self.more = server, user or getpass.getuser(), more
        self.said: Json = {}
        self.keys: dict[str, dict[str, str]] = {"control": {"private_key": server.control.private}}

    def config(self) -> Json:
        return {"credential": "control", "min_free_mib": 1, **self.more}

    def credentials(self) -> dict[str, dict[str, str]]:
        return self.keys

    def registration(self) -> Json:
        return self.server.registration(self.user) | self.said

    def named(self, host: ResourceView, name: str) -> LeaseView:
        """A lease with a key of its own."""
        lease = self.lease(host)
        return replace(lease, key=f"{lease.key}-{name}", public_keys=(MINE.public, "no key at all"))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with peers.server(f"127.9.1.{WORKER + 101}") as running:
        yield running


@pytest.fixture
def hosts(server: Server) -> Iterator[Hosts]:
    peers.needs_root()
    before = peers.accounts()
    yield Hosts(server)
    assert peers.accounts() == before


@pytest.fixture
def host(hosts: Hosts) -> Iterator[ResourceView]:
    built = hosts.built()
    yield built
    hosts.destroyed(built)


@pytest.fixture
def lease(hosts: Hosts, host: ResourceView) -> LeaseView:
    return hosts.activated(hosts.named(host, "one"))


def end(hosts: Hosts, lease: LeaseView) -> None:
    """Release, and see that nothing of it is left."""
    hosts.ready("deactivate", lease.resource, lease)
    assert not peers.accounts(lease.facts["user"])
    assert not Path(lease.facts["home"]).exists()
    assert not peers.marked(f"DRYDOCK_LEASE={lease.key}")
    assert not peers.alive(lease.facts["uid"])
    assert not peers.files_of(lease.facts["uid"])


def command(lease: LeaseView) -> Command:
    found = lease.interface("command")
    assert isinstance(found, Command)
    return found


def failed(outcome: Outcome) -> Failed:
    """How a plan failed, with its secrets not in it."""
    assert outcome.ended == "failed"
    assert isinstance(outcome.answer, Failed)
    return outcome.answer


def test_a_host_says_what_it_is(host: ResourceView) -> None:
    assert host.facts["arch"] in ("x86_64", "arm64")
    assert host.facts["os"] == "linux"
    assert host.facts["disk_free_mib"] > 0
    assert host.facts["host_keys"]


def test_a_lease_has_an_account_and_a_key_of_its_own(hosts: Hosts, lease: LeaseView) -> None:
    said = command(lease).check('echo "$(id -un) $HOME $PWD $DRYDOCK_LEASE"').text.split()
    home = lease.facts["home"]
    assert said == [lease.facts["user"], home, home, lease.key]
    assert lease.key not in Path("/etc/passwd").read_text(), "everybody on the host can read it"
    assert Path(home).stat().st_mode & 0o777 == 0o700
    assert lease.facts["connect"] == f"ssh -p {hosts.server.port} {said[0]}@{hosts.server.address}"
    assert lease.secrets["private_key"] != hosts.server.control.private
    shadow = subprocess.run(["getent", "shadow", said[0]], capture_output=True, text=True).stdout
    assert shadow.split(":")[1] == "*", "no password opens it"
    end(hosts, lease)


def test_the_owners_own_key_opens_it_until_the_end(hosts: Hosts, lease: LeaseView) -> None:
    assert _login(lease, MINE).check("id -un").text.strip() == lease.facts["user"]
    with pytest.raises(AuthenticationRefused):
        _login(lease, new_key_pair()).run("true")
    end(hosts, lease)
    with pytest.raises(AuthenticationRefused):
        _login(lease, MINE).run("true")


def test_when_access_is_closed_nothing_new_begins(hosts: Hosts, lease: LeaseView) -> None:
    step = next(one for one in hosts.plan("deactivate") if one.name == "access")
    step.act(hosts.spec("deactivate", lease.resource, lease), {})
    for pair in (MINE, KeyPair(private=lease.secrets["private_key"], public="")):
        with pytest.raises(AuthenticationRefused):
            _login(lease, pair).run("true")
    end(hosts, lease)


def test_a_connection_that_is_open_ends_with_the_lease(hosts: Hosts, lease: LeaseView) -> None:
    stranger = _login(lease, MINE)
    stranger.check("true")
    end(hosts, lease)
    with pytest.raises(InterfaceError):
        stranger.check("true")


def test_two_leases_have_no_way_to_each_other(hosts: Hosts, host: ResourceView) -> None:
    one, two = (hosts.activated(hosts.named(host, name)) for name in ("one", "two"))
    command(one).check("echo mine >secret")
    assert not command(two).run(["cat", f"{one.facts['home']}/secret"]).ok
    end(hosts, one)
    assert command(two).check("echo alive").text == "alive\n"
    end(hosts, two)


@pytest.mark.parametrize("clean", [False, True])
def test_a_daemon_ends_with_the_lease(hosts: Hosts, lease: LeaseView, clean: bool) -> None:
    command(lease).check(peers.daemon(clean=clean))
    peers.eventually(lambda: peers.named("sleep", lease.facts["uid"]))
    end(hosts, lease)


def test_a_job_ends_with_the_lease(hosts: Hosts, lease: LeaseView) -> None:
    command(lease).jobs.start(JobSpec(id="long", words="trap '' TERM; sleep 600; sleep 600"))
    end(hosts, lease)


def test_a_fork_bomb_ends_with_the_lease(hosts: Hosts, lease: LeaseView) -> None:
    command(lease).check(peers.BOMB)
    counted = Path(lease.facts["home"], "generations")
    peers.eventually(lambda: counted.exists() and counted.stat().st_size > 90)
    end(hosts, lease)


def test_links_planted_in_the_home_lead_nowhere(hosts: Hosts, lease: LeaseView, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    command(lease).check(f"ln -s {tmp_path} out; ln -s /etc etc; mkdir d; ln -s / d/root")
    files = lease.interface("filesystem")
    assert isinstance(files, Filesystem)
    with pytest.raises(PathEscape):
        files.read_bytes("etc/passwd")
    end(hosts, lease)
    assert (tmp_path / "precious").read_text() == "kept"
    assert Path("/etc/passwd").exists()


def test_keys_are_not_written_where_a_planted_link_leads(hosts: Hosts, lease: LeaseView, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    command(lease).check(f"rm -rf .ssh && ln -s {tmp_path} .ssh")
    outcome = hosts.run("activate", lease.resource, lease)
    assert failed(outcome).scope is Scope.STEP
    assert not list(tmp_path.iterdir())
    end(hosts, lease)


@pytest.mark.slow
def test_closed_deep_and_immutable_folders_are_removed(hosts: Hosts, lease: LeaseView) -> None:
    command(lease).check("mkdir -p a/b; echo x >a/b/c; chmod 000 a/b; chmod 000 a")
    command(lease).check("n=0; while [ $n -lt 1500 ]; do mkdir d && cd d; n=$((n + 1)); done")
    if shutil.which("chattr"):
        subprocess.run(["chattr", "+i", f"{lease.facts['home']}/a/b/c"], check=False, capture_output=True)
    end(hosts, lease)


def test_what_it_left_in_common_places_is_removed(hosts: Hosts, lease: LeaseView) -> None:
    for place in peers.PLACES:
        command(lease).check(
            f"cd {place} && echo x >dd-$$ && mkdir -m 700 dd-$$.d && ln -s /etc dd-$$.d/e && chmod 0 dd-$$.d"
        )
    assert len(peers.files_of(lease.facts["uid"])) == 6
    end(hosts, lease)


def test_timed_work_ends_with_the_lease(hosts: Hosts, lease: LeaseView) -> None:
    require("cron")
    command(lease).check("echo '* * * * * touch /tmp/never' | crontab -")
    end(hosts, lease)
    assert not list(Path("/var/spool/cron").rglob(lease.facts["user"]))


def test_a_process_whose_first_thread_has_exited_ends_with_the_lease(hosts: Hosts, lease: LeaseView) -> None:
    sign = Path(lease.facts["home"], "sign")
    command(lease).check(survivors.words(survivors.EXITED_LEADER, str(sign)))
    peers.eventually(sign.exists)
    peers.eventually(lambda: peers.alive(lease.facts["uid"]))
    end(hosts, lease)


def test_keys_and_queues_of_the_kernel_end_with_the_lease(hosts: Hosts, lease: LeaseView) -> None:
    queue = f"/dd-left-{os.getpid()}"
    if not all(command(lease).run(words).ok for words in (
        survivors.words(survivors.KEYS), survivors.words(survivors.QUEUE, queue, "make"),
    )):  # fmt: skip
        pytest.skip("the kernel gives no keys or queues here")
    assert _has_keys(lease.facts["uid"])
    end(hosts, lease)
    assert not _has_keys(lease.facts["uid"])
    assert subprocess.run(survivors.words(survivors.QUEUE, queue), check=False, capture_output=True).returncode


def _has_keys(uid: int) -> bool:
    return f" {uid}:" in Path("/proc/key-users").read_text()


def test_a_uid_is_not_given_to_the_next_lease(hosts: Hosts, host: ResourceView) -> None:
    used = []
    for name in ("one", "two"):
        held = hosts.activated(hosts.named(host, name))
        used.append(held.facts["uid"])
        end(hosts, held)
    assert len(set(used)) == len(used)


def test_a_uid_that_something_has_kept_is_passed_over(hosts: Hosts, host: ResourceView) -> None:
    before = hosts.activated(hosts.named(host, "one"))
    end(hosts, before)
    likely = range(before.facts["uid"] + 1, before.facts["uid"] + 4)
    kept = [
        subprocess.Popen(["sleep", "600"], user=uid)
        for uid in likely if uid not in {entry.pw_uid for entry in pwd.getpwall()}
    ]  # fmt: skip
    try:
        after = hosts.activated(hosts.named(host, "two"))
        assert after.facts["uid"] not in likely
        end(hosts, after)
    finally:
        for one in kept:
            one.kill()
            one.wait()


def test_handing_back_removes_what_is_ours_and_nothing_else(hosts: Hosts) -> None:
    built, other = hosts.built(), hosts.built()
    mine, others = (hosts.activated(hosts.named(host, "one")) for host in (built, other))
    command(mine).check(peers.daemon(clean=True))
    hosts.destroyed(built)
    assert not peers.accounts(mine.facts["user"])
    assert not peers.alive(mine.facts["uid"])
    assert command(others).check("echo alive").text == "alive\n"
    hosts.destroyed(other)


def test_a_host_with_another_key_is_never_spoken_to(hosts: Hosts) -> None:
    hosts.said = {"host_keys": [new_key_pair().public]}
    answer = failed(hosts.run("build", hosts.resource()))
    assert (answer.scope, answer.code) == (Scope.OPERATOR, "host_key_mismatch")
    hosts.destroyed(hosts.resource())


@pytest.mark.parametrize("keys", [{}, {"control": {}}, {"control": {"private_key": "no key"}}])
def test_a_credential_that_cannot_be_used_is_named(hosts: Hosts, keys: dict[str, dict[str, str]]) -> None:
    hosts.keys = keys
    answer = failed(hosts.run("build", hosts.resource()))
    assert answer.scope is Scope.OPERATOR
    assert "key" in answer.message or "control" in answer.message


def test_a_key_that_the_host_refuses_is_the_operators(hosts: Hosts) -> None:
    hosts.keys = {"control": {"private_key": new_key_pair().private}}
    answer = failed(hosts.run("build", hosts.resource()))
    assert (answer.scope, answer.code) == (Scope.OPERATOR, "authentication_refused")


def test_another_host_than_was_registered_is_refused(hosts: Hosts) -> None:
    hosts.said = {"attributes": {"arch": "s390x"}}
    answer = failed(hosts.run("build", hosts.resource()))
    assert answer.scope is Scope.OPERATOR
    assert "registered as s390x" in answer.message


def test_a_host_that_is_down_is_tried_again_and_is_not_taken_for_clean() -> None:
    peers.needs_root()
    with peers.server(f"127.9.1.{WORKER + 201}") as server:
        hosts = Hosts(server)
        host = hosts.built()
        lease = hosts.activated(hosts.named(host, "one"))
        server.stop()
        POOL.close_idle(0)
        for phase in ("check", "deactivate", "destroy", "build"):
            assert failed(hosts.run(phase, host, lease)).scope is Scope.STEP
        with pytest.raises(Unreachable):
            command(lease).check("true")
        server.again()
        end(hosts, lease)
        hosts.destroyed(host)


def test_an_account_without_sudo_cannot_make_accounts(hosts: Hosts) -> None:
    with peers.account() as name:
        hosts.user = name
        answer = failed(hosts.run("build", hosts.resource()))
    assert answer.scope is Scope.OPERATOR
    assert "root" in answer.message


def test_by_a_bastion(hosts: Hosts) -> None:
    with peers.server(f"127.9.1.{WORKER + 151}") as bastion:
        way = {name: value for name, value in bastion.registration().items() if name != "attributes"}
        hosts.more = {"bastion": way, "bastion_credential": "door"}
        hosts.keys |= {"door": {"private_key": bastion.control.private}}
        host = hosts.built()
        lease = hosts.activated(hosts.named(host, "one"))
        assert f"-J {getpass.getuser()}@{bastion.address}:{bastion.port}" in lease.facts["connect"]
        assert command(lease).check("echo $SSH_CONNECTION").text
        end(hosts, lease)
        hosts.destroyed(host)


def test_a_lease_with_sudo_is_root_until_its_end(hosts: Hosts) -> None:
    require("sudo")
    hosts.more = {"lease_sudo": True}
    host = hosts.built()
    lease = hosts.activated(hosts.named(host, "one"))
    assert command(lease).check("sudo -n id -u").text.strip() == "0"
    rule = Path("/etc/sudoers.d", lease.facts["user"])
    assert rule.exists()
    command(lease).check("sudo -n chown -R 0:0 . && sudo -n chattr +i . 2>/dev/null; true")
    end(hosts, lease)
    assert not rule.exists()
    hosts.destroyed(host)


def test_a_control_account_with_sudo_is_enough(hosts: Hosts) -> None:
    with peers.account() as name, peers.sudoer(name):
        hosts.user = name
        host = hosts.built()
        lease = hosts.activated(hosts.named(host, "one"))
        assert command(lease).check("id -un").text.strip() == lease.facts["user"] != name
        command(lease).check(f"echo x >/tmp/dd-$$; mkdir -m 0 shut; {peers.daemon(clean=True)}")
        peers.eventually(lambda: peers.alive(lease.facts["uid"]))
        end(hosts, lease)
        hosts.destroyed(host)


def test_a_sudo_that_asks_for_a_password_is_the_operators(hosts: Hosts) -> None:
    with peers.account() as name, peers.sudoer(name, "ALL"):
        hosts.user = name
        answer = failed(hosts.run("build", hosts.resource()))
    assert (answer.scope, answer.code) == (Scope.OPERATOR, "needs_operator")
    assert f"The account {name} cannot become root: sudo: a password is required." in answer.message
    assert "sudo without a password" in answer.message


def test_a_sudo_that_is_taken_away_is_the_operators_and_nothing_is_taken_for_done(hosts: Hosts) -> None:
    with peers.account() as name:
        hosts.user = name
        with peers.sudoer(name):
            host = hosts.built()
            lease = hosts.activated(hosts.named(host, "one"))
        for phase in ("activate", "deactivate", "destroy"):
            answer = failed(hosts.run(phase, host, lease))
            assert answer.scope is Scope.OPERATOR
            assert "cannot become root" in answer.message
        assert command(lease).check("echo still here").text == "still here\n"
        with peers.sudoer(name):
            end(hosts, lease)
            hosts.destroyed(host)


def test_a_shared_account_is_ended_whole_when_it_is_drydocks_alone(hosts: Hosts) -> None:
    with peers.account() as name:
        hosts.user, hosts.more = name, {"accounts": "shared", "end_account": True}
        host = hosts.built()
        lease = hosts.activated(hosts.named(host, "one"))
        assert lease.facts["user"] == name
        assert command(lease).check("pwd").text.strip() == lease.facts["home"]
        command(lease).check(peers.daemon(clean=True))
        _login(lease, MINE).check("cd /; (setsid sleep 600 </dev/null >/dev/null 2>&1 &)")
        hosts.ready("deactivate", host, lease)
        assert peers.named("sleep", lease.facts["uid"]) == []
        assert not Path(lease.facts["home"]).exists()
        with pytest.raises(AuthenticationRefused):
            _login(lease, MINE).run("true")
        hosts.destroyed(host)


@pytest.mark.parametrize(
    ("config", "slots", "isolation", "reusable"),
    [
        ({}, 8, "uid", True),
        ({"lease_sudo": True}, 1, "machine", False),
        ({"lease_sudo": True, "trusted": True}, 8, "none", True),
        ({"accounts": "shared"}, 1, "machine", False),
        ({"accounts": "shared", "trusted": True}, 1, "machine", True),
    ],
)
def test_who_may_share_and_follow(server: Server, config: Json, slots: int, isolation: str, reusable: bool) -> None:
    hosts = Hosts(server, **config)
    draft = hosts.registered()
    assert draft.capacity.slots == slots
    assert draft.attributes["isolation"] == isolation
    assert hosts.kind.reusable_after(hosts.lease(hosts.resource())) is reusable


@pytest.mark.parametrize("config", [{"lease_sudo": True}, {"accounts": "shared"}])
def test_leases_that_must_be_alone_get_one_slot(server: Server, config: Json) -> None:
    hosts = Hosts(server, **config)
    hosts.said = {"slots": 2}
    with pytest.raises(InvalidRequest, match="only one lease at a time"):
        hosts.registered()


@pytest.mark.parametrize(
    "wrong",
    [{"host_keys": []}, {"host_keys": ["SHA256:abc"]}, {"user": "a b"}, {"address": "-oProxyCommand=x"}, {"port": 0}],
)
def test_a_registration_that_cannot_be_is_refused(server: Server, wrong: Json) -> None:
    hosts = Hosts(server)
    hosts.said = wrong
    with pytest.raises(ValueError, match=next(iter(wrong)) + "|user|host|key|port"):
        hosts.registered()


def test_what_a_blueprint_lacks_is_told_without_calling_a_host(server: Server) -> None:
    hosts = Hosts(server, bastion_credential="door", trusted=True, lease_sudo=True)
    problems = hosts.kind.check_blueprint(hosts.blueprint())
    assert [(one.field, one.fatal) for one in problems] == [("bastion_credential", True), ("trusted", False)]


def test_names_outside_are_those_of_one_lease_and_fit_everywhere(server: Server) -> None:
    hosts = Hosts(server)
    one, two = hosts.lease(hosts.resource()), hosts.lease(hosts.resource())
    assert access.user_of(one) == access.user_of(one)
    assert access.prefix(one.resource) != access.prefix(two.resource)
    assert len(access.user_of(one)) <= 31


def _login(lease: LeaseView, pair: KeyPair) -> Command:
    """The lease's account, by another key."""
    from interfaces.command.shell import ShellCommand
    from interfaces.endpoints import endpoint_from_json

    way = transport_to(endpoint_from_json(lease.facts["endpoint"]), private_key=pair.private)
    return ShellCommand(way, still_mine=lambda: None)


def test_many_leases_at_once(hosts: Hosts, host: ResourceView) -> None:
    leases = [hosts.named(host, str(number)) for number in range(5)]
    with ThreadPoolExecutor(5) as pool:
        active = list(pool.map(hosts.activated, leases))
        assert len({lease.facts["uid"] for lease in active}) == 5
        list(pool.map(lambda lease: hosts.ready("deactivate", host, lease), active))
    assert not peers.accounts(access.prefix(host))


def test_a_home_that_others_keep_busy_does_not_take_the_host_from_all(
    hosts: Hosts, host: ResourceView, lease: LeaseView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another lease makes files in a home that was opened to it, faster than root removes them."""
    home, user, uid = Path(lease.facts["home"]), lease.facts["user"], lease.facts["uid"]
    aside = home.parent / ".drydock-aside"
    command(lease).check("chmod 777 .; touch mine")
    with monkeypatch.context() as busy:
        busy.setattr(hostshell, "PATIENCE", 0.0)
        busy.setattr(hostshell, "REMOVE_TREE", "echo 1")
        outcome = hosts.ready("deactivate", host, lease)
        assert not home.exists()
        assert (aside / user / "home" / "mine").exists()
        assert aside.stat().st_mode & 0o777 == 0o700
        assert peers.accounts(user), "its uid must go to nobody else"
        with pytest.raises(AuthenticationRefused):
            command(lease).run("true")
        checked = actions.check_health(hosts.spec("check", host), {})
        assert isinstance(checked, Ready)
        assert checked.facts["aside"] == [str(home)]
    assert outcome.facts["put_aside"] == str(home)
    checked = actions.check_health(hosts.spec("check", host), {})
    assert isinstance(checked, Ready)
    assert checked.facts["aside"] == []
    assert not aside.exists()
    assert not peers.accounts(user)
    assert not peers.files_of(uid)
    again = actions.check_health(hosts.spec("check", host), {})
    assert isinstance(again, Ready)
    assert "aside" not in again.facts


def test_what_was_put_aside_goes_with_the_host(
    hosts: Hosts, host: ResourceView, lease: LeaseView, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(lease.facts["home"])
    with monkeypatch.context() as busy:
        busy.setattr(hostshell, "PATIENCE", 0.0)
        busy.setattr(hostshell, "REMOVE_TREE", "echo 1")
        hosts.ready("deactivate", host, lease)
    assert peers.accounts(lease.facts["user"])
    hosts.destroyed(host)
    assert not peers.accounts(lease.facts["user"])
    assert not (home.parent / ".drydock-aside" / home.name).exists()
