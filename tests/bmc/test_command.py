"""The driver `command` with real programs in a folder of the installation."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from pydantic import ValidationError

from blueprints.bmc import command
from blueprints.bmc.command import CommandDriver, CommandSession
from blueprints.bmc.errors import (
    BmcAnswerInvalid,
    BmcBusy,
    BmcError,
    BmcLacks,
    BmcLoginRefused,
    BmcRefused,
    BmcUnreachable,
)
from blueprints.bmc.values import PowerAction, PowerState
from tests.bmc.conformance import BmcConformance

DRIVER = CommandDriver()
SECRET = "hunter2-hunter2"
STRIP = f"""#!/bin/sh
# One file for each outlet: the power strip of an imaginary vendor.
cd "$(dirname "$0")/outlets" || exit 69
grep -q '"password": "{SECRET}"' || {{ echo "bad password" >&2; exit 77; }}
case $1 in
  power-status) printf '{{"power": "%s", "actions": ["on", "off", "cycle"]}}' "$(cat "$2" 2>/dev/null || echo off)" ;;
  power-on | cycle) echo on > "$2" ;;
  power-off) echo off > "$2" ;;
  inspect) echo '{{"vendor": "Acme", "serial": "SN-1", "nics": [{{"name": "eth0", "mac": "B0:7B:25:C0:FF:EE"}}]}}' ;;
  *) exit 64 ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "commands"
    (place / "outlets").mkdir(parents=True)
    monkeypatch.setenv(command.FOLDER, str(place))
    return place


@pytest.fixture
def program(folder: Path) -> Callable[..., CommandSession]:
    """Install a program, and open a session that uses it."""

    def install(text: str, *, deadline: float = 20.0, address: str = "strip-3/7", head: str = "#!/bin/sh\n"):
        path = folder / "strip"
        path.write_text(head + text)
        path.chmod(0o755)
        access = command.Access(program="strip", address=address)
        return DRIVER.open(access, {"password": SECRET, "username": ""}, deadline=deadline)

    return install


class TestConformance(BmcConformance):
    driver = DRIVER
    session = CommandSession

    @pytest.fixture(autouse=True)
    def _strip(self, folder: Path) -> None:
        for name, text in (("strip", STRIP), ("silent", "#!/bin/sh\nsleep 60\n")):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def access(self):
        return {"program": "strip", "address": "7"}

    def credential(self):
        return {"password": SECRET}

    def wrong_credential(self):
        return {"password": "another secret"}

    def silent_access(self):
        return {"program": "silent", "address": "7"}


def test_the_program_gets_action_and_address_as_words_and_the_credential_on_its_input(program, folder: Path) -> None:
    with program(f'printf "%s\\n" "$0" "$#" "$@" > {folder}/words; cat > {folder}/input; env > {folder}/env') as one:
        one.switch(PowerAction.SHUTDOWN)
    assert (folder / "words").read_text().splitlines() == [str(folder / "strip"), "2", "shutdown", "strip-3/7"]
    assert (folder / "input").read_text() == f'{{"password": "{SECRET}"}}'
    names = {line.split("=")[0] for line in (folder / "env").read_text().splitlines()}
    assert names <= {"PATH", "LANG", "DRYDOCK_BMC_SECONDS", "PWD", "SHLVL", "_", "OLDPWD"}


def test_the_inventory_is_what_the_program_prints(program) -> None:
    with program("", head=STRIP) as one:
        found = one.inspect()
        assert one.power_actions() == {PowerAction.ON, PowerAction.OFF, PowerAction.CYCLE}
    assert (found.vendor, found.serial, found.nics[0].mac) == ("Acme", "SN-1", "b0:7b:25:c0:ff:ee")
    assert [str(each) for each in found.identities] == ["serial:acme SN-1", "mac b0:7b:25:c0:ff:ee"]


def test_a_program_without_an_inventory_is_no_error(program) -> None:
    with program("exit 64") as one:
        assert one.inspect().missing == ("The program strip (inspect strip-3/7) does not offer the action.",)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (1, BmcRefused),
        (64, BmcLacks),
        (69, BmcUnreachable),
        (75, BmcBusy),
        (76, BmcAnswerInvalid),
        (77, BmcLoginRefused),
    ],
)
def test_exit_codes_become_errors_with_what_the_program_said_and_without_secrets(program, code: int, error) -> None:
    text = f"read -r l; echo \"cannot: $l {'x' * 1000}\" >&2; echo '{{}}'; exit {code}"
    with program(text) as one, pytest.raises(error, match="cannot: ") as caught:
        one.switch(PowerAction.ON)
    assert type(caught.value) is error
    assert SECRET not in str(caught.value)
    assert len(str(caught.value)) < 420


def test_a_program_that_is_killed_is_told(program) -> None:
    with program("kill -9 $$") as one, pytest.raises(BmcRefused, match="was ended by signal 9"):
        one.power()


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "off",
        '{"power": "maybe"}',
        '{"power": "on"',
        "[]",
        '{"power": "on", "extra": 1}',
        '{"power": null}',
        r"\377",
    ],
)
def test_an_answer_that_is_none_is_refused(program, printed: str) -> None:
    with program(f"printf '{printed}'") as one, pytest.raises(BmcAnswerInvalid, match="printed no valid answer"):
        one.power()


def test_too_much_output_ends_the_program(program) -> None:
    with program("cat /dev/zero") as one, pytest.raises(BmcAnswerInvalid, match="more than 1 MiB"):
        one.power()
    with program("cat /dev/zero >&2") as one, pytest.raises(BmcAnswerInvalid, match="more than 1 MiB"):
        one.power()


def test_the_deadline_ends_the_program_with_its_children(program, folder: Path) -> None:
    text = f"trap '' TERM; sleep 61 & echo $! > {folder}/child; echo $$ > {folder}/self; wait"
    with program(text, deadline=1.0) as one, pytest.raises(BmcUnreachable, match=r"longer than 1 s, and was ended"):
        one.power()
    for name in ("child", "self"):
        _gone(int((folder / name).read_text()))


def test_children_that_are_left_are_ended_and_do_not_hold_up_the_answer(program, folder: Path) -> None:
    with program(f'sleep 61 & echo $! > {folder}/child; echo \'{{"power": "on"}}\'') as one:
        assert one.power() is PowerState.ON
    _gone(int((folder / "child").read_text()))


def _gone(pid: int) -> None:
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)


def test_a_program_that_does_not_read_its_input_is_no_error(program) -> None:
    with program('exec 0<&-; echo \'{"power": "off"}\'') as one:
        assert one.power() is PowerState.OFF


def test_no_time_left_calls_nothing(program, folder: Path) -> None:
    with program(f"touch {folder}/called", deadline=0.0) as one, pytest.raises(BmcUnreachable, match="not called"):
        one.switch(PowerAction.ON)
    assert not (folder / "called").exists()


def test_a_file_that_is_no_program_says_so(program) -> None:
    with program("not a program", head="\x7fELF") as one, pytest.raises(BmcError, match="cannot be started"):
        one.power()


def open_strip() -> CommandSession:
    return DRIVER.open(command.Access(program="strip", address="7"), {}, deadline=5)


def test_without_the_setting_no_program_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(command.FOLDER, raising=False)
    with pytest.raises(BmcError, match=r"allows no programs.* Set DRYDOCK_BMC_COMMANDS"):
        open_strip()


def test_only_programs_that_nobody_else_can_change_are_run(program, folder: Path, tmp_path: Path) -> None:
    program("exit 0")
    open_strip()
    path = folder / "strip"
    for place, mode, back in (
        (path, 0o775, 0o755),
        (path, 0o757, 0o755),
        (folder, 0o775, 0o755),
        (folder, 0o777, 0o755),
    ):
        place.chmod(mode)
        with pytest.raises(BmcError, match="Others can change"):
            open_strip()
        place.chmod(back)
    path.chmod(0o644)
    with pytest.raises(BmcError, match="not an executable file"):
        open_strip()
    path.rename(folder / "other")
    with pytest.raises(BmcError, match="There is no program strip"):
        open_strip()
    path.symlink_to(folder / "other")
    with pytest.raises(BmcError, match="not an executable file"):
        open_strip()
    (tmp_path / "link").symlink_to(folder)
    os.environ[command.FOLDER] = str(tmp_path / "link")
    with pytest.raises(BmcError, match="is not a folder"):
        open_strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_programs_of_others_are_not_run(program, folder: Path) -> None:
    program("exit 0")
    os.chown(folder / "strip", 65534, -1)
    with pytest.raises(BmcError, match="Others can change"):
        open_strip()
    os.chown(folder / "strip", 0, -1)
    os.chown(folder, 65534, -1)
    with pytest.raises(BmcError, match="Others can change the folder"):
        open_strip()


@pytest.mark.parametrize("name", ["", "../strip", "/bin/sh", "a b", "-x", ".hidden", "strip\n", "a;b", "x" * 65, ".."])
def test_a_registration_names_a_program_and_nothing_else(name: str) -> None:
    with pytest.raises(ValidationError):
        command.Access(program=name, address="7")


@pytest.mark.parametrize("address", ["", "-rf", "a b", "a\n", "$(id)", "a;b", "`id`", "a'b", 'a"b', "x" * 201, "a\0"])
def test_an_address_is_no_option_and_no_shell_text(address: str) -> None:
    with pytest.raises(ValidationError):
        command.Access(program="strip", address=address)


def test_the_identity_is_program_and_address() -> None:
    assert DRIVER.identity(command.Access(program="strip", address="3/7")) == "strip:3/7"
