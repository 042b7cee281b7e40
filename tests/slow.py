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
REPEATED = {"TestAzure", "TestCheckedStorage", "TestGce", "TestPerLeaseBySudo"}
"""Benches of the conformance suite of which `make test` runs only what makes nothing, and SMOKE: another bench of the
same kind, or of a kind with the same frame, goes through all of it."""
MAKING = {f"blueprints.testing.{name}" for name in ("leasing", "making", "operating", "watching")}
"""The parts of the conformance suite that make resources."""
SMOKE = {
    "test_building_twice_under_one_key_makes_one_thing",
    "test_cleaning_removes_what_the_lease_left",
    "test_destroying_twice_succeeds_and_leaves_nothing",
    "test_interfaces_open_under_their_names_and_work",
}
OTHER_CLOUDS = {"azure", "gce"}
"""Engine tests go through EC2 in `make test`. The clients of the others have tests of their own there."""
FILES = {
    "tests/blueprints/test_leftovers_engine.py": "the leftover suite through the engine; test_leftovers.py is without",
    "tests/blueprints/test_working_copy_ssh.py": "remotes over SSH, each with an sshd of its own",
    "tests/clouds/validation/test_suite.py": "the behaviour suite interrupted; test_doubles.py runs it whole",
    "tests/engines/test_up.py": "a whole installation is started and stopped three times",
    "tests/leases/test_allocator_elsewhere.py": "another project, with workers of its own",
    "tests/rest/test_generated_client.py": "a client is generated from the schema, type-checked and used",
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
    own_account = os.geteuid() == 0 and params.get("machine") == "self"
    if any(part in item.name for part in EVERY_CALL):
        return own_account or _is_interrupted_elsewhere(file, set(names))
    return (own_account or bool(REPEATED & set(names))) and _makes_again(item)


def _is_interrupted_elsewhere(file: str, names: set[str]) -> bool:
    """Return whether a plan is interrupted elsewhere, too: on another kind, or without SSH between."""
    return "conformance_fake" not in file and (not names & INTERRUPTED or "over_ssh" in file)


def _makes_again(item: pytest.Item) -> bool:
    """Return whether a test of the conformance suite makes what other benches make, and is not one of SMOKE."""
    function = getattr(item, "function", None)
    return getattr(function, "__module__", "") in MAKING and getattr(function, "__name__", "") not in SMOKE
