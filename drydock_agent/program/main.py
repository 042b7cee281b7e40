"""The command line of `drydock-agent`."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from drydock_agent import boot_medium, disks
from drydock_agent.driver import NotInstalled
from drydock_agent.messages import moment
from drydock_agent.package import version
from drydock_agent.program import certificate
from drydock_agent.program.agent import Agent, join
from drydock_agent.program.connection import Connection
from drydock_agent.program.endpoints import Endpoints
from drydock_agent.program.errors import AgentError, NotAccepted
from drydock_agent.program.host import ThisHost, host_name
from drydock_agent.program.signals import Stop
from drydock_agent.program.state import State, StateFolder
from drydock_agent.program.upgrade import SECONDS, Restart, Upgrades, check
from drydock_agent.wire import Malformed

STATE = "/var/lib/drydock-agent"
"""The folder of the state if neither --state nor DRYDOCK_AGENT_STATE names one."""
_AGAIN = "Join with a new code, which `drydock agents join BLUEPRINT --host HOST` creates on the server."


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 1 for an error, 3 if the server does not accept the agent any more."""
    given = _parser().parse_args(argv)
    try:
        return int(given.command(given))
    except NotAccepted as error:
        _say(f"{error} {_AGAIN}")
        return error.exit_code
    except (AgentError, Malformed, NotInstalled) as error:
        _say(str(error))
        return getattr(error, "exit_code", 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("drydock-agent", description="Reports the hardware of this host to Drydock.")
    parser.add_argument("--version", action="version", version=version())
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    joining = _command(commands, "join", _join, "Join a server, with a code that it created.")
    joining.add_argument("server", metavar="URL", help="Address of the server, such as https://drydock.example.org.")
    joining.add_argument("--code", metavar="FILE", required=True, help="File with the join code; - is standard input.")
    joining.add_argument("--ca", metavar="FILE", default="", help="Certificates to trust instead of the system's.")
    joining.add_argument("--name", default="", help="Name of this host, if not that of the system.")
    running = _command(commands, "run", _run, "Report the hardware and obey orders, until SIGTERM.")
    once = _command(commands, "once", _once, "Report the hardware once, and carry out the orders that are there.")
    greeting = _command(commands, "hello", _hello, "Say hello to the server, which renews the token, and end.")
    _command(commands, "status", _status, "Show which server the agent joined. Asks nothing of the server.")
    _command(commands, "check", _check, "Check that the program and its drivers can be loaded, and show its version.")
    disks.add_commands(commands)
    boot_medium.add_commands(commands)
    _listening(running)
    running.add_argument(
        "--trial-seconds", metavar="SECONDS", type=float, default=SECONDS,
        help=f"How long a new version has to say hello before it replaces this one. Default: {SECONDS:g}",
    )  # fmt: skip
    for one in (joining, running, once, greeting):
        one.add_argument("--root", metavar="FOLDER", default="", help="Captured tree to report, instead of this host.")
    return parser


def _listening(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--drivers", metavar="ADDRESS", default="",
        help="Take hellos of separate drivers on this local address: unix:/PATH or 127.0.0.1:PORT.",
    )  # fmt: skip
    parser.add_argument(
        "--driver-secret",
        metavar="FILE",
        default="",
        help="File with the secret that drivers present. Default: driver-secret in the state folder, made if missing.",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="",
        help="Also listen for the server, over TLS, so that it can order a discovery at once.",
    )
    parser.add_argument(
        "--announce",
        metavar="HOST:PORT",
        default="",
        help="Address at which the server reaches this agent, if it is not that of --listen.",
    )
    parser.add_argument(
        "--certificate",
        metavar="FILE",
        default="",
        help="Certificate in PEM to listen with. Default: one that openssl makes once, in the state folder.",
    )
    parser.add_argument("--key", metavar="FILE", default="", help="Key of that certificate. Default: the same file.")


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, function: object, help: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help, description=help)
    default = os.environ.get("DRYDOCK_AGENT_STATE") or STATE
    parser.add_argument("--state", metavar="FOLDER", default=default, help=f"Folder of the token. Default: {default}")
    parser.set_defaults(command=function)
    return parser


def _join(given: argparse.Namespace) -> int:
    folder = StateFolder(Path(given.state))
    ca = str(Path(given.ca).resolve()) if given.ca else ""
    connection = Connection(given.server, ca=ca)
    host = ThisHost(root=given.root)
    with folder.locked():
        state = join(connection, host, folder, code=_code(given.code), name=given.name or host_name(), ca=ca, say=_say)
    print(f"This host joined blueprint {state.blueprint} as agent {state.agent}, for {state.place}.")
    return 0


def _code(path: str) -> str:
    """Return the join code. It is not given as an argument, because every account of the host could read it there."""
    try:
        if path != "-":
            text = Path(path).read_text()
        else:
            text = getpass.getpass("Join code: ") if sys.stdin.isatty() else sys.stdin.readline(1000)
    except (OSError, UnicodeDecodeError) as error:
        raise AgentError(f"{path} cannot be read: {error}.") from None
    code = text.strip()
    if not code.isascii() or not code.isprintable() or not 1 <= len(code) <= 200 or " " in code:
        raise AgentError("This is not a join code. Create one on the server: drydock agents join BLUEPRINT")
    return code


def _run(given: argparse.Namespace) -> int:
    folder, stop = StateFolder(Path(given.state)), Stop()
    with folder.locked(), stop.handled(), contextlib.ExitStack() as serving:
        endpoints = Endpoints(folder, given, stop)
        state = _joined(folder)
        agent = _agent(given, folder, state, endpoints.host(given.root))
        endpoints.serve(agent, serving)
        _say(f"Agent {agent.state.agent} reports to {agent.state.server} every {agent.state.interval:g} seconds.")
        try:
            agent.run(stop)
        except Restart:
            serving.close()
            _restart(folder, state)
    _say("The agent ended.")
    return 0


def _once(given: argparse.Namespace) -> int:
    folder = StateFolder(Path(given.state))
    with folder.locked():
        state = _joined(folder)
        try:
            _agent(given, folder, state, ThisHost(root=given.root)).once()
        except Restart:
            _restart(folder, state)
    return 0


def _hello(given: argparse.Namespace) -> int:
    folder = StateFolder(Path(given.state))
    with folder.locked():
        agent = _agent(given, folder, _joined(folder), ThisHost(root=given.root))
        agent.hello()
    print(f"{agent.state.server} accepted version {version()}.")
    return 0


def _check(given: argparse.Namespace) -> int:
    print(check())
    return 0


def _restart(folder: StateFolder, state: State) -> None:
    _say("The agent starts again, with another version.")
    sys.stdout.flush()
    Upgrades(folder, Connection(state.server, ca=state.ca)).restart()


def _agent(given: argparse.Namespace, folder: StateFolder, state: State, host: ThisHost) -> Agent:
    connection = Connection(state.server, ca=state.ca)
    seconds = getattr(given, "trial_seconds", SECONDS)
    root = ("--root", str(Path(given.root).absolute())) if given.root else ()
    return Agent(
        connection, host, folder, state, _say, upgrades=Upgrades(folder, connection, seconds=seconds, root=root)
    )


def _joined(folder: StateFolder) -> State:
    state = folder.load()
    if state is None:
        raise AgentError(
            f"This host has not joined: {folder.path} has no token. Run `drydock-agent join URL --code -`."
        )
    return state


def _status(given: argparse.Namespace) -> int:
    state = _joined(StateFolder(Path(given.state)))
    left = (moment(state.expires_at) - datetime.now(UTC)).total_seconds()
    token = f"valid until {state.expires_at}" if left > 0 else f"expired at {state.expires_at}. {_AGAIN}"
    pair = certificate.made(Path(given.state))
    for name, text in (
        ("server", state.server), ("agent", state.agent), ("blueprint", state.blueprint), ("place", state.place),
        ("host", state.name), ("interval", f"{state.interval:g} s"), ("token", token), ("version", version()),
        *((("certificate", pair.fingerprint),) if pair else ()),
    ):  # fmt: skip
        print(f"{name:10} {text}")
    return 0 if left > 0 else 3


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
