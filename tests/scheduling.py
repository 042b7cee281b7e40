"""How pytest-xdist distributes the tests: by file, with the longest first.

A worker takes a whole file at a time, so that what a module sets up (servers, accounts, processes) is set up once.
Files that may not run at the same time form a group, which one worker runs: nobody waits for a lock.

The compilation of the tests is distributed as well. Every worker collects all tests.
"""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).resolve().parents[1]

ACCOUNTS = "accounts"
"""Tests that look at all accounts of the machine; `tests.blueprints.host_peers.alone` holds the lock of their own."""

COMMANDS = "tests/cli/"
"""Tests of the command line, which share one installation: each worker would make and migrate its own."""

GROUPS = {
    "tests/accelerators/test_condition_engine.py": ACCOUNTS,
    "tests/accelerators/test_engine.py": ACCOUNTS,
    "tests/bluefield/test_dpu_engine.py": ACCOUNTS,
    "tests/bluefield/test_rshim_engine.py": ACCOUNTS,
    "tests/blueprints/baremetal/test_console.py": ACCOUNTS,
    "tests/blueprints/baremetal/test_engine.py": ACCOUNTS,
    "tests/blueprints/baremetal/test_per_lease.py": ACCOUNTS,
    "tests/blueprints/baremetal/test_redfish.py": ACCOUNTS,
    "tests/blueprints/test_accounts.py": ACCOUNTS,
    "tests/blueprints/test_devices.py": ACCOUNTS,
    "tests/blueprints/test_layered_attacks.py": ACCOUNTS,
    "tests/blueprints/test_layered_ssh_engine.py": ACCOUNTS,
    "tests/blueprints/test_leftovers.py": ACCOUNTS,
    "tests/blueprints/test_leftovers_engine.py": ACCOUNTS,
    "tests/blueprints/test_local_host.py": ACCOUNTS,
    "tests/blueprints/test_local_limits.py": ACCOUNTS,
    "tests/blueprints/test_ssh_host.py": ACCOUNTS,
    "tests/blueprints/test_ssh_host_engine.py": ACCOUNTS,
    "tests/blueprints/test_ssh_host_leases.py": ACCOUNTS,
    "tests/blueprints/test_storage_engine.py": ACCOUNTS,
    "tests/blueprints/units/test_environment.py": ACCOUNTS,
    "tests/cli/test_ssh.py": ACCOUNTS,
    "tests/cli/test_ssh_config.py": ACCOUNTS,
    "tests/dpus/test_demo.py": ACCOUNTS,
    "tests/leases/test_workload_hosts.py": ACCOUNTS,
    "tests/leases/test_workload_units.py": ACCOUNTS,
}

SECONDS = {
    ACCOUNTS: 560,
    COMMANDS: 300,
    "tests/bench/test_dpus.py": 300,
    "tests/bench/test_small.py": 250,
    "tests/bluefield/test_rshim_steps.py": 50,
    "tests/bluefield/test_scp_steps.py": 30,
    "tests/blueprints/baremetal/test_conformance.py": 30,
    "tests/blueprints/baremetal/test_network_ramdisk.py": 500,
    "tests/blueprints/baremetal/test_ramdisk_conformance.py": 500,
    "tests/blueprints/test_layered_over_ssh.py": 60,
    "tests/blueprints/test_storage.py": 80,
    "tests/blueprints/test_webroot.py": 60,
    "tests/blueprints/test_working_copy.py": 90,
    "tests/clouds/test_conformance.py": 90,
    "tests/interfaces/test_command.py": 50,
    "tests/interfaces/test_jobs.py": 60,
    "tests/leases/test_cloud_hosts.py": 60,
    "tests/leases/test_cloud_machines.py": 40,
    "tests/leases/test_clouds.py": 90,
    "tests/leases/test_interruption.py": 40,
    "tests/leases/test_messages.py": 45,
    "tests/leases/test_mistakes.py": 40,
    "tests/leases/test_spoiled.py": 50,
    "tests/rest/test_instances.py": 40,
    "tests/rest/test_schemathesis.py": 80,
}
"""About how long groups and files take, where it is long: the longest are begun first, the others in any order."""


def unit_of(nodeid: str) -> str:
    """The group or the file of a test, which one worker runs."""
    file = nodeid.split("::", 1)[0]
    return GROUPS.get(file, COMMANDS if file.startswith(COMMANDS) else file)


class ByFile(LoadScopeScheduling):
    """Gives a worker that has little left to do another file or group. Of fewer files than workers, it gives tests."""

    _by_test = False

    def schedule(self) -> None:
        if self.collection is None and self.collection_is_completed:
            nodeids = next(iter(self.registered_collections.values()))
            self._by_test = len({unit_of(nodeid) for nodeid in nodeids}) < len(self.nodes)
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        unit = unit_of(nodeid)
        return nodeid if self._by_test and unit not in GROUPS.values() else unit

    def _assign_work_unit(self, node: WorkerController) -> None:
        longest = max(self.workqueue, key=lambda unit: SECONDS.get(unit, 0))
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)


def import_share(worker: int, workers: int) -> None:
    """Import every n-th file of tests before the others, so that each is compiled by one worker and loaded by the rest.

    Compiling them all, with the assertions that pytest rewrites, takes 17 s of CPU, which each worker spent in a fresh
    clone. A file that cannot be imported is imported again when it is collected, and reported then.
    """
    for path in sorted((ROOT / "tests").rglob("test_*.py"))[worker::workers]:
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
