"""README, tour, tutorial and how-tos: every command in them is run from the page itself, or stands here with the
reason why it cannot be run on this machine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from drydock.engines import BROKER, POSTGRESQL, Config, ensure, leave, wait_until_stopped
from tests.cli.conftest import ROOT

_PROGRAMS = re.compile(
    r"(\.|cat|cp|createdb|createuser|curl|docker|drydock|echo|export|install|kill|kubectl|make|openapi-python-client"
    r"|pg_dump|pg_restore|pip|psql|python|ssh|sudo|systemctl|test|useradd|[A-Z_]+=\S+|/opt/drydock/\S+)(\s|$)"
)
"""How the commands of the pages begin. A block that begins otherwise is a file, or code."""

PATIENCE = 540
"""Seconds for the pages of one test, on a machine that others use, too."""

_CLOUD = "needs an account of a cloud: tests/clouds and tests/leases/test_cloud_hosts.py have emulated ones"
_MACHINE = "needs a cloud's machine: tests/leases/test_machines.py, tests/cli/test_machine.py"
_ORPHAN = "needs a stranger in an account: tests/operation/test_orphans.py"
_SERVER = "needs a database server of one's own: tests/operation/test_restore.py"
_SYSTEMD = "needs systemd, and accounts of the system: tests/operation/test_deploy.py"
_DOCKER = "needs Docker: tests/operation/test_deploy.py"
_CLUSTER = "needs a cluster: tests/operation/test_deploy.py"
_HOST = "needs a host behind SSH: tests/cli/test_ssh_host.py"
_RACK = "needs lists of Ironic or MAAS: tests/cli/test_hosts.py, tests/cli/test_host_files.py"
_CONTAINER = "needs a container engine: tests/leases/test_workloads.py"
_DPF = "needs an API server with DPF: tests/dpf/test_life.py, tests/dpf/test_deployments_life.py"
_CARD = "needs a card with a BMC: tests/bluefield/test_dpu_engine.py"
_HELD = "needs a step that waits for a person: tests/cli/test_operating.py"
_MAKE = "a target of make: .ci/run has it"


@dataclass(frozen=True, kw_only=True)
class Page:
    """How one page is run: what is said in other words here, what cannot be run, what ends with another code than 0."""

    path: str
    before: str = ""
    words: Mapping[str, str] = field(default_factory=dict)
    """Regular expressions, and what stands for them here."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """How commands begin that cannot be run here, and why."""
    codes: Mapping[str, int] = field(default_factory=dict)
    """How commands begin that end otherwise."""
    prints: Mapping[str, str] = field(default_factory=dict)
    """How commands begin, and a regular expression for what the page says, or means, that they print."""


_LEASED = "drydock blueprints add this-machine local_host\ndrydock lease host --keep --name mine --ttl 1h\n"
_NUMBERS = {r"\b12\b": "1", r"\b7\b": "1", r"\bNAME\b": "this-machine"}
_TOKEN = {
    "^drydock tokens create laptop": "drydock tokens create laptop | tee token #",
    "drydock login": "drydock login < token",
    "https://drydock.example.org": "$URL",
}

ALONE = [
    Page(
        path="README.md", words={"--vcpus 64 ": "--vcpus 640000 "},
        elsewhere={
            "make demo ": "tests/cli/test_demo.py", "make demo-hardware": "tests/cli/test_demo.py",
            "make demo-cloud": "tests/clouds/test_demo.py", "make demo-metal": "tests/metal/test_demo.py",
            "make demo-dpu": "tests/dpus/test_demo.py", "make test": _MAKE, "make lint": _MAKE,
        },
        codes={"drydock explain host --vcpus 64": 6},
        prints={"drydock lease host --vcpus 1": "^Linux ", "drydock run mine": "greeting$"},
    ),
    Page(
        path="docs/tour.md",
        words=_TOKEN | {
            "^drydock tokens create laptop": "up; drydock tokens create laptop | tee token #",
            "^make up": "curl -s $URL/healthz #", "--vcpus 64 ": "--vcpus 640000 ",
        },
        elsewhere={
            "test -e ~/.ssh": _HOST, "drydock credentials add lab": _HOST, "drydock blueprints add lab": _HOST,
            "drydock resources register lab": _HOST,
        },
        codes={"drydock explain host --vcpus 64": 6},
        prints={
            "drydock lease host --vcpus 1": "^Linux ", "drydock run mine": "greeting$",
            "drydock job output 1": "^done$", "drydock ls site": "index.html", "curl ": "<h1>Hello</h1>",
            "drydock lease host --vcpus 64": "^6$", "USER=": "^Linux ", "drydock lease host --ttl 1h": "^Linux ",
            "drydock attention": "^Nothing needs attention", "drydock httpd publish": r"^http://.*about\.html$",
        },
    ),
    Page(
        path="docs/tutorial.md", words={"make up": "up", "http://127.0.0.1:8000": "$URL"},
        elsewhere={"make demo": "tests/cli/test_demo.py"},
        prints={
            "drydock lease host --vcpus 1": "^Linux ", "drydock lease host --keep --name mine": "^lease 2 is active",
            "cat greeting": "^hello$", "drydock job output 1": r"^1\n2\n3$",
            "drydock lease host --keep --name third": r"^The request was released\.$(?s:.*)^exit code 5$",
            "drydock explain host --vcpus 10000": "^exit code 6$", 'curl "$(': "<h1>Hello</h1>",
            "drydock lease webroot": "^lease 7 is active", "USER=": "^Linux ", "curl -s": r'"results": \[\]',
            "drydock --server": "^" + re.escape(socket.gethostname()),
        },
    ),
]  # fmt: skip
TOGETHER = [
    Page(path="docs/how-to/use-rest.md", words=_TOKEN, before="up\n", elsewhere={
        "openapi-python-client": "tests/rest/test_generated_client.py",
    }),
    Page(path="docs/how-to/fleet.md", before="unset DRYDOCK_SERVER\n", elsewhere={
        "drydock instances create": _CLOUD, "drydock wait": _CLOUD, "drydock orphans d": _ORPHAN,
        "drydock orphans a": _ORPHAN,
    }),
    Page(path="docs/how-to/bluefield.md", elsewhere={
        one: _CARD for one in (
            "drydock blueprints", "drydock resources", "echo ", "cat >", "drydock lease dpu", "drydock run mine",
            "drydock release mine",
        )
    }),
    Page(path="docs/how-to/dpf.md", elsewhere={
        one: _DPF for one in (
            "drydock blueprints", "drydock lease dpu", "drydock attention",
            "drydock resources update", "drydock resources change",
        )
    }),
    Page(path="docs/how-to/cloud-hosts.md", words=_NUMBERS, elsewhere={
        "drydock credentials": _CLOUD, "drydock blueprints": _CLOUD, "drydock explain": _CLOUD, "drydock lease": _CLOUD,
        "drydock resources power": _CLOUD, "pip install": "the wheels of the clouds are among what tests need",
    }),
    Page(path="docs/how-to/machines.md", words=_NUMBERS, elsewhere={
        "drydock machine": _MACHINE, "drydock ssh": "tests/cli/test_ssh.py, tests/cli/test_ssh_config.py",
        "drydock port-forward": "tests/cli/test_ssh.py", "drydock access": "tests/cli/test_access.py",
        "drydock key": "tests/cli/test_access.py", "ssh ": "tests/cli/test_access.py",
    }),
    Page(path="docs/how-to/workloads.md", elsewhere={
        "drydock lease host --vcpus 2": "builds a program of the reader's",
        "drydock lease host --container": _CONTAINER,
        "drydock lease host --ttl 2h": "trains a model of the reader's", "drydock watch": "tests/cli/test_workloads.py",
    }),
    Page(path="docs/how-to/deploy.md", words={"http://127.0.0.1:8000": "$URL"}, elsewhere={
        "python -m venv": _SYSTEMD, "/opt/drydock": _SYSTEMD, "createuser": _SERVER, "createdb": _SERVER,
        "useradd": _SYSTEMD, "install ": _SYSTEMD, "systemctl": _SYSTEMD, "cp deploy/compose": _DOCKER,
        "docker": _DOCKER, "kubectl": _CLUSTER, "DJANGO_SETTINGS_MODULE=drydock.settings python -m django ch":
        "asks for a password: tests/cli/test_serving.py has `drydock users password`",
    }),
    Page(path="docs/how-to/attest-a-machine.md", elsewhere={
        "drydock attest": "needs a TDX guest: tests/rest/test_attestation.py", "NONCE=": "for the command below it",
        "PCS=": "needs Intel's service", "curl": "needs Intel's service: tests/client/test_attestation.py",
    }),
    Page(path="docs/how-to/move-from-ironic-or-maas.md", elsewhere={
        "drydock credentials": _RACK, "drydock blueprints": _RACK, "drydock hosts": _RACK,
    }),
    Page(path="docs/how-to/upgrade.md"),
    Page(path="docs/how-to/acts.md", words={r"^drydock resources acts card-1$": "drydock resources acts 1"}, elsewhere={
        "drydock resources act card-1": "tests/cli/test_operating.py",
        "drydock resources cancel": "tests/cli/test_operating.py",
    }),
    Page(path="docs/how-to/agents.md", elsewhere={
        "drydock agents install": "tests/rest/test_agent_install.py", "drydock agents join": "tests/cli/test_agents.py",
        "drydock agents confirm": "tests/rest/test_agent_endpoints.py", "docker": _DOCKER,
        "useradd": _SYSTEMD, "install ": _SYSTEMD, "runuser": _SYSTEMD, "systemctl": _SYSTEMD,
    }),
    Page(path="docs/how-to/operate.md", words=_NUMBERS | {"--vcpus 64 ": "--vcpus 640000 "}, elsewhere={
        "drydock resources destroy 7": "ends the only machine here: tests/cli/test_operating.py",
        "drydock resolve": _HELD, "drydock resources register lab": _HOST, "drydock resources change rack-7": _HOST,
        "drydock resources remove rack-7": _HOST, "psql": _SERVER, "curl": "tests/operation/test_metrics.py",
    }, codes={"drydock explain host --vcpus 64": 6, "drydock resources update 7": 4},
        prints={"drydock resources update 7": r"vm is up to date\."}),
    Page(
        path="docs/how-to/back-up.md", words={"^drydock confirm-installation": "drydock confirm-installation --yes #"},
        elsewhere={"pg_": _SERVER, "createdb": _SERVER, "sudo tar": _SERVER},
        # What is suspended is not well.
        codes={"drydock doctor ": 0, "drydock doctor": 1},
        prints={"drydock installation": r"^going back to Monday\. Nothing outside the database is changed until"},
    ),
    Page(path="docs/how-to/secure.md", words={r"\brevoke 3\b": "revoke 1"}, elsewhere={
        "make audit": "needs the internet", "drydock credentials": _HOST,
        "DRYDOCK_ENCRYPTION_KEYS": "tests/core/test_rotation.py",
    }),
]  # fmt: skip
"""In this order: later ones end what earlier ones use."""
WITHOUT = {
    "docs/how-to/cloud.md", "docs/how-to/costs.md", "docs/how-to/dpu-services.md",
    "docs/how-to/from-a-box-to-a-lease.md", "docs/how-to/kind.md",
    "docs/how-to/lease-a-gpu.md", "docs/how-to/validate-a-host.md",
    "docs/how-to/validate-a-provider.md", "docs/how-to/write-a-bmc-driver.md", "docs/how-to/write-a-hardware-driver.md",
    "docs/how-to/validate-a-server.md", "docs/how-to/write-a-switch-driver.md",
}  # fmt: skip
"""Pages with no command in a block of its own: test_docs looks at what they name."""


@pytest.fixture(autouse=True)
def _database():
    """The pages are read as users read them, with no database of the tests."""


def blocks(page: Path) -> list[list[str]]:
    """The indented blocks of a page, without their indentation."""
    found: list[list[str]] = []
    before, fenced = "", False
    for line in page.read_text().splitlines():
        fenced ^= line.startswith("```")
        inside = bool(found) and bool(found[-1])
        if line.startswith("    ") and not fenced and (inside or not before.strip()):
            if not inside:
                found.append([])
            found[-1].append(line[4:])
        elif line.strip() or not inside:
            found.append([])
        else:
            found[-1].append("")
        before = line
    return [block for block in found if any(block)]


def commands(page: Path) -> list[str]:
    """What a reader would type, one command each, with what belongs to it on further lines."""
    found: list[str] = []
    for block in blocks(page):
        lines = [line.removeprefix("   ") for line in block]
        if _PROGRAMS.match(lines[0]) is None:
            continue
        until, joined = "", False
        for line in lines:
            if until or joined:
                found[-1] += f"\n{line}"
            elif line.strip() and not line.startswith(("#", " ")) and line.split()[0] not in ("GET", "write_files:"):
                found.append(line)
            until = _heredoc(line, until)
            joined = line.endswith("\\")
    return found


def _heredoc(line: str, until: str) -> str:
    """The word that ends the text which begins or goes on with this line."""
    if until:
        return "" if line == until else until
    begun = re.search(r"<<'(\w+)'", line)
    return begun[1] if begun else ""


def _split(page: Page) -> tuple[list[str], set[str]]:
    """The commands to run here, and the beginnings that some command of the page has."""
    run, met = [], set()
    for command in commands(ROOT / page.path):
        if why := [start for start in page.elsewhere if command.startswith(start)]:
            met.update(why)
        else:
            run.append(command)
    return run, met


def _said_here(page: Page, command: str) -> str:
    for words, here in page.words.items():
        command = re.sub(words, lambda _, here=here: here, command, flags=re.MULTILINE)
    return command


EVERY = [*ALONE, *TOGETHER]


def test_every_page_is_run_or_has_no_commands():
    there = {
        "README.md",
        "docs/tour.md",
        "docs/tutorial.md",
        *(f"docs/how-to/{one.name}" for one in (ROOT / "docs/how-to").iterdir()),
    }
    assert there == {page.path for page in EVERY} | WITHOUT
    assert {path for path in WITHOUT if commands(ROOT / path)} == set()
    assert sum(len(_split(page)[0]) for page in EVERY) > 140


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.path)
def test_what_cannot_be_run_here_is_still_in_its_page_and_tested_where_it_says(page):
    assert _split(page)[1] == set(page.elsewhere)
    for why in page.elsewhere.values():
        for path in re.findall(r"tests/[\w/]+(?:\.py)?", why):
            assert (ROOT / path).exists(), path


@pytest.fixture
def shell() -> Iterator[Callable[[Sequence[Page]], None]]:
    """Run pages one after the other in one shell, as a new user with an empty home does."""
    place = Path(tempfile.mkdtemp(prefix="dd-pages-", dir="/tmp"))
    place.chmod(0o711)
    config = Config(state=place / "state", linger=0.2, durable=False)
    config.state.mkdir(mode=0o711)
    ensure(config, POSTGRESQL)
    ensure(config, BROKER)
    yield lambda pages: _read(pages, place, config)
    leave(config.state)
    assert wait_until_stopped(config, 90)
    shutil.rmtree(place, ignore_errors=True)


_UP = """
up() {
    python -m drydock.up > up.log 2>&1 < /dev/null &
    echo $! > up.pid
    for _ in $(seq 200); do
        curl -sf -o /dev/null "$URL/healthz" && grep -q 'sign in as' up.log && return 0
        sleep 0.3
    done
    cat up.log
    return 1
}
trap 'test -e up.pid && kill -INT $(cat up.pid) && wait $(cat up.pid)' EXIT
"""


def _read(pages: Sequence[Page], place: Path, config: Config) -> None:
    work = place / "checkout"
    work.mkdir()
    (place / "home").mkdir()
    (work / ".venv").symlink_to(sys.prefix)
    listed = [(page, command) for page in pages for command in _split(page)[0]]
    script = [_UP, _LEASED if pages[0] not in ALONE else ""]
    for n, (page, command) in enumerate(listed):
        if page.before and page is not listed[n - 1][0]:
            script.append(page.before)
        script.append(f"echo '@@ begin {n}'\n{_said_here(page, command)}\nprintf '\\n@@ end %s\\n' $?")
    environment = {
        "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}", "HOME": str(place / "home"), "LANG": "C.UTF-8",
        "DRYDOCK_STATE": str(config.state), "DRYDOCK_ENGINE_DURABLE": "0", "DRYDOCK_WEB_PORT": str(_port()),
    }  # fmt: skip
    environment["URL"] = f"http://127.0.0.1:{environment['DRYDOCK_WEB_PORT']}"
    (place / "script").write_text("\n".join(script))
    with (place / "output").open("w") as output:
        reader = subprocess.Popen(
            ["bash", "--norc", str(place / "script")], cwd=work, env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            reader.wait(PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(reader.pid, signal.SIGINT if reader.returncode is None else signal.SIGTERM)
            reader.wait(60)
    _check(listed, (place / "output").read_text())


def _check(listed: Sequence[tuple[Page, str]], output: str) -> None:
    assert "Traceback" not in output, output
    assert "[Errno" not in output, output
    found = re.findall(r"^@@ begin (\d+)\n(.*?)^@@ end (\d+)$", output, re.MULTILINE | re.DOTALL)
    ended = {int(n): (text, int(code)) for n, text, code in found}
    wrong = []
    for n, (page, command) in enumerate(listed):
        assert n in ended, f"{page.path}: {command!r} was not reached:\n{output}"
        text, code = ended[n]
        if code != next((code for start, code in page.codes.items() if command.startswith(start)), 0):
            wrong.append(f"{page.path}: {command!r} ended with {code}:\n{text}")
        for start, said in page.prints.items():
            if command.startswith(start) and re.search(said, text, re.MULTILINE) is None:
                wrong.append(f"{page.path}: {command!r} printed:\n{text}")
    assert not wrong, "\n\n".join(wrong)


def _port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE + 60)
@pytest.mark.parametrize("page", ALONE, ids=lambda page: page.path)
def test_the_commands_of_the_page_do_what_it_says(page, shell):
    shell([page])


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE + 60)
def test_the_commands_of_the_how_tos_run(shell):
    shell(TOGETHER)
