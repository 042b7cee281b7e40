"""Logs never show a secret."""

from __future__ import annotations

import pytest

from drydock.core.logging import LONGEST, redact


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2 next",
        "{'password': 'hunter2'}",
        '{"api_key": "hunter2"}',
        "Authorization: Bearer hunter2",
        "postgresql://u:hunter2@h/n",
        "token = hunter2",
    ],
)
def test_secrets_are_blotted_out(text):
    assert "hunter2" not in redact(text)


@pytest.mark.parametrize("text", ["lease 12 is active", "http://h:80/a", "step token expired"])
def test_the_rest_stays(text):
    assert redact(text) == text


def test_a_long_text_is_read_once_and_cut_where_nothing_half_read_stays():
    """Over letters that might begin an address, time once grew with their square: a minute for these."""
    assert redact("a" * LONGEST) == "a" * LONGEST
    found = redact("a" * (LONGEST - 11) + " postgresql://u:hunter2@h/n")
    assert "hunt" not in found
    assert found.endswith("(too long)")
