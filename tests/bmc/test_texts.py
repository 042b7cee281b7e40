"""Foreign texts in messages, and addresses in registrations."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from blueprints.bmc.texts import LONGEST, HostName, serial_of, shown


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("two\nlines\t and   blanks", "two lines and blanks"),
        (b"bytes \xff", "bytes \ufffd"),
        ("\x1b[31mred \u202e", r"\x1b[31mred \u202e"),
        ("the word is abc", "the word is ***"),
        ("password=other", "password=***"),
        ("http://user:pw@bmc/", "http://user:***@bmc/"),
    ],
)
def test_what_a_bmc_said_is_one_line_without_secrets(text: str | bytes, told: str) -> None:
    assert shown(text, ["abc", ""]) == told


def test_a_long_text_is_cut_after_its_secrets_are_gone() -> None:
    said = shown("x" * (LONGEST - 3) + "the-secret" * 5, ["the-secret"])
    assert said == "x" * (LONGEST - 3) + "***" + "…"


def test_the_lines_of_a_key_are_secrets_each() -> None:
    assert shown("it begins with QUJDREVG", ["-----BEGIN-----\nQUJDREVG\n-----END-----"]) == "it begins with ***"


@pytest.mark.parametrize(
    ("vendor", "namespace"), [("Dell Inc.", "dell"), ("Dell EMC", "dell"), ("", "unknown"), ("  ", "unknown")]
)
def test_serial_numbers_belong_to_the_vendor(vendor: str, namespace: str) -> None:
    assert serial_of(vendor) == f"serial:{namespace}"


@pytest.mark.parametrize("text", ["bmc-7", "bmc-7.example.org", "192.0.2.7", "2001:db8::7", "3com.example.org"])
def test_host_names_and_addresses_are_taken(text: str) -> None:
    assert TypeAdapter(HostName).validate_python(text) == text


@pytest.mark.parametrize(
    "text", ["", "a b", "http://a", "a:80", "a/b", "-a", "a-", "127.1", "1.2.3.4.5", "a" * 64, "a..b", "a\n", "ä"]
)
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="host name or an IP address"):
        TypeAdapter(HostName).validate_python(text)
