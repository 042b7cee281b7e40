"""The driver `command` with real programs in a folder of the installation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from blueprints.bmc import command
from blueprints.bmc.errors import BmcError
from blueprints.consoles import registry
from blueprints.consoles.command import CommandConsole
from blueprints.consoles.registry import driver
from drydock.core.errors import NotFound
from drydock.core.plugins import PluginProblem, Plugins
from interfaces.console import Line
from interfaces.deadline import Deadline
from interfaces.errors import ConsoleBusy, ConsoleClosed
from tests.consoles.lines import exchanged

SECRET = "hunter2-hunter2"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Line]:
    """Install a program, and open a line by it."""
    place = tmp_path / "commands"
    place.mkdir()
    monkeypatch.setenv(command.FOLDER, str(place))

    def install(text: str, *, take: bool = False, mode: int = 0o755) -> Line:
        (place / "line").write_text(f"#!/bin/sh\n{text}\n")
        (place / "line").chmod(mode)
        access = command.Access(program="line", address="tty/7")
        credential = {"password": SECRET, "username": ""}
        return driver("command").connect(access, credential, deadline=Deadline(10), take=take)

    return install


def test_a_program_gets_its_credential_first_and_then_every_byte(program: Callable[..., Line]) -> None:
    line = program('read -r first; echo "$*: $first"; exec cat')
    try:
        head = exchanged(line, expect=b"\n")
        assert head == f'console tty/7: {{"password": "{SECRET}"}}\n'.encode()
        content = bytes(range(256)) * 400
        assert exchanged(line, content, expect=len(content)) == content
    finally:
        line.close()


def test_taking_the_console_over_is_an_argument(program: Callable[..., Line]) -> None:
    line = program('echo "$*"; exec cat > /dev/null', take=True)
    try:
        assert exchanged(line, expect=b"\n") == b"console tty/7 take\n"
    finally:
        line.close()


def test_a_program_in_use_or_broken_says_so_without_its_secret(program: Callable[..., Line]) -> None:
    for code, error, said in ((75, ConsoleBusy, "somebody else"), (3, ConsoleClosed, "exit code 3: bad [*]{3}")):
        line = program(f'read -r first; echo "bad {SECRET}" >&2; exit {code}')
        try:
            with pytest.raises(error, match=said) as failed:
                exchanged(line, expect=b"never")
            assert SECRET not in str(failed.value)
        finally:
            line.close()


def test_a_program_that_ignores_its_end_is_killed_with_its_children(program: Callable[..., Line]) -> None:
    line = program("trap '' HUP TERM; sleep 600 & echo $$ $!; wait; sleep 600")
    pids = [int(one) for one in exchanged(line, expect=b"\n").split()]
    below = [psutil.Process(pid) for pid in pids]
    line.close()
    assert not psutil.wait_procs(below, timeout=20)[1]


def test_a_program_that_reads_nothing_takes_nothing_more_after_a_while(program: Callable[..., Line]) -> None:
    line = program("exec sleep 600")
    try:
        taken = sum(line.write(b"x" * 65_536) for _ in range(100))
        assert 0 < taken <= 1 << 20
        assert line.write(b"x") == 0
    finally:
        line.close()


def test_a_driver_of_another_package_is_found_and_a_broken_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = PluginProblem(group=registry.GROUP, name="broken", source="other 1.0", message="ImportError: no module")
    there = Plugins(group=registry.GROUP, objects={"mine": CommandConsole}, sources={"mine": "x"}, problems=(broken,))
    monkeypatch.setattr(registry, "installed", lambda: there)
    assert isinstance(driver("mine"), CommandConsole)
    with pytest.raises(NotFound, match=r"'broken': ImportError.*Installed are: command, mine, ssh"):
        driver("broken")


def test_only_programs_that_nobody_else_can_change_are_run(program: Callable[..., Line]) -> None:
    with pytest.raises(BmcError, match="Others can change"):
        program("exec cat", mode=0o777)
    with pytest.raises(NotFound, match="no console driver 'nothing'"):
        driver("nothing")
