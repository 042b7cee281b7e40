"""What strangers feed is read in time that grows with its length, not with the square of it.

No time is compared with a clock on the wall: each case is read at two lengths by the same process, and the longer one
may take three times what a linear reader would need. The square would be eight times.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blueprints.layered.workingcopy.names import allowed, checked_ref, is_pattern, protocol_of
from blueprints.layered.workingcopy.work import _progress, _words
from blueprints.userdata import LIMIT, cloud_config
from drydock.core.errors import DrydockError
from drydock.core.logging import redact
from drydock.core.units import duration, mebibytes
from drydock.core.wildcards import matches
from interfaces.command.container import _IMAGE
from interfaces.command.metering import parse as parse_meter
from interfaces.command.shell import processor_time
from interfaces.files import normal
from leases.rest.parsing import StrictJSON
from leases.validation.fields import clean
from leases.validation.input_checks import document

SHORT, LONG = 1, 8
ALLOWED = 3 * LONG / SHORT
LEAST = 0.002
"""Seconds: a reader this quick at the longer length may grow as it likes."""


def spent(read: Callable[[str], object], text: str) -> float:
    """The least processor time of several readings."""
    best = float("inf")
    for _ in range(5):
        begun = time.thread_time()
        with contextlib.suppress(DrydockError, ValueError):
            read(text)
        best = min(best, time.thread_time() - begun)
    return best


def in_json(text: str) -> object:
    return StrictJSON().parse(BytesIO(text.encode()))


def stars(text: str) -> bool:
    return allowed("https://h/" + text, ("https",), ["https://h/" + "*/" * (len(text) // 2) + "x"])


CASES: dict[str, tuple[Callable[[str], object], Callable[[int], str], int]] = {
    "stars against slashes": (stars, lambda n: "/" * n, 110),
    "stars in a pattern": (lambda text: matches(text + "b", text.replace("*", "a")), lambda n: "a*" * n, 4000),
    "a pattern": (is_pattern, lambda n: "https://" + "*." * n + "/x", 20_000),
    "a repository": (protocol_of, lambda n: "https://a" + ".a" * n, 50),
    "an ssh repository": (protocol_of, lambda n: "a" * n + "@", 100),
    "a ref": (checked_ref, lambda n: "a." * n, 15),
    "a path": (normal, lambda n: "a/../" * n, 20_000),
    "a duration": (duration, lambda n: "1h" * n, 3),
    "a size": (mebibytes, lambda n: " " * n + "1", 20_000),
    "an image": (_IMAGE.fullmatch, lambda n: "a" + "/a-_.a" * n + "!", 2000),
    "an image's name": (_IMAGE.fullmatch, lambda n: "a." * n + "!", 20_000),
    "a label": (clean, lambda n: "a" * n, 50_000),
    "a document": (lambda text: document({"a": list(text)}, ""), lambda n: "a" * n, 10_000),
    "JSON of brackets": (in_json, lambda n: "[" * n, 100_000),
    "JSON of objects": (in_json, lambda n: '{"a":' * n, 20_000),
    "JSON of digits": (in_json, lambda n: "1" * n, 100_000),
    "JSON of a fraction": (in_json, lambda n: "0." + "1" * n, 100_000),
    "JSON of names": (in_json, lambda n: "{" + ",".join(f'"{k}":0' for k in range(n)) + "}", 5000),
    "passwords in a log": (redact, lambda n: "password" * n, 5000),
    "addresses in a log": (redact, lambda n: "://a:" * n, 5000),
    "keys in a log": (redact, lambda n: "-----BEGIN A " * n, 5000),
    "spaces after a secret in a log": (redact, lambda n: "token" + " " * n, 20_000),
    "percentages of git": (lambda text: _progress(text, {}), lambda n: "Receiving objects: " + "1" * n, 20_000),
    "steps of git": (lambda text: _progress(text, {}), lambda n: "Receiving objects:   " * n, 2000),
    "lines of git": (_words, lambda n: "\r\n" * n, 20_000),
    "times of a shell": (processor_time, lambda n: "1" * n, 20_000),
    "lines of a meter": (parse_meter, lambda n: "host a 1 1\n" + "process 1.1 1 1 1\n" * n, 2000),
}
BYTES = 1500
YAML = {
    "brackets": "[", "braces": "{", "questions": "? ", "dashes": "- ", "colons": "a: ", "tags": "!a ", "anchors": "&a ",
    "quotes": "'", "double quotes": '"', "pipes": "|\n", "lines": "a\n", "lists": "[a],", "keys": "a: b\n",
    "tabs": "\t", "comments": "#", "documents": "---\n", "directives": "%YAML 1.1\n", "sixties": "1:", "dots": "1.",
    "commas": ",", "merges": "<<: {a: b}\n", "escapes": '"\\x41" ', "folds": ">\n a\n", "closed": "[]", "spaces": " ",
    "underscores": "1_", "keys of keys": "? a\n: ", "indents": "a:\n ",
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_is_read_in_linear_time(name: str) -> None:
    read, made, size = CASES[name]
    short, long = spent(read, made(SHORT * size)), spent(read, made(LONG * size))
    assert long < max(LEAST, ALLOWED * short), f"{short:.4f} s, and {long:.4f} s for {LONG} times as much"


@pytest.mark.parametrize("name", YAML)
@pytest.mark.parametrize("head", ["", "a: [", "- "])
def test_user_data_are_read_in_linear_time(name: str, head: str) -> None:
    texts = [head + YAML[name] * (size * BYTES // len(YAML[name])) for size in (SHORT, LONG)]
    assert len(texts[1].encode()) < LIMIT
    short, long = (spent(cloud_config, text) for text in texts)
    assert long < max(LEAST, ALLOWED * short), f"{short:.4f} s, and {long:.4f} s for {LONG} times as much"


@pytest.mark.parametrize("text", ["[" * 16_000, "{a: " * 4000, "- " * 8000, "? " * 8000, "&a " * 5000])
def test_deep_user_data_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"nested more than 32|not a valid cloud-config"):
        cloud_config(text)


@pytest.mark.parametrize(
    "text",
    ["a: !!int ''", "a: !!bool maybe", "a: !!float ''", "a: !!timestamp x", "a: .nan", "a: .inf",
     f"a: {'9' * 5000}", "a: 2020-99-99", "a: !!set {b}", "a: !!binary AAAA", "? [a]\n: b",
     "a: !!python/name:os.system x"],
)  # fmt: skip
def test_user_data_that_no_document_holds_are_a_clear_refusal(text: str) -> None:
    with pytest.raises(ValueError, match="not a valid cloud-config"):
        cloud_config(text)


@settings(deadline=None)
@given(st.text(alphabet="[]{}-?:,&*!|>'\"%@` \n\tab01.~<=#\\", max_size=300))
def test_any_user_data_are_a_mapping_or_a_clear_refusal(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(cloud_config(text), dict)


@settings(deadline=None)
@given(st.text(alphabet="ab*", max_size=12), st.text(alphabet="ab", max_size=12))
def test_stars_match_as_in_a_regular_expression(pattern: str, text: str) -> None:
    import re

    wanted = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL)
    assert matches(pattern, text) == bool(wanted)
