"""Which tests are for `make test-slow`, beside those that are marked where they stand, and when none is begun any more.

`make test` tries every plan on one transport and one cloud whole; `make test-slow` repeats it on the others.
"""

from __future__ import annotations

import os
import time

import pytest

UNTIL = "DRYDOCK_TESTS_UNTIL"
"""Environment variable with the Unix time after which no test is begun."""

EVERY_CALL = ("_at_any_call", "_any_part_of_")
"""Tests that repeat a plan once for each of its calls, which takes long if a call is a real command or request.
`make test` interrupts the fake kinds, whose calls take no time."""
REPEATED = {
    "TestAzure", "TestCheckedStorage", "TestGce", "TestPerLeaseBySudo", "TestWebrootOverSsh", "TestWorkingCopyOverSsh"
}  # fmt: skip
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
BY_CLOUD = ("tests/leases/", "tests/clouds/validation/")
"""Engine tests and the behaviour suite go through EC2 in `make test`. The clients of the others have tests of their own
there."""
FILES = {
    "tests/blueprints/test_layered_attacks.py": "leases attack their cleaning, each with a host of its own",
    "tests/blueprints/test_leftovers_engine.py": "the leftover suite through the engine; test_leftovers.py is without",
    "tests/blueprints/test_layered_ssh_engine.py": "both conformance over SSH and the engine on this machine are tried",
    "tests/blueprints/test_working_copy_ssh.py": "remotes over SSH, each with an sshd of its own",
    "tests/clouds/validation/test_suite.py": "the behaviour suite interrupted; test_doubles.py runs it whole",
    "tests/operation/test_draining.py": "workers with long steps are stopped, which takes as long as they",
    "tests/leases/test_reconnect.py": "engines are stopped and started under workers",
    "tests/engines/test_up.py": "a whole installation is started and stopped three times",
    "tests/leases/test_allocator_elsewhere.py": "another project, with workers of its own",
    "tests/rest/test_generated_client.py": "a client is generated from the schema, type-checked and used",
    "tests/clouds/validation/test_faults.py": "the behaviour suite on 27 wrong clients",
}
CLASSES = {"TestShallowWorkingCopy": "all of the conformance suite again, with shallow copies"}


def is_shown_elsewhere(item: pytest.Item) -> bool:
    """Return whether another test does the same and more.

    A host that is moved between networks takes every step of one that stays in its network, so only that one is
    interrupted at each call of its plans, and only the other goes through the rest of the conformance suite.
    """
    interrupted = any(part in item.name for part in EVERY_CALL)
    names = item.nodeid.split("::")
    return ("TestRamdisk" in names and interrupted) or ("TestNetworks" in names and not interrupted)


def is_slow(item: pytest.Item) -> bool:
    """Return whether a test is one that `make test` leaves out."""
    file, *names = item.nodeid.split("::")
    params = getattr(getattr(item, "callspec", None), "params", {})
    if file in FILES or CLASSES.keys() & set(names):
        return True
    if file.startswith(BY_CLOUD) and {params.get("cloud"), params.get("name")} & OTHER_CLOUDS:
        return True
    own_account = os.geteuid() == 0 and "self" in (params.get("machine"), params.get("peer"))
    if own_account and file.startswith("tests/interfaces/"):
        return True  # an ordinary user's run has no other account than its own
    if any(part in item.name for part in EVERY_CALL):
        return "conformance_fake" not in file
    return (own_account or bool(REPEATED & set(names))) and _makes_again(item)


def _makes_again(item: pytest.Item) -> bool:
    """Return whether a test of the conformance suite makes what other benches make, and is not one of SMOKE."""
    function = getattr(item, "function", None)
    return getattr(function, "__module__", "") in MAKING and getattr(function, "__name__", "") not in SMOKE


def add_option(parser: pytest.Parser) -> None:
    """Declare `--minutes`."""
    parser.addoption("--minutes", type=float, metavar="N", help="begin no test later than N minutes after the start")


def set_end(minutes: float | None) -> None:
    """Give this process and the workers that it starts the time of `--minutes`."""
    if minutes is not None:
        os.environ[UNTIL] = str(time.time() + minutes * 60)


def skip_if_late(item: pytest.Item) -> None:
    """Skip the test that is about to begin if the time of `--minutes` is over.

    A test that has failed is repeated nevertheless. Raises `Skipped`. The summary counts the tests that were not begun.
    """
    until = os.environ.get(UNTIL)
    if until and time.time() > float(until) and getattr(item, "execution_count", 1) <= 1:
        pytest.skip("not begun within --minutes")
