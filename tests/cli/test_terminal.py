"""What tenants choose steers no operator's terminal: names, commands, file names, messages, output of jobs."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from drydock.core.characters import escaped, escaped_json, first_unsafe
from drydock.core.errors import InvalidRequest
from drydock.up import Log
from leases.validation import requests
from tests.cli.conftest import ROOT, Cli

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\u2066\u200f\x7f\r\x00\udce9\U000e0041"
SAFE = re.compile(r"\r?\x1b\[([0-9;]*m|\?25[lh]|2K|1A)")
"""Sequences of rich's own: colours, and those of a live display."""


def on_a_terminal(*command: str, environment: dict[str, str] | None = None) -> str:
    """What a program writes on a terminal."""
    ours, theirs = pty.openpty()
    found = b""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=ROOT, env=environment or dict(os.environ)
    )
    os.close(theirs)
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        found += part
    os.close(ours)
    assert process.wait() == 0, found
    return found.decode("utf-8", "surrogateescape").replace("\r\n", "\n")


def steering(text: str) -> str:
    """What in a text would steer a terminal, beside colours."""
    return first_unsafe(SAFE.sub("", text), allowed="\n\t")


def test_every_character_that_controls_or_directs_is_known() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        moves = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and code not in (0x200C, 0x200D)
        assert not moves or first_unsafe(character), hex(code)
    assert not first_unsafe("Zoë 漢字 عربى 👩‍🔧 ")
    assert json.loads(escaped_json(json.dumps(EVIL, ensure_ascii=False))) == EVIL
    assert not first_unsafe(escaped(EVIL))


SNIPPET = """
import sys
from types import SimpleNamespace as S
from drydock.cli.toolkit import output, waiting
from drydock.cli.toolkit.exits import tell
from drydock.demo.demo_output import DemoOutput
from drydock.core.errors import InvalidRequest
evil = {evil!r}
output.table(("a", evil), [(evil, [evil]), ({{evil: evil}}, 1)])
output.pairs(evil, [(evil, evil)])
output.line(evil), output.say(evil), output.emit({{evil: [evil]}}), output.emit_line(evil)
output.console().print(evil.replace("[", ""), markup=False)
DemoOutput().line(evil)
info = S(id=1, state="pending", reason="", place=None, progress=None, message=evil, resource_name=evil,
         verdicts=[S(blueprint=evil, answer=evil, sentence=evil)])
with waiting.display(False) as show:
    show([info], False)
shown = output.Stream()
for byte in evil.encode("utf-8", "surrogateescape") + b"\\x1b[31mred\\x1b[0m 100%\\rdone\\r\\n\\xe2":
    shown.write(bytes([byte]))
shown.end()
for as_json in (False, True):
    try:
        tell(InvalidRequest(evil, field=evil, hint=evil), as_json=as_json)
    except BaseException:
        pass
"""


def test_nothing_that_is_written_on_a_terminal_steers_it() -> None:
    said = on_a_terminal(sys.executable, "-c", SNIPPET.format(evil=EVIL))
    assert not steering(said), ascii(steering(said))
    assert "\\u202egnp.exe" in said
    assert "\x1b[31mred\x1b[0m 100%\ndone\n" in said, "colours of a job's own stay"


def test_a_pipe_gets_the_bytes_of_a_job_as_they_are() -> None:
    snippet = "from drydock.cli.toolkit import output\no = output.Stream()\no.write(bytes(range(256)))\no.end()"
    done = subprocess.run([sys.executable, "-c", snippet], capture_output=True, check=True, cwd=ROOT)
    assert done.stdout == bytes(range(256))
    raw = snippet.replace("Stream()", "Stream(raw=True)").replace("range(256)", "b'\\x1b[2J'").replace("bytes(b", "(b")
    assert "\x1b[2J" in on_a_terminal(sys.executable, "-c", raw)


def test_everything_is_written_through_one_module() -> None:
    for file in sorted(Path(ROOT, "drydock/cli").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            assert called != "print" or file.name == "output.py", f"{file.name}:{node.lineno}"  # type: ignore[attr-defined]
            assert not called.startswith("sys.stdout.write") or file.name == "output.py", file.name


def test_the_log_of_make_up_escapes_what_its_programs_say(capsys: pytest.CaptureFixture[str]) -> None:
    Log(["web"]).line("web", EVIL.replace("\udce9", ""))
    assert not steering(capsys.readouterr().out)


@pytest.mark.parametrize("odd", ["\x1b", "\x9b", "\x7f", "\u202e", "\u2066", "\u200f", "\u061c", "\u2028", "\ufeff"])
def test_names_refuse_control_and_direction_characters(odd: str) -> None:
    for given in ({"name": f"a{odd}b"}, {"labels": {"a": odd}}, {"charged_group": odd}, {"idempotency_key": odd}):
        with pytest.raises(InvalidRequest) as refused:
            requests.parse({"type": "fake", **given})
        assert not steering(str(refused.value))
    assert requests.parse({"type": "fake", "name": "Zoë 漢字 👩‍🔧"}).name


@pytest.mark.slow
def test_a_tenants_command_does_not_reach_an_operators_terminal(cli: Cli, host: str) -> None:
    command = "\x1b[2J\x9b1m\u202e"
    lease = str(cli.json("lease", host, "--keep")["leases"][0]["id"])
    job = str(cli.json("job", "start", lease, "--", "printf", "%s", command)["id"])
    try:
        for words in (("job", "list"), ("job", "show", job), ("events", "-n", "20"), ("job", "list", "--json"),
                      ("job", "output", job, "--follow")):  # fmt: skip
            said = on_a_terminal(sys.executable, "-m", "drydock", *words, environment=cli.environment)
            assert not steering(said), (words, ascii(said))
            assert command not in said
    finally:
        cli("release", lease)
