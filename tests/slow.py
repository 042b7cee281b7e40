"""Which tests are for `make test-slow`, beside those that are marked where they stand.

`make test` tries every plan on one transport and one cloud whole; `make test-slow` repeats it on the others.
"""

from __future__ import annotations

import os

import pytest

EVERY_CALL = ("_at_any_call", "_any_part_of_")
"""Tests that repeat a plan once for each of its calls, which takes long if a call is a real command or request."""
INTERRUPTED = {"TestStorage", "TestEc2"}
"""The kinds whose plans `make test` interrupts at every call, beside the fake ones, where a call takes no time."""
OTHER_CLOUDS = {"azure", "gce"}
"""Engine tests go through EC2 in `make test`. The clients of the others have tests of their own there."""
FILES = {
    "tests/blueprints/test_leftovers_engine.py": "the leftover suite through the engine; test_leftovers.py is without",
    "tests/blueprints/test_working_copy_ssh.py": "remotes over SSH, each with an sshd of its own",
    "tests/clouds/validation/test_faults.py": "the behaviour suite on 27 wrong clients",
}
CLASSES = {"TestShallowWorkingCopy": "all of the conformance suite again, with shallow copies"}


def is_slow(item: pytest.Item) -> bool:
    """Return whether a test is one that `make test` leaves out."""
    file, *names = item.nodeid.split("::")
    params = getattr(getattr(item, "callspec", None), "params", {})
    if file in FILES or CLASSES.keys() & set(names):
        return True
    if file.startswith("tests/leases/") and params.get("cloud") in OTHER_CLOUDS:
        return True
    return any(part in item.name for part in EVERY_CALL) and _is_repeated(file, set(names), params.get("machine", ""))


def _is_repeated(file: str, names: set[str], machine: str) -> bool:
    """Return whether a plan is interrupted elsewhere, too: on another kind, as root, or without SSH between."""
    if "conformance_fake" in file:
        return False
    return not names & INTERRUPTED or "over_ssh" in file or (os.geteuid() == 0 and machine == "self")
