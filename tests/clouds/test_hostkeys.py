"""Host keys that guests have made themselves: read by each cloud's own way, pinned, and nothing else believed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from blueprints.answers import Failed, Ready, Wait
from blueprints.cloud.client import Console, TellsHostKeys
from blueprints.cloud.guest import known, pin, printed, sources
from blueprints.cloud.values import Underway
from blueprints.userdata import user_data
from interfaces.keys import new_key_pair

LINE = " ".join(new_key_pair("guest").public.split()[:2])
BLOCK = f"-----BEGIN SSH HOST KEY KEYS-----\r\n{LINE} root@guest\r\n-----END SSH HOST KEY KEYS-----\r\n"


class Serial(Console):
    provider = "serial"

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)

    def console(self, instance):
        return self.texts.pop(0)


class Asking(TellsHostKeys):
    provider, key_source = "asking", "run_command"

    def host_keys(self, instance, handle):
        return [LINE] if handle else Underway(handle={"command": "7"}, after=3.0)


def spec(source, **facts):
    resource = SimpleNamespace(attributes={}, facts=facts, key="dd-x-1-r1")
    return SimpleNamespace(resource=resource, config=SimpleNamespace(host_key=source))


def test_it_waits_until_the_console_shows_the_whole_block():
    client = Serial("booting", BLOCK[:60], f"[ 12.1] noise\n{BLOCK}login: ")
    assert [isinstance(pin(client, spec("console"), {}), Wait) for _ in range(2)] == [True, True]
    answer = pin(client, spec("console"), {})
    assert isinstance(answer, Ready)
    assert answer.facts == {"host_keys": [LINE]}


def test_a_command_is_asked_for_once_and_then_waited_for():
    first = pin(Asking(), spec("run_command"), {})
    assert isinstance(first, Wait)
    second = pin(Asking(), spec("run_command"), first.memo)
    assert isinstance(second, Ready)
    assert second.facts == {"host_keys": [LINE]}


def test_what_is_known_is_not_asked_for():
    assert pin(Serial(), spec("console", host_keys=[LINE]), {}) == Ready()
    assert pin(Serial(), spec("injected", host_keys=[LINE]), {}) == Ready()


def test_a_way_that_the_cloud_has_not_is_the_operator_s_to_mend():
    answer = pin(Serial(), spec("guest_attributes"), {})
    assert isinstance(answer, Failed)
    assert "injected, console" in answer.message
    assert sources(Asking) == ("injected", "run_command")


@pytest.mark.parametrize(
    ("console", "found"),
    [
        ("", []),
        ("-----END SSH HOST KEY KEYS-----", []),
        (BLOCK, [f"{LINE} root@guest"]),
        ("".join(f"[  9.2] cloud-init[7]: {one}\n" for one in BLOCK.split("\r\n")), [f"{LINE} root@guest"]),
        (BLOCK.replace(LINE, "ssh-rsa AAAAold") + BLOCK, [f"{LINE} root@guest"]),
        (f"{LINE}\n", []),
    ],
    ids=["nothing", "only its end", "a block", "with the times of a log", "two of them", "no block"],
)
def test_only_the_newest_whole_block_of_a_console_counts(console, found):
    assert printed(console) == found


def test_what_is_no_key_is_left_out():
    assert [key.line for key in known(["ssh-rsa AAAAold", "", f"{LINE} root@guest", "ssh-ed25519"])] == [LINE]


def test_user_data_have_no_host_key_where_the_guest_makes_it():
    pair = new_key_pair("control")
    text = user_data(user="drydock", public_key=pair.public, host_key=None)
    assert "ssh_keys" not in text
    assert "PRIVATE KEY" not in text
