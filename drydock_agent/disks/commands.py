"""The commands `drydock-agent disks` and `drydock-agent jobs`. They read and print JSON; an error has exit code 1."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from drydock_agent.disks import nvme, requests
from drydock_agent.disks.deployment import target, write
from drydock_agent.disks.erasure import erase, targets
from drydock_agent.disks.errors import DiskError
from drydock_agent.disks.inventory import disks
from drydock_agent.disks.jobs import Jobs, Work
from drydock_agent.disks.machine import Machine

Commands = Any


def add_commands(commands: Commands) -> None:
    """Add the commands to those of the program."""
    about = "List, erase and write the disks of this machine. Prints JSON."
    below = _group(commands, "disks", about)
    _command(below, "list", _list, "Print the disks with what they support.")
    for name, function, about in (
        ("erase", _erase, "Start a job that erases disks. Standard input has the request in JSON."),
        ("write", _write, "Start a job that writes an image to a disk. Standard input has the request in JSON."),
    ):
        one = _command(below, name, function, about)
        one.add_argument("--job", metavar="ID", required=True, help="Id of the job. Starting it again does nothing.")
    below = _group(commands, "jobs", "Show or stop jobs on the disks of this machine. Prints JSON.")
    for name, function, about in (
        ("show", _show, "Print the state of a job."),
        ("stop", _stop, "End the processes of a job."),
    ):
        _command(below, name, function, about).add_argument("id", metavar="ID", help="Id of the job.")


def _group(commands: Commands, name: str, about: str) -> Commands:
    parser = commands.add_parser(name, help=about, description=about)
    _root(parser, "")
    return parser.add_subparsers(required=True, metavar="COMMAND")


def _command(
    commands: Commands, name: str, function: Callable[[Machine, argparse.Namespace], Any], about: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=about, description=about)
    _root(parser, argparse.SUPPRESS)
    parser.set_defaults(command=lambda given: _printed(function, given))
    return parser


def _root(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the option for tests, which stands before or after the name of the command."""
    parser.add_argument("--root", metavar="FOLDER", default=default, help="Folder that stands for a machine.")


def _printed(function: Callable[[Machine, argparse.Namespace], Any], given: argparse.Namespace) -> int:
    """Print what a command returns, or its error. Return the exit code."""
    try:
        print(json.dumps(function(Machine(given.root), given)))
    except (DiskError, OSError) as error:
        known = error if isinstance(error, DiskError) else DiskError("system", f"{error}.")
        print(json.dumps({"error": known.to_json()}))
        return 1
    return 0


def _list(machine: Machine, given: argparse.Namespace) -> Any:
    spaces = [one.to_json() for one in nvme.controllers(machine)]
    return {"disks": [one.to_json() for one in disks(machine)], "controllers": spaces}


def _erase(machine: Machine, given: argparse.Namespace) -> Any:
    document = _document()
    request = requests.erase_request(document)

    def prepare() -> Work:
        chosen = targets(machine, request)
        return lambda journal: erase(machine, request, chosen, journal)

    return Jobs(machine).start(given.job, requests.digest({"erase": document}), prepare)


def _write(machine: Machine, given: argparse.Namespace) -> Any:
    document = _document()
    request = requests.write_request(document)

    def prepare() -> Work:
        disk = target(machine, request)
        return lambda journal: write(machine, request, disk, journal)

    return Jobs(machine).start(given.job, requests.digest({"write": document}), prepare)


def _show(machine: Machine, given: argparse.Namespace) -> Any:
    return Jobs(machine).show(given.id)


def _stop(machine: Machine, given: argparse.Namespace) -> Any:
    return {"id": given.id, "stopped": Jobs(machine).stop(given.id)}


def _document() -> Any:
    return requests.parsed(sys.stdin.buffer.read(requests.MOST_BYTES + 1))
