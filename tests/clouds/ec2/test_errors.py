"""The table of codes: each has one meaning, and forms of codes have theirs."""

from __future__ import annotations

from collections import Counter

import pytest

from blueprints.cloud.faults import Meaning, Reach
from blueprints.ec2.errors import CODES, meaning_of, refused


def test_no_code_has_two_meanings() -> None:
    counted = Counter(code for codes in CODES.values() for code in codes)
    assert [code for code, times in counted.items() if times > 1] == []


@pytest.mark.parametrize(
    ("code", "status", "changes", "meaning"),
    [
        ("InsufficientInstanceCapacity", 500, True, Meaning.NO_CAPACITY),
        ("RequestLimitExceeded", 503, True, Meaning.THROTTLED),
        ("InternalError", 500, True, Meaning.AMBIGUOUS),
        ("InternalError", 500, False, Meaning.UNAVAILABLE),
        ("Unheard", 502, True, Meaning.AMBIGUOUS),
        ("Unheard", 502, False, Meaning.UNAVAILABLE),
        ("Unheard", 400, True, Meaning.OTHER),
        ("InvalidVolume.NotFound", 400, True, Meaning.NOT_FOUND),
        ("InvalidInstanceType.NotFound", 400, True, Meaning.NOT_OFFERED),
        ("InvalidAMIID.Malformed", 400, True, Meaning.INVALID),
        ("InvalidClientTokenId", 403, False, Meaning.CREDENTIALS),
        ("MissingParameter", 400, False, Meaning.INVALID),
        ("DependencyViolation", 400, True, Meaning.CONFLICT),
        ("", 503, False, Meaning.UNAVAILABLE),
    ],
)
def test_meanings(code: str, status: int, changes: bool, meaning: Meaning) -> None:
    assert meaning_of(code, status, changes=changes) is meaning


def test_the_words_are_ec2s_without_what_only_it_can_read() -> None:
    said = "You are not authorized to perform this operation. Encoded authorization failure message: AbC123" + "x" * 999
    error = refused("UnauthorizedOperation", said, 403)
    assert error.message == "You are not authorized to perform this operation."
    assert refused("Strange", "", 418).message == "EC2 answered 418."
    assert len(refused("Strange", "y" * 9999).message) == 500


def test_a_full_subnet_rules_out_the_zone() -> None:
    assert refused("InsufficientFreeAddressesInSubnet", "full").zone_wide
    assert not refused("InsufficientInstanceCapacity", "none", 500).zone_wide


@pytest.mark.parametrize(
    ("code", "reach"),
    [
        ("VcpuLimitExceeded", Reach.FAMILY), ("MaxSpotInstanceCountExceeded", Reach.FAMILY),
        ("SecurityGroupLimitExceeded", Reach.LOCATION), ("InsufficientFreeAddressesInSubnet", None),
        ("InsufficientInstanceCapacity", None),
    ],
)  # fmt: skip
def test_how_much_a_refused_quota_rules_out(code: str, reach: Reach | None) -> None:
    assert refused(code, "No.", 400).reach is reach
