"""What a lease uses is counted through the end of processes, restarts of the host and looks that were missed."""

from __future__ import annotations

import dataclasses
import os
import signal
import time

import pytest

from interfaces.command.metering import MIB, Process, Sample, Used, advanced, parse, read
from interfaces.errors import InterfaceError
from tests.blueprints import host_peers as peers
from tests.blueprints import survivors
from tests.interfaces.conftest import Peer
from tests.interfaces.test_jobs import over

GIB = 1 << 30


def machine(seconds: float, memory: int = GIB, network: tuple[int, int] = (0, 0), boot: str = "a") -> Sample:
    return Sample(scope="machine", boot=boot, seconds=seconds, memory=memory, network=network)


def account(processes: dict[str, tuple[int, float]], jobs: dict[str, float] | None = None, memory: int = 0) -> Sample:
    made = {name: Process(parent=parent, seconds=seconds) for name, (parent, seconds) in processes.items()}
    return Sample(scope="processes", boot="a", processes=made, jobs=jobs or {}, memory=memory)


def total(*samples: Sample, every: float = 10) -> Used:
    used, before = Used(), None
    for now in samples:
        used, before = advanced(used, before, now, every), now
    return used


def test_a_machine_is_counted_from_the_first_look_on() -> None:
    used = total(machine(500), machine(503, network=(10, 20)), machine(510, network=(15, 20)))
    assert used.cpu_seconds == 10
    assert (used.network_in, used.network_out) == (15, 20)
    assert used.memory_mib_seconds == 2 * 10 * 1024
    assert used.wall_seconds == 20


def test_one_look_at_a_machine_has_counted_nothing_yet() -> None:
    assert total(machine(500, network=(7, 7))) == Used(
        cpu_seconds=0.0, memory_mib_seconds=0.0, network_in=0, network_out=0
    )


def test_memory_between_two_looks_is_their_mean() -> None:
    assert total(machine(0, memory=0), machine(0, memory=100 * MIB)).memory_mib_seconds == 500


def test_a_restart_of_the_host_counts_from_nothing_even_when_counters_have_passed_where_they_were() -> None:
    used = total(machine(500, network=(100, 100)), machine(520, boot="b", network=(130, 5)))
    assert used.cpu_seconds == 520
    assert (used.network_in, used.network_out) == (130, 5)


def test_a_group_that_was_made_anew_counts_from_nothing() -> None:
    group = [Sample(scope="cgroup", boot="a", seconds=seconds, memory=0) for seconds in (4, 9, 2)]
    assert total(*group).cpu_seconds == 4 + 5 + 2


def test_an_account_is_counted_from_nothing() -> None:
    assert total(account({"10.1": (1, 2.5)})).cpu_seconds == 2.5


def test_a_child_that_has_ended_is_in_its_parents_time() -> None:
    used = total(account({"10.1": (1, 1), "11.1": (10, 5)}), account({"10.1": (1, 7)}))
    assert used.cpu_seconds == 7


def test_a_tree_that_went_with_its_root_keeps_what_was_counted_and_takes_nothing_from_others() -> None:
    used = total(account({"10.1": (1, 1), "11.1": (10, 5), "20.1": (1, 1)}), account({"20.1": (1, 3)}))
    assert used.cpu_seconds == 1 + 5 + 3


def test_a_child_that_outlived_its_parent_is_counted_once() -> None:
    used = total(account({"10.1": (1, 1), "11.1": (10, 5)}), account({"11.1": (1, 6)}))
    assert used.cpu_seconds == 1 + 6


def test_the_end_of_a_job_tells_what_it_used_exactly() -> None:
    running = account({"10.1": (1, 1), "11.1": (10, 5)})
    assert total(running, account({}, {"10.1": 8.25})).cpu_seconds == 8.25
    assert total(running, account({}, {"10.1": 8.25}), account({}, {"10.1": 8.25})).cpu_seconds == 8.25


def test_a_job_that_nobody_saw_running_is_counted_whole() -> None:
    assert total(account({}), account({}, {"10.1": 3.0})).cpu_seconds == 3.0


def test_a_number_that_was_given_again_is_another_process() -> None:
    assert total(account({"10.1": (1, 5)}), account({"10.9": (1, 1)})).cpu_seconds == 6


def test_what_nobody_counts_stays_unknown() -> None:
    silent = Sample(scope="processes", boot="a")
    assert total(silent, silent).network_in is None
    assert total(silent, silent).memory_mib_seconds is None


def test_another_scope_begins_anew_and_keeps_what_there_was() -> None:
    group = Sample(scope="cgroup", boot="a", seconds=4, memory=0)
    assert total(group, account({"10.1": (1, 2)})).cpu_seconds == 6


def test_samples_are_kept_as_json() -> None:
    for sample in (machine(1.5, network=(1, 2)), account({"10.1": (1, 2.0)}, {"9.1": 1.0}, 7)):
        assert Sample.from_json(sample.to_json()) == sample


MACHINE = """\
host 11-22 100 4096
stat cpu  100 50 25 9999 9 5 5 70 0 0
MemTotal: 2048
MemAvailable: 1024
net eth0: 1000 1 0 0 0 0 0 0 2000 1 0 0 0 0 0 0
net eth1:5 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0
"""


def test_a_machines_counters_are_read() -> None:
    found = parse(MACHINE)
    assert found == Sample(scope="machine", boot="11-22", seconds=1.85, memory=1 << 20, network=(1005, 2007))


def test_an_accounts_counters_are_read_and_greetings_passed_over() -> None:
    said = "Welcome to x\nhost b 100 4096\njob 7.3.boot 0m0.01s 0m0.02s 1m1.5s 0m0s \nprocess 10.5 1 250 2\n"
    found = parse(said)
    assert found.processes == {"10.5": Process(parent=1, seconds=2.5)}
    assert found.memory == 8192
    assert found.jobs["7.3"] == pytest.approx(61.53)


@pytest.mark.parametrize("said", ["", "process 1.1 1 1 1\n", "host\n"])
def test_what_is_no_answer_is_an_error(said: str) -> None:
    with pytest.raises(InterfaceError):
        parse(said)


BUSY = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"


def test_a_real_host_tells_what_a_job_used_while_it_runs_and_after(peer: Peer) -> None:
    from interfaces.command import JobSpec

    def look() -> Sample:
        return read(peer.command, lease="none", machine=False, shared=False)

    before = look()
    peer.command.jobs.start(JobSpec(id="busy", words=f"{BUSY}; sleep 60"))
    while sum(one.seconds for one in look().processes.values()) <= sum(p.seconds for p in before.processes.values()):
        time.sleep(0.05)
    during = look()
    assert during.memory
    peer.command.jobs.cancel("busy")
    peer.command.jobs.start(JobSpec(id="short", words=f"{BUSY}; exit 3"))
    over(peer.command.jobs, "short")
    left = peer.command.jobs.remains("short", 10, 10)
    assert left.cpu_seconds
    after = look()
    assert left.cpu_seconds in after.jobs.values()
    used = advanced(Used(), dataclasses.replace(before, processes={}), after, 1)
    assert used.cpu_seconds is not None
    assert used.cpu_seconds >= left.cpu_seconds


def test_a_real_machine_tells_its_own_counters(peer: Peer) -> None:
    found = read(peer.command, lease="none", machine=True, shared=False)
    assert found.scope == "machine"
    assert found.seconds
    assert found.memory


def test_a_process_whose_first_thread_has_exited_is_counted(peer: Peer) -> None:
    peer.home.chmod(0o777)
    sign = peer.home / "sign"
    peer.command.check(survivors.words(survivors.EXITED_LEADER, str(sign)))
    pid = peers.eventually(lambda: sign.exists() and sign.read_text())
    try:
        peers.eventually(lambda: int(pid) in peers.headless(peer.uid))
        found = read(peer.command, lease="none", machine=False, shared=False).processes
        assert pid in {name.partition(".")[0] for name in found}
    finally:
        os.kill(int(pid), signal.SIGKILL)
