"""The record of a console: secrets go, whatever the parts they come in, and nothing in its text steers a terminal."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drydock.core.characters import first_unsafe
from interfaces.console import Redaction, readable
from interfaces.console.record import BLOT, SHOWN

SECRET = "correct-horse-battery"


def parts(content: bytes, *cuts: int) -> list[bytes]:
    places = [0, *sorted(cuts), len(content)]
    return [content[a:b] for a, b in itertools.pairwise(places)]


def shown(secrets: list[str], *content: bytes, pausing: bool = False) -> bytes:
    one, found = Redaction(secrets), b""
    for part in content:
        found += one.feed(part)
        found += one.pause() if pausing else b""
    return found + one.end()


@pytest.mark.parametrize("cut", range(len(SECRET) + 1))
def test_a_secret_is_removed_wherever_it_is_cut(cut: int) -> None:
    text = SECRET.encode()
    assert shown([SECRET], b"is " + text[:cut], text[cut:] + b"!") == b"is ***!"


def test_a_secret_that_is_typed_slowly_gives_away_three_bytes() -> None:
    typed = [bytes([byte]) for byte in SECRET.encode()]
    assert shown([SECRET], *typed, b"\r\n", pausing=True) == SECRET[:SHOWN].encode() + b"***\r\n"
    assert shown([SECRET], *typed[:-1], pausing=True) == SECRET[:SHOWN].encode() + BLOT


def test_what_only_begins_like_a_secret_is_shown_once_it_differs() -> None:
    one = Redaction([SECRET])
    assert one.feed(b"correct") == b""
    assert one.pause() == b"cor"
    assert one.pause() == b""
    assert one.feed(b"ion") == b"rection"
    assert one.end() == b""


def test_of_two_secrets_that_begin_alike_the_longer_one_is_removed() -> None:
    assert shown(["secret", "secret-longer"], b"a secret-long", b"er b secret c") == b"a *** b *** c"


def test_each_line_of_a_key_and_each_piece_of_a_long_token_is_a_secret() -> None:
    key = "-----BEGIN KEY-----\n" + "A1b2" * 16 + "\n" + "Z9y8" * 4
    printed = key.replace("\n", "\r\n").encode()
    assert b"A1b2" not in shown([key], printed)
    assert b"Z9y8" not in shown([key], printed)
    token = "".join(chr(33 + n % 90) for n in range(1000))
    assert len(shown([token], token.encode())) < 40


def test_short_values_are_no_secrets_and_no_secrets_change_nothing() -> None:
    every = bytes(range(256)) * 3
    assert shown([], every) == shown(["root", "", "12345"], every) == every


@given(
    st.lists(st.sampled_from([b"abcabc", b"abcabd", b"ab", b"abc", b"x", b"abcabcabd-end", b"cab"]), max_size=12),
    st.data(),
)
def test_any_stream_in_any_parts_is_the_stream_without_secrets(words, data):
    secrets = ["abcabd", "abcabcabd-end"]
    content = b"".join(words)
    cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=6))
    whole, cut = shown(secrets, content), shown(secrets, *parts(content, *cuts))
    assert whole == cut
    assert not any(one.encode() in cut for one in secrets)
    if not any(one.encode() in content for one in secrets) and len(content) < 3:
        assert cut == content


def test_a_flood_is_redacted_in_linear_time_and_memory() -> None:
    one = Redaction([SECRET, "y\n" * 40 + "end"])
    flood = b"y\n" * 8192
    total = sum(len(one.feed(flood)) for _ in range(64)) + len(one.end())
    assert total >= len(flood) * 64 - 200
    assert len(one._held) < 200


HOSTILE = b"\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m\x9b1m \x1bP+q\x1b\\\xe2\x80\xaegnp.exe\r\nnext\rlast\x1b"


def test_the_text_of_a_record_steers_no_terminal() -> None:
    text = readable(HOSTILE)
    assert not first_unsafe(text, allowed="\n\t")
    assert "red" in text
    assert "owned" not in text
    assert text.splitlines()[1:] == ["next", "last"]
    assert readable("Zoë 漢字\tok".encode()) == "Zoë 漢字\tok"


def test_random_bytes_make_safe_text() -> None:
    chance = random.Random(7)
    for _ in range(200):
        text = readable(bytes(chance.choices([*range(256), 0x1B, 0x1B, 0x5B, 0x9B, 0x5D], k=300)))
        assert not first_unsafe(text, allowed="\n\t"), ascii(text)
