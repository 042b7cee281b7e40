"""The driver `command` with real programs of the installation: obedient, hanging, lying and hostile ones."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import ValidationError

from blueprints.networks import command
from blueprints.networks.command import CommandNetworks
from blueprints.networks.contract import Access, Port
from blueprints.networks.errors import (
    NetworkAnswerInvalid,
    NetworkBusy,
    NetworkError,
    NetworkLoginRefused,
    NetworkRefused,
    NetworkUnknown,
    NetworkUnreachable,
)
from blueprints.testing.networks import NetworkConformance
from interfaces.deadline import Deadline

DRIVER = CommandNetworks()
SECRET = "hunter2-hunter2"
PORT = Port(switch="leaf-1", port="Ethernet1/12", mac="B0:7B:25:C0:FF:EE")
SWITCH = f"""#!/bin/sh
# One folder for each port of an imaginary switch, with one file for each VLAN.
grep -q '"password": "{SECRET}"' || {{ echo "bad password" >&2; exit 77; }}
cd "$(dirname "$0")/switch" || exit 69
port=$2-$(echo "$3" | tr / -)
[ -d "$port" ] || {{ echo "no port $3" >&2; exit 64; }}
case $1 in
  attach) touch "$port/$4" ;;
  detach) rm -f "$port/$4" ;;
  check) printf '{{"networks": [%s]}}' "$(ls "$port" | sed 's/.*/"&"/' | paste -sd,)" ;;
  *) exit 1 ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "commands"
    (place / "switch" / "leaf-1-Ethernet1-12").mkdir(parents=True)
    monkeypatch.setenv(command.FOLDER, str(place))
    return place


def install(folder: Path, text: str, name: str = "switch.sh") -> None:
    (folder / name).write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def access(seconds: float = 10.0, **settings: Any) -> Access:
    parsed = command.Settings.model_validate({"program": "switch.sh", **settings})
    return Access(settings=parsed, credential={"password": SECRET, "username": ""}, deadline=Deadline(seconds))


@pytest.fixture
def program(folder: Path) -> Callable[..., Access]:
    """Install a program, and return what its calls get."""

    def made(text: str, seconds: float = 10.0, **settings: Any) -> Access:
        install(folder, text)
        return access(seconds, **settings)

    return made


class TestConformance(NetworkConformance):
    driver = DRIVER

    @pytest.fixture(autouse=True)
    def _switch(self, folder: Path) -> None:
        install(folder, SWITCH)
        install(folder, "sleep 60", "silent")

    def settings(self):
        return {"program": "switch.sh", "ids": {"blue": "20", "deploy": "10"}}

    def networks(self):
        return "blue", "deploy"

    def port(self):
        return {"switch": "leaf-1", "port": "Ethernet1/12"}

    def credential(self):
        return {"password": SECRET}

    def wrong_credential(self):
        return {"password": "another secret"}

    def unknown_port(self):
        return {"switch": "leaf-1", "port": "Ethernet1/13"}

    def silent_settings(self):
        return {"program": "silent"}


def test_the_program_gets_words_and_the_credential_on_its_input(program, folder: Path) -> None:
    given = program(f'printf "%s\\n" "$@" > {folder}/words; cat > {folder}/input; env > {folder}/env')
    DRIVER.attach(given, PORT, "blue")
    assert (folder / "words").read_text().splitlines() == ["attach", "leaf-1", "Ethernet1/12", "blue"]
    assert (folder / "input").read_text() == f'{{"password": "{SECRET}"}}'
    there = dict(line.split("=", 1) for line in (folder / "env").read_text().splitlines())
    assert there["DRYDOCK_NETWORK_MAC"] == "b0:7b:25:c0:ff:ee"
    assert 0 < float(there["DRYDOCK_NETWORK_SECONDS"]) <= 10
    known = {"PATH", "LANG", "DRYDOCK_NETWORK_MAC", "DRYDOCK_NETWORK_SECONDS"}
    assert there.keys() <= known | {"PWD", "SHLVL", "_", "OLDPWD"}


def test_networks_are_named_by_their_ids_and_foreign_ones_as_the_program_says(program) -> None:
    given = program('echo \'{"networks": ["20", "77"]}\'', ids={"blue": "20"})
    assert DRIVER.check(given, PORT) == {"blue", "77"}
    with pytest.raises(NetworkUnknown, match="green is not among the ids"):
        DRIVER.detach(given, PORT, "green")


@pytest.mark.parametrize(
    ("code", "error", "scope"),
    [
        (1, NetworkRefused, "step"), (64, NetworkUnknown, "operator"), (69, NetworkUnreachable, "step"),
        (75, NetworkBusy, "step"), (76, NetworkAnswerInvalid, "step"), (77, NetworkLoginRefused, "operator"),
    ],
)  # fmt: skip
def test_exit_codes_become_errors_with_what_the_program_said_and_without_secrets(program, code, error, scope) -> None:
    given = program(f'read -r l; echo "cannot: $l {"x" * 1000}" >&2; exit {code}')
    with pytest.raises(NetworkError, match="cannot: ") as caught:
        DRIVER.attach(given, PORT, "blue")
    assert (type(caught.value), caught.value.scope) == (error, scope)
    assert SECRET not in str(caught.value)
    assert len(str(caught.value)) < 420
    assert "leaf-1" not in caught.value.plain


@pytest.mark.parametrize(
    "printed",
    [
        "", "blue", '{"networks": "blue"}', '{"networks": ["blue"', "[]", '{"networks": [], "extra": 1}',
        '{"networks": [null]}', '{"networks": [20]}', '{"networks": [""]}', "{}", r"\377",
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_an_error_and_not_no_network(program, printed: str) -> None:
    with pytest.raises(NetworkAnswerInvalid, match="printed no valid answer"):
        DRIVER.check(program(f"printf '{printed}'"), PORT)


@pytest.mark.parametrize("where", ["", " >&2"])
def test_too_much_output_ends_the_program(program, where: str) -> None:
    with pytest.raises(NetworkAnswerInvalid, match="more than 1 MiB"):
        DRIVER.check(program(f"cat /dev/zero{where}"), PORT)


def test_the_deadline_ends_the_program_with_its_children(program, folder: Path) -> None:
    given = program(f"trap '' TERM; sleep 61 & echo $! > {folder}/child; echo $$ > {folder}/self; wait", seconds=1.0)
    with pytest.raises(NetworkUnreachable, match="longer than 1 s, and was ended"):
        DRIVER.detach(given, PORT, "blue")
    for name in ("child", "self"):
        pid = int((folder / name).read_text())
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)


def test_no_time_left_calls_nothing(program, folder: Path) -> None:
    given = program(f"touch {folder}/called", seconds=0.0)
    with pytest.raises(NetworkUnreachable, match="not called"):
        DRIVER.attach(given, PORT, "blue")
    assert not (folder / "called").exists()


def test_without_the_setting_no_program_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(command.FOLDER, raising=False)
    monkeypatch.setenv("DRYDOCK_BMC_COMMANDS", "/usr/bin")
    with pytest.raises(NetworkError, match=r"no programs for the control of networks.* Set DRYDOCK_NETWORK_COMMANDS"):
        DRIVER.check(access(), PORT)


def test_only_programs_that_nobody_else_can_change_are_run(program, folder: Path) -> None:
    given = program("echo '{\"networks\": []}'")
    assert DRIVER.check(given, PORT) == frozenset()
    path = folder / "switch.sh"
    for place, mode in ((path, 0o775), (path, 0o757), (folder, 0o775), (folder, 0o777)):
        place.chmod(mode)
        with pytest.raises(NetworkError, match="Others can change"):
            DRIVER.check(given, PORT)
        place.chmod(0o755)
    path.rename(folder / "other")
    path.symlink_to(folder / "other")
    with pytest.raises(NetworkError, match="not an executable file"):
        DRIVER.check(given, PORT)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_programs_of_others_are_not_run(program, folder: Path) -> None:
    given = program("exit 0")
    os.chown(folder / "switch.sh", 65534, -1)
    with pytest.raises(NetworkError, match="Others can change"):
        DRIVER.check(given, PORT)


@pytest.mark.parametrize(
    "text", ["", "-rf", "a b", "a\n", "$(id)", "a;b", "`id`", "a'b", 'a"b', "x" * 101, "a\0", "../x"]
)
def test_a_port_is_no_option_and_no_shell_text(text: str) -> None:
    for fields in ({"switch": text, "port": "1"}, {"switch": "leaf-1", "port": text}):
        with pytest.raises(ValidationError):
            Port.model_validate(fields)


@pytest.mark.parametrize("name", ["", "../switch", "/bin/sh", "a b", "-x", ".hidden", "a;b", "x" * 65, ".."])
def test_a_blueprint_names_a_program_and_nothing_else(name: str) -> None:
    with pytest.raises(ValidationError):
        command.Settings(program=name)


def test_ids_are_no_options_and_no_shell_text() -> None:
    for text in ("", "-x", "a b", "$(id)", "a;b"):
        with pytest.raises(ValidationError):
            command.Settings(program="a", ids={"blue": text})
