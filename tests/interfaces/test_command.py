"""What `command` promises, over every transport."""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Callable

import psutil
import pytest

from drydock.core.errors import InvalidRequest
from interfaces.command import Output, ShellCommand
from interfaces.deadline import Cancel
from interfaces.errors import Cancelled, CommandFailed, CommandTimedOut, LeaseEnded, NotStarted
from tests.blueprints import survivors
from tests.interfaces.conftest import Peer

# A family that ignores a polite request, with a child in a session of its own that forgot its parent.
STUBBORN = "trap '' TERM; sleep 321 & (setsid sleep 321 &) ; setsid setsid sleep 321 & sleep 321"


def sleepers(peer: Peer) -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter(["cmdline", "cwd", "status"])
        if process.info["cmdline"] == ["sleep", "321"] and process.info["cwd"] == str(peer.home)
    ]


def gone(what: Callable[[], object]) -> bool:
    until = time.monotonic() + 20
    while what() and time.monotonic() < until:
        time.sleep(0.05)
    return not what()


def test_output_and_exit_code_are_kept_apart(peer: Peer) -> None:
    result = peer.command.run("echo out; echo err >&2; exit 7")
    assert (result.exit_code, result.signal) == (7, 0)
    assert (result.stdout, result.stderr) == (b"out\n", b"err\n")
    assert not result.ok
    assert not result.truncated


def test_a_signal_is_told(peer: Peer) -> None:
    result = peer.command.run(["/bin/sh", "-c", "kill -9 $$"])
    assert (result.exit_code, result.signal) == (137, 9)


def test_check_raises_with_the_result(peer: Peer) -> None:
    with pytest.raises(CommandFailed, match="no luck") as caught:
        peer.command.check("echo no luck >&2; exit 3")
    assert caught.value.result.exit_code == 3
    assert peer.command.check("true").ok


@pytest.mark.parametrize(
    "word",
    [
        "$(touch hit)", "`touch hit`", "; touch hit", "a b", "'", '"', "\\", "\\n\\0101", "-n", "--", "*", "~",
        "$HOME", "!!", "%s%n", "a\nb\n", "\t", "", "ü€😀", "&& touch hit", "|touch hit", "#", "{a,b}", "=", "\x7f",
    ],
)  # fmt: skip
def test_an_argument_arrives_exactly(peer: Peer, word: str) -> None:
    result = peer.command.check(["printf", "%s|", "first", word, "last"])
    assert result.stdout == f"first|{word}|last|".encode()
    assert not (peer.home / "hit").exists()


def test_every_byte_passes_in_arguments_variables_and_input(peer: Peer) -> None:
    every = bytes(range(1, 256))
    text = every.decode("utf-8", "surrogateescape")
    assert peer.command.check(["printf", "%s", text]).stdout == every
    assert peer.command.check('printf %s "$ODD"', env={"ODD": text}).stdout == every
    assert peer.command.check(["cat"], stdin=bytes(range(256))).stdout == bytes(range(256))


def test_long_arguments_and_input_pass(peer: Peer) -> None:
    words = [str(number) * 20 for number in range(4000)]
    assert peer.command.check(["printf", "%s\n", *words]).stdout.split() == [w.encode() for w in words]
    content = os.urandom(3 << 20)
    assert peer.command.check(["cat"], stdin=content, max_output=8 << 20).stdout == content


def test_input_that_nobody_reads_is_no_error(peer: Peer) -> None:
    assert peer.command.check(["true"], stdin=bytes(3 << 20)).stdout == b""


@pytest.mark.parametrize("words", [[], "", "  ", ["a\0b"], ["-x"], [""]])
def test_what_is_no_command_is_refused(peer: Peer, words: list[str] | str) -> None:
    with pytest.raises(InvalidRequest):
        peer.command.run(words)


@pytest.mark.parametrize("env", [{"A=B": "x"}, {"A B": "x"}, {"$(touch hit)": "x"}, {"": "x"}, {"A": "x\0"}])
def test_what_is_no_variable_is_refused(peer: Peer, env: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        peer.command.run("true", env=env)


def test_the_environment_is_clean(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "x")
    lines = peer.command.check(["env"], env={"MINE": "1"}).text.splitlines()
    names = {line.partition("=")[0] for line in lines}
    assert "MINE=1" in lines
    assert f"HOME={peer.home}" in lines
    usual = {"HOME", "PATH", "LANG", "PWD", "OLDPWD", "USER", "LOGNAME", "SHLVL", "_", "MINE", "DRYDOCK_RUN"}
    assert names <= usual


def test_an_argument_is_a_program_not_a_shell_word(peer: Peer) -> None:
    assert peer.command.run(["exit", "3"]).exit_code == 127
    assert peer.command.run(["no-such-program"]).exit_code == 127


def test_it_runs_in_the_home_or_where_asked(peer: Peer) -> None:
    peer.command.check(["mkdir", "a b"])
    assert peer.command.check("pwd").text.strip() == str(peer.home)
    assert peer.command.check("pwd", cwd="a b").text.strip() == f"{peer.home}/a b"
    assert peer.command.check("pwd", cwd="/").text.strip() == "/"


@pytest.mark.parametrize("cwd", ["missing", "/no/such/folder", "$(pwd)", "-"])
def test_a_missing_folder_is_told_apart_from_an_exit_code(peer: Peer, cwd: str) -> None:
    with pytest.raises(NotStarted):
        peer.command.run("true", cwd=cwd)


def test_output_comes_as_it_is_made(peer: Peer) -> None:
    seen: list[Output] = []

    def on_output(output: Output) -> None:
        seen.append(output)
        (peer.home / "go").touch()

    line = "echo one; until [ -e go ]; do sleep 0.05; done; echo two >&2"
    result = peer.command.run(line, on_output=on_output, timeout=60)
    assert [(each.stream, each.content) for each in seen] == [("stdout", b"one\n"), ("stderr", b"two\n")]
    assert result.stderr == b"two\n"


def test_a_stream_gives_the_output_and_the_failure(peer: Peer) -> None:
    assert b"".join(each.content for each in peer.command.stream("echo a; echo b")) == b"a\nb\n"
    with pytest.raises(CommandFailed, match="broken"):
        list(peer.command.stream("echo broken >&2; exit 4"))


def test_closing_a_stream_early_ends_the_command(peer: Peer) -> None:
    stream = peer.command.stream(["/bin/sh", "-c", "echo a; exec sleep 321"])
    assert next(iter(stream)).content == b"a\n"
    stream.close()  # type: ignore[attr-defined]
    assert gone(lambda: sleepers(peer))


def test_a_hundred_megabytes_do_not_stay_in_memory(peer: Peer) -> None:
    process, most = psutil.Process(), 0
    peer.command.run("head -c 1000000 /dev/zero")
    before, size = process.memory_info().rss, 0

    def on_output(output: Output) -> None:
        nonlocal most, size
        size += len(output.content)
        most = max(most, process.memory_info().rss)

    result = peer.command.check("echo begin; head -c 100000000 /dev/zero; echo end", on_output=on_output)
    assert size == 100_000_010
    assert most - before < 64 << 20
    assert result.truncated
    assert len(result.stdout) < 1.1 * (1 << 20)
    assert result.stdout.startswith(b"begin\n\0")
    assert result.stdout.endswith(b"\0end\n")
    assert b"bytes omitted" in result.stdout


def test_running_out_of_time_ends_the_whole_family(peer: Peer) -> None:
    with pytest.raises(CommandTimedOut) as caught:
        peer.command.run(f"echo here; {STUBBORN}", timeout=2)
    assert caught.value.left == 0
    assert caught.value.stdout == b"here\n"
    assert not sleepers(peer)


def test_another_thread_can_cancel(peer: Peer) -> None:
    cancel = Cancel()
    threading.Timer(1.0, cancel.cancel).start()
    with pytest.raises(Cancelled):
        peer.command.run(STUBBORN, cancel=cancel, timeout=100)
    assert not sleepers(peer)


def test_the_end_of_the_lease_ends_the_command(peer: Peer) -> None:
    over = threading.Event()

    def still_mine() -> None:
        if over.is_set():
            raise LeaseEnded

    command = ShellCommand(peer.transport, still_mine=still_mine)
    threading.Timer(1.0, over.set).start()
    with pytest.raises(LeaseEnded):
        command.run(STUBBORN, timeout=100)
    assert not sleepers(peer)
    with pytest.raises(LeaseEnded):
        command.run("touch hit")
    assert not (peer.home / "hit").exists()


def test_what_a_command_leaves_running_does_not_hold_it_up(peer: Peer) -> None:
    result = peer.command.run("sleep 321 & echo $!", timeout=60)
    assert result.ok
    assert sleepers(peer) == [int(result.stdout)]
    peer.command.check(["kill", result.text.strip()])
    assert gone(lambda: sleepers(peer))


def test_commands_run_side_by_side(peer: Peer) -> None:
    results: dict[int, bytes] = {}

    def one(number: int) -> None:
        results[number] = peer.command.check(f"sleep 0.2; echo {number}", timeout=60).stdout

    threads = [threading.Thread(target=one, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: f"{number}\n".encode() for number in range(20)}


def test_a_callback_that_raises_ends_the_command(peer: Peer) -> None:
    def on_output(output: Output) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        peer.command.run("echo a; exec sleep 321", on_output=on_output)
    assert gone(lambda: sleepers(peer))


def test_a_process_whose_first_thread_has_exited_ends_with_the_command(peer: Peer) -> None:
    peer.home.chmod(0o777)
    sign = peer.home / "sign"
    attack = shlex.join(survivors.words(survivors.EXITED_LEADER, str(sign)))
    with pytest.raises(CommandTimedOut) as caught:
        peer.command.run(f"{attack}; sleep 321", timeout=3)
    assert caught.value.left == 0
    last = sign.stat().st_mtime_ns
    time.sleep(0.3)
    assert sign.stat().st_mtime_ns == last
