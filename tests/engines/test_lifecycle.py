"""Engines start with their first user and stop with their last, however users, keeper and engines end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading

import psutil
import pytest

from drydock.engines import BROKER, POSTGRESQL, EngineError, client, ensure, leave, wait_until_stopped
from tests.engines.users import end, eventually, keeper, postmaster, query, running, user, wait_ready


def ping(config) -> bytes:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(config.layout.broker_socket))
        probe.sendall(b"PING\r\n")
        return probe.recv(16)


def test_the_first_start_makes_a_database_and_a_broker(config):
    ensure(config, POSTGRESQL)
    ensure(config, BROKER)
    assert query(config, "SHOW server_version_num") >= "150000"
    assert query(config, "SHOW listen_addresses") == ""
    assert query(config, "SHOW server_encoding") == "UTF8"
    assert ping(config) == b"+PONG\r\n"
    assert _inet_sockets(config) == []


def _inet_sockets(config) -> list[object]:
    found: list[object] = []
    for process in running(config):
        try:
            found += process.net_connections("inet")
        except psutil.NoSuchProcess:  # backends come and go while we look
            continue
        except psutil.AccessDenied:  # only root may look at a process of ours that is about to end
            process.wait(10)
    return found


def test_a_second_process_shares_and_the_last_one_stops_them(config):
    first = user(config)
    wait_ready(first)
    second = user(config)
    wait_ready(second)
    server = postmaster(config)
    end(first)
    assert query(config, "SELECT 1") == "1"
    assert postmaster(config) == server
    end(second)
    assert wait_until_stopped(config)
    assert not server.is_running()


def test_the_last_user_may_be_killed(config):
    only = user(config, f"{POSTGRESQL},{BROKER}")
    wait_ready(only)
    only.kill()
    only.communicate()
    assert wait_until_stopped(config)
    assert running(config) == []


@pytest.mark.slow
def test_four_processes_at_once_start_one_engine(config):
    users = [user(config, f"{POSTGRESQL},{BROKER}") for _ in range(4)]
    for each in users:
        wait_ready(each)
    masters = [p for p in running(config) if p.parent() == keeper(config)]
    assert len(masters) == 2
    for each in users:
        end(each)


def test_a_killed_server_is_started_again_with_its_data(config):
    ensure(config, POSTGRESQL)
    query(config, "CREATE TABLE kept (n int)")
    query(config, "INSERT INTO kept VALUES (42)")
    postmaster(config).kill()
    eventually(lambda: _answer(config) == "42")


def test_a_killed_keeper_takes_the_engines_along_and_the_next_use_finds_the_data(config):
    ensure(config, POSTGRESQL)
    ensure(config, BROKER)
    query(config, "CREATE TABLE kept AS SELECT 42 AS n")
    keeper(config).kill()
    eventually(lambda: not running(config))
    ensure(config, POSTGRESQL)
    assert _answer(config) == "42"


@pytest.mark.slow
def test_everything_killed_at_once_as_in_a_power_cut(config):
    only = user(config)
    wait_ready(only)
    query(config, "CREATE TABLE kept AS SELECT 42 AS n")
    for process in [keeper(config), *running(config)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    only.kill()
    only.communicate()
    ensure(config, POSTGRESQL)
    assert _answer(config) == "42"


@pytest.mark.slow
def test_marks_left_by_a_reboot_that_name_a_living_stranger(config):
    ensure(config, POSTGRESQL)
    query(config, "CREATE TABLE kept AS SELECT 42 AS n")
    leave(config.state)
    assert wait_until_stopped(config)
    lines = [str(os.getppid()), str(config.layout.data(POSTGRESQL)), "1", "5432", str(config.layout.sockets), "", ""]
    (config.layout.data(POSTGRESQL) / "postmaster.pid").write_text("\n".join(lines))
    (config.layout.sockets / ".s.PGSQL.5432").touch()
    (config.layout.sockets / ".s.PGSQL.5432.lock").write_text("\n".join(lines))
    config.layout.broker_socket.touch()
    config.layout.keeper_socket.touch()
    ensure(config, POSTGRESQL)
    ensure(config, BROKER)
    assert _answer(config) == "42"
    assert ping(config) == b"+PONG\r\n"


def test_a_crash_while_the_database_is_made_leaves_no_half_of_it(config):
    half = config.layout.data("postgresql.new")
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18")
    ensure(config, POSTGRESQL)
    assert query(config, "SELECT 1") == "1"


def test_a_child_that_is_forked_while_a_thread_asks_can_ask_itself(config):
    ensure(config, BROKER)
    held, done = threading.Event(), threading.Event()

    def ask() -> None:
        with client._guard:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=ask)
    thread.start()
    assert held.wait(60)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        ensure(config, BROKER)
        os._exit(0)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        done.set()
        thread.join()


def test_a_forked_child_keeps_the_engines(config):
    ensure(config, POSTGRESQL)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    leave(config.state)
    assert not wait_until_stopped(config, 1.0)
    assert query(config, "SELECT 1") == "1"
    os.close(reader)
    os.close(writer)
    os.waitpid(child, 0)
    assert wait_until_stopped(config)


@pytest.mark.slow
def test_asked_to_end_the_keeper_stops_the_engines(config):
    ensure(config, POSTGRESQL)
    keeper(config).send_signal(signal.SIGTERM)
    assert wait_until_stopped(config)
    assert running(config) == []


def test_a_database_of_another_version_is_named(config):
    ensure(config, POSTGRESQL)
    leave(config.state)
    assert wait_until_stopped(config)
    (config.layout.data(POSTGRESQL) / "PG_VERSION").write_text("17\n")
    with pytest.raises(EngineError, match="created by PostgreSQL 17"):
        ensure(config, POSTGRESQL)
    leave(config.state)


def test_a_server_that_cannot_start_shows_the_end_of_its_log(config):
    ensure(config, POSTGRESQL)
    leave(config.state)
    assert wait_until_stopped(config)
    (config.layout.data(POSTGRESQL) / "postgresql.auto.conf").write_text("no_such_setting = 1\n")
    with pytest.raises(EngineError, match="no_such_setting"):
        ensure(config, POSTGRESQL)


def test_no_process_of_an_engine_outlives_the_test(config):
    ensure(config, BROKER)
    names = {process.name() for process in psutil.Process().children(recursive=True)}
    assert "valkey-server" in names


def _answer(config) -> str:
    try:
        return query(config, "SELECT n FROM kept")
    except Exception:
        return ""


def test_a_keeper_whose_starter_was_killed_says_nothing(config):
    reader, writer = os.pipe()
    os.close(reader)
    impatient = "from drydock.engines import keeper; keeper.PATIENCE_FOR_THE_FIRST = 0.5; keeper.main()"
    command = [sys.executable, "-c", impatient, config.to_json()]
    started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    said = started.communicate(timeout=60)[1]
    assert (started.returncode, said) == (0, "")
