"""Identities: one spelling each, and neither placeholders nor names that two things have."""

from __future__ import annotations

import pytest

from blueprints.identities import Identity, is_placeholder, real
from blueprints.reports import unambiguous
from blueprints.specs import Draft


@pytest.mark.parametrize(
    "text",
    [
        "", "  ", None, "N/A", "[N/A]", "[REDACTED]", "0", "00000000", "00000000-0000-0000-0000-000000000000",
        "To be filled by O.E.M.", "To Be Filled By O.E.M.", "Default string", "Not Specified", "System Serial Number",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "03000200-0400-0500-0006-000700080009", "0123456789", "None",
    ],
)  # fmt: skip
def test_placeholders_are_no_identities(text):
    assert real({"serial:x": text}) == ()


def test_the_same_name_is_spelled_in_one_way():
    given = {"mac": "00-1B-21-AA-BB-CC", "gpu_uuid": "GPU-1A2B3C4D-0000-1111-2222-ABCDEF012345", "serial:x": " S 1 "}
    assert {str(one) for one in real(given)} == {
        "mac 00:1b:21:aa:bb:cc", "gpu_uuid gpu-1a2b3c4d-0000-1111-2222-abcdef012345", "serial:x S 1",
    }  # fmt: skip
    assert real({"mac": "001b.21aa.bbcc"}) == real({"mac": "00:1b:21:AA:bb:cc"}) != ()
    assert real({"mac": "not an address"}) == real({"mac": "00:00:00:00:00:00"}) == ()


def test_a_name_that_two_things_of_one_report_have_identifies_neither():
    serial, mac = Identity(namespace="serial:x", value="S1"), Identity(namespace="mac", value="00:1b:21:aa:bb:cc")
    other = Identity(namespace="mac", value="00-1B-21-AA-BB-CC")
    drafts = [Draft(identity="a", identities=(serial, mac)), Draft(identity="b", identities=(other,))]
    first, second = unambiguous([*drafts, Draft(identity="c")])[:2]
    assert (first.identities, second.identities) == ((serial,), ())


def test_a_word_that_only_says_there_is_none_is_a_placeholder_and_a_short_name_is_not():
    assert is_placeholder("N/A")
    assert is_placeholder("To be filled by O.E.M.")
    assert not is_placeholder("a")
    assert not is_placeholder("0000:17:00.0")
