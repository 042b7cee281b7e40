"""The scene of `make demo-hardware` with an agent: it joins, reports, is stopped, and its absence is noticed."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from drydock.core import clock
from drydock.core.errors import Conflict
from drydock.demo import captured

if TYPE_CHECKING:
    from drydock.demo.demo_output import DemoOutput
    from drydock_client.protocol import Client
    from drydock_client.values import Attention, ResourceInfo

BLUEPRINT = "reported"
INTERVAL = "2s"
"""Time between two reports. An agent that misses three of them is silent."""
_SERIAL, _UUID = "0423718026115", "GPU-8c1f0b7e-52d4-4a19-9be3-6d0a41c7e2f0"


class Stage(Protocol):
    """The interface of the demo that this scene uses."""

    stage: DemoOutput
    client: Client

    @property
    def host(self) -> str:
        """The id of this machine as a host."""

    def await_(self, what: str, found: Callable[[], Any]) -> None:
        """Wait until `found` returns something true. Promise `what`, unless it is empty."""


def show(demo: Stage, folder: Path) -> None:
    """Run an agent against a web process of the demo, stop it, and start it again. `folder` is for its files."""
    from drydock_client.values import BlueprintChange

    stage, client = demo.stage, demo.client
    stage.scene("An agent: it reports the hardware of its host, and its silence is noticed")
    root = folder / "reported"
    captured.write(root, serial=_SERIAL, uuid=_UUID)
    config = {"reports": "sent", "classes": ["gpu"]}
    made = client.add_blueprint(
        BLUEPRINT, "accelerators", config, BlueprintChange(discovery_interval=INTERVAL)
    )  # fmt: skip
    stage.promise(f"{made.name}: {made.type}s that an agent reports", made.enabled, str(made.problems))
    code = client.create_join_code(BLUEPRINT, host=demo.host).code
    with _web(folder / "web.log") as url:
        program = _Agent(folder / "agent", root, folder / "agent.log")
        stage.line(program.join(url, code))
        try:
            _watch(demo, program)
        finally:
            program.stop()
    for one in client.agents(blueprint=BLUEPRINT):
        client.revoke_agent(one.id)


def _watch(demo: Stage, program: _Agent) -> None:
    stage = demo.stage
    program.start()
    demo.await_("the agent reports a GPU", lambda: _gpu(demo))
    # The report is kept after its resources.
    demo.await_("", lambda: any(one.counts for one in demo.client.hardware_reports(blueprint=BLUEPRINT)))
    (report,) = demo.client.hardware_reports(blueprint=BLUEPRINT)
    states = ", ".join(f"{number} {state}" for state, number in sorted(report.counts["gpu"].items()))
    stage.line(f"hardware of {report.name}: gpu: {states}")
    stage.promise("its report shows what is ready and what is not", len(report.counts["gpu"]) == 2, states)

    stage.promise("the agent ends when it is told to", program.stop() == 0, program.said())
    demo.await_("", lambda: _silence(demo))
    found = _silence(demo)
    stage.promise("its silence is noticed, under attention", bool(found), program.said())
    for one in found:
        stage.line(f"{one.what}: {one.name}: {one.message}")
    gpu = _gpu(demo)
    closed = gpu is not None and gpu.suspect_since is not None
    stage.promise("what it reported serves no new leases meanwhile", closed, str(gpu and gpu.message))

    program.start()
    demo.await_("it returns, and so does the GPU", lambda: _is_back(demo))


def _gpu(demo: Stage) -> ResourceInfo | None:
    found = demo.client.resources(type="accelerator", blueprint=BLUEPRINT)
    return next((one for one in found if one.state == "active"), None)


def _silence(demo: Stage) -> list[Attention]:
    return [one for one in demo.client.attention() if one.what == "agent_silent"]


def _is_back(demo: Stage) -> bool:
    gpu = _gpu(demo)
    return not _silence(demo) and gpu is not None and gpu.suspect_since is None


class _Agent:
    """The program `drydock-agent`, as a process of its own."""

    def __init__(self, state: Path, root: Path, log: Path) -> None:
        self._state, self._root, self._log = state, root, log
        self._process: subprocess.Popen[bytes] | None = None

    def _words(self, command: str, *words: str) -> list[str]:
        program = [sys.executable, "-m", "drydock_agent.program", command, *words]
        return [*program, "--state", str(self._state), "--root", str(self._root)]

    def join(self, url: str, code: str) -> str:
        """Join a server, and return what the program says."""
        done = subprocess.run(
            self._words("join", url, "--code", "-"), input=code, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise Conflict(f"The agent could not join: {done.stderr.strip()}")
        return done.stdout.strip()

    def start(self) -> None:
        """Start to report."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._words("run"), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )  # fmt: skip

    def stop(self) -> int:
        """End the program if it runs, and return its exit code."""
        return 0 if self._process is None else _end(self._process)

    def said(self) -> str:
        """Return the end of its output."""
        return self._log.read_text(errors="replace")[-500:]


def _end(process: subprocess.Popen[bytes]) -> int:
    if process.poll() is None:
        process.terminate()
    try:
        return process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


@contextmanager
def _web(log: Path) -> Iterator[str]:
    """Run a web process on a free port of this machine. Yield its address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        words = ["--worker-class", "drydock.webworker.Worker", "--threads", "4", "--graceful-timeout", "1"]
        words += ["--no-control-socket", "--log-level", "warning", "--bind", f"fd://{listening.fileno()}"]
        with log.open("wb") as output:
            process = _spawned([sys.executable, "-m", "gunicorn", "drydock.wsgi", *words], output, listening.fileno())
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        _await_answer(url, process, log)
        yield url
    finally:
        _end(process)


def _spawned(words: Sequence[str], output: Any, inherited: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[inherited], cwd=_project()
    )


def _project() -> str:
    """Return the folder of the project, in which gunicorn finds it wherever the demo was started."""
    import drydock

    return str(Path(drydock.__file__).resolve().parents[1])


def _await_answer(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    import urllib.error
    import urllib.request

    until = clock.monotonic() + 60
    while clock.monotonic() < until and process.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/api/nothing", timeout=10)  # noqa: S310  (an address of our own)
        except urllib.error.HTTPError as error:
            error.close()
            return
        except OSError:
            clock.sleep(0.1)
    raise Conflict(f"The web process does not answer: {log.read_text(errors='replace')[-500:]}")
