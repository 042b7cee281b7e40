"""The leftover suite finds what survives, row by row, and kinds of hosts leave nothing of what can be planted there."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from blueprints.accounts import access
from blueprints.answers import Json, Ready
from blueprints.contract import Plan, Step
from blueprints.leftovers import NAMES, ROWS, Party, Suite, Verdict
from blueprints.local import claims, folders, leasing
from blueprints.local.kind import LocalHost
from blueprints.specs import LeaseView, ResourceView, Spec
from blueprints.sshhost.kind import SshHost
from blueprints.testing.leftovers import Leftovers, described
from interfaces.command.shell import ShellCommand
from interfaces.endpoints import LocalEndpoint
from interfaces.transports import transport_to
from tests.blueprints import host_peers as peers
from tests.blueprints.host_peers import AS_ROOT, WORKER
from tests.blueprints.leftover_peers import ALWAYS, HERE, OF_NEIGHBOURS

# Waiting for others who use the accounts of this machine does not count.
pytestmark = pytest.mark.timeout(240, func_only=True)
UID = peers.FIRST_UID + 20_000
HARMLESS = {"setuid-elsewhere", "setuid-descriptor", "thread-with-the-uid"}
"""Rows to which a host may be immune from the beginning, as one is on which setuid programs have no effect."""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for homes that accounts may pass through."""
    made = Path(tempfile.mkdtemp(prefix="drydock-left-", dir="/tmp"))
    made.chmod(0o711)
    monkeypatch.setattr(claims, "FOLDER", made / "uids")
    with peers.removed(made):
        yield made


def party(folder: Path, uid: int, name: str) -> Party:
    """A lease of an account that nobody cleans."""
    home = folder / name
    home.mkdir(mode=0o700)
    os.chown(home, uid, uid)
    endpoint = LocalEndpoint(uid=uid, gid=uid, home=str(home), environment=(("DRYDOCK_LEASE", name),))
    return Party.of(ShellCommand(transport_to(endpoint), still_mine=lambda: None), name)


def test_the_table_is_whole() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for row in ROWS:
        assert row.plant, row.name
        assert row.look, row.name
        assert row.undo, row.name
        assert row.proves.endswith("."), row.name


@pytest.mark.slow
def test_where_nothing_is_cleaned_every_row_is_seen_and_is_removed_then(folder: Path) -> None:
    peers.needs_root()
    suite, outside = Suite(), HERE
    lease, beside, after = (party(folder, UID + n, name) for n, name in enumerate(("lease", "beside", "after")))
    with _ended(UID, UID + 1, UID + 2):
        planted = suite.plant(lease, own_account=True, beside=beside)
        assert not (ALWAYS | OF_NEIGHBOURS - HARMLESS) & set(planted.refused), planted.refused
        report = suite.look(planted, after, beside=beside, outside=outside)
        survived = {name for name in NAMES if name not in planted.refused} - HARMLESS
        assert survived <= set(report.survived), described(report)
        assert not report.ok
        assert not report.names(Verdict.SHARED)
        # The home of the lease is still there, and nothing else is.
        shutil.rmtree(folder / "lease")
        again = suite.look(planted, after, beside=beside, outside=outside)
        assert again.ok, described(again)


def test_one_row_or_run_is_never_taken_for_another(folder: Path) -> None:
    peers.needs_root()
    lease, after = party(folder, UID + 10, "lease"), party(folder, UID + 11, "after")
    few = [row for row in ROWS if row.name in ("background", "tmp", "tcp-port")]
    suite, one = Suite(few), Suite(few[:1])
    one.token = suite.token
    with _ended(UID + 10):
        planted, others = one.plant(lease, own_account=True), Suite(few).plant(lease, own_account=True)
        assert not Suite(few).look(others, after).survived
        report = suite.look(replace(planted, notes={**others.notes, **planted.notes}), after)
        assert report.survived == (few[0].name,), described(report)


def test_what_cannot_be_planted_is_said_and_never_passes(folder: Path) -> None:
    peers.needs_root()
    rows = [
        replace(ROWS[0], name="no-tool", tools=("there-is-no-such-tool",)),
        replace(ROWS[0], name="refused", plant='impossible "the kernel refuses"'),
        replace(ROWS[0], name="no-effect", plant=":"),
        replace(ROWS[0], name="unseen", look='[ "$was" = "$(cd && pwd -P)" ] || impossible "it is too dark"'),
    ]
    suite = Suite(rows)
    lease, after = party(folder, UID + 20, "lease"), party(folder, UID + 21, "after")
    with _ended(UID + 20):
        report = suite.look(suite.plant(lease, own_account=True), after)
    assert {one.verdict for one in report.findings} == {Verdict.NOT_POSSIBLE}
    assert not report.ok
    reasons = ("no there-is-no-such-tool", "the kernel refuses", "had no effect", "too dark")
    for one, reason in zip(report.findings, reasons, strict=True):
        assert reason in one.message


def test_a_lease_on_another_machine_proves_nothing(folder: Path) -> None:
    peers.needs_root()
    suite = Suite(ROWS[:1])
    lease, after = party(folder, UID + 30, "lease"), party(folder, UID + 31, "after")
    with _ended(UID + 30):
        planted = suite.plant(lease, own_account=True)
        report = suite.look(replace(planted, boot="another"), after)
        assert "another machine" in report.unanswered
        assert not report.ok
        assert suite.look(planted, after, outside=HERE).survived == (ROWS[0].name,)


class OnThisMachine(Leftovers):
    """This machine, with the rights of whoever runs the test."""

    kind: ClassVar[LocalHost] = LocalHost()
    on_host = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def config(self) -> Json:
        return {"folder": str(self.folder / "hosts"), "slots": 4, "first_uid": UID + 100, "uids": 50}

    def neighbour(self, resource: ResourceView) -> LeaseView | None:
        return self.activated(self._named(resource, "beside")) if os.geteuid() == 0 else None

    def outside_looks(self) -> Any:
        return HERE if os.geteuid() == 0 else None


class Careless(LocalHost):
    """Ends a lease without ending anything that it began."""

    def deactivate(self) -> Plan:
        def give_back(spec: Spec, memo: Json) -> Ready:
            assert spec.lease is not None
            claims.give_back(folders.home_of(spec.lease))
            return Ready()

        return (Step(name="account", act=give_back),)


@pytest.mark.slow
def test_a_kind_that_cleans_nothing_is_found_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peers.needs_root()
    bench = OnThisMachine(folder)
    with monkeypatch.context() as broken, _ended(*range(UID + 100, UID + 110)):
        broken.setattr(leasing, "ended", lambda *_: True)
        broken.setattr(leasing, "swept", lambda *_: True)
        broken.setattr(OnThisMachine, "kind", Careless())
        broken.setattr(OnThisMachine, "destroyed", lambda self, resource: None)
        # The next lease may have the same uid, and would be held by it: a way to be found out that takes minutes.
        planted, report = bench.outlived(bench.built(), [row for row in ROWS if row.name != "tracer"])
        assert ALWAYS - {"tracer"} <= set(report.survived), described(report)
        assert not ALWAYS & set(planted.refused)


def test_nothing_outlives_a_lease_on_this_machine(folder: Path) -> None:
    peers.needs_root()
    bench = OnThisMachine(folder)
    report = bench.outlived(bench.built())[1]
    assert report.ok, described(report)
    assert {*report.names(Verdict.OK)} >= ALWAYS | OF_NEIGHBOURS - HARMLESS, described(report)
    assert not report.names(Verdict.SHARED)


class OverSsh(Leftovers):
    """A registered host."""

    kind: ClassVar[SshHost] = SshHost()
    on_host = True

    def __init__(self, server: peers.Server) -> None:
        self.server = server

    def config(self) -> Json:
        return {"credential": "control", "min_free_mib": 1}

    def credentials(self) -> dict[str, dict[str, str]]:
        return {"control": {"private_key": self.server.control.private}}

    def registration(self) -> Json:
        return self.server.registration()

    def own_account(self, lease: LeaseView) -> bool:
        return True

    def neighbour(self, resource: ResourceView) -> LeaseView | None:
        return self.activated(self._named(resource, "beside"))

    def outside_looks(self) -> Any:
        return HERE


@pytest.fixture
def server() -> Iterator[peers.Server]:
    """An SSH server of this machine, with its accounts looked at by nobody else meanwhile."""
    peers.needs_root()
    with peers.alone(), peers.server(f"127.9.1.{WORKER + 126}") as running:
        yield running


@pytest.mark.slow
def test_nothing_outlives_a_lease_over_ssh(server: peers.Server) -> None:
    bench = OverSsh(server)
    host = bench.built()
    report = bench.outlived(host)[1]
    assert not peers.accounts(access.prefix(host))
    assert report.ok, described(report)
    assert {*report.names(Verdict.OK)} >= ALWAYS | OF_NEIGHBOURS, described(report)
    assert not report.names(Verdict.SHARED)


def test_as_an_ordinary_user_what_is_not_the_accounts_own_ends(folder: Path) -> None:
    """What outlives a lease there is exactly what is documented: things of the account, which is Drydock's own too."""
    uid = UID + 60 if AS_ROOT else os.geteuid()
    if AS_ROOT:
        os.chown(folder, uid, uid)
    with _ended(*([uid] if AS_ROOT else [])):
        report = _as_user(uid, lambda: OnThisMachine(folder).outlived(OnThisMachine(folder).built())[1].to_json())
        verdicts = {one["row"]: one["verdict"] for one in report["rows"]}
        seen = json.dumps(report, indent=1)
        assert not report["survived"], seen
        assert report["ok"], seen
        shared = {row.name for row in ROWS if row.shared}
        own = {row.name for row in ROWS if row.own_account}
        assert {name for name, one in verdicts.items() if one == "shared"} <= shared, seen
        assert {name for name, one in verdicts.items() if one == "ok"} >= ALWAYS - shared - own, seen
        assert all(verdicts[name] == "not possible" for name in own), seen
        documented = Path(__file__).parents[2].joinpath("docs/how-to/validate-a-host.md").read_text()
        assert all(f"`{name}`" in documented for name in shared | own)


def _as_user(uid: int, work: Callable[[], Any]) -> Any:
    """What the work gives in a process of its own with the rights of an account."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            said = json.dumps(work())
        except BaseException:
            said = json.dumps({"raised": traceback.format_exc()})
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        found = json.loads(answer.read())
    os.waitpid(child, 0)
    assert "raised" not in found, found["raised"]
    return found


class _ended:
    """Whatever happens, no process, file or queue of these accounts is left."""

    def __init__(self, *uids: int) -> None:
        self._uids = uids

    def __enter__(self) -> None:
        assert not any(_named(uid) for uid in self._uids)

    def __exit__(self, *_: object) -> None:
        for uid in self._uids:
            for one in peers.alive(uid):
                one.send_signal(signal.SIGKILL)
            for path in peers.files_of(uid):
                subprocess.run(["rm", "-rf", "--", str(path)], check=False)
        peers.eventually(lambda: not any(peers.alive(uid) for uid in self._uids))


def _named(uid: int) -> bool:
    try:
        return bool(pwd.getpwuid(uid))
    except KeyError:
        return False
