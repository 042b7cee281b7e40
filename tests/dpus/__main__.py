"""Run the double as a process, for a demo. It ends with the end of its input, or on SIGTERM.

Commands on the input, one a line: `reboot HOST`, `off HOST`, `on HOST`, `park CARD` and `show`, which answers with one
line of JSON. It says "ready" when the machines are registered.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

from tests.dpus.double import Double
from tests.dpus.images import Image


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    cluster = arguments.cluster.read_text() if arguments.cluster else ""
    with Double(arguments.kubeconfig.read_text(), namespace=arguments.namespace, cluster=cluster) as double:
        for url in arguments.image:
            double.images[url] = Image()
        hosts = {}
        for text in arguments.host:
            name, _, serials = text.partition("=")
            hosts[name] = double.world.host(name, serials.split(","))
        double.start(arguments.seconds)
        print("ready", flush=True)
        for line in sys.stdin:
            print(_answer(double, hosts, line.split()), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.dpus", description="Play DPF's controllers on a server.")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="an administrator's; the server has the CRDs")
    parser.add_argument("--namespace", default="dpf-operator-system")
    parser.add_argument("--cluster", type=Path, help="a kubeconfig for the server that plays DPU clusters")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds in a phase (default: 1)")
    parser.add_argument("--host", action="append", default=[], metavar="NAME=SERIAL,...", help="a host with cards")
    parser.add_argument("--image", action="append", default=[], metavar="URL", help="an image that exists")
    return parser


def _answer(double: Double, hosts: dict[str, Any], words: list[str]) -> str:
    match words:
        case ["reboot", name] if name in hosts:
            hosts[name].reboot(by="operator")
        case ["off", name] if name in hosts:
            hosts[name].power_off(by="operator")
        case ["on", name] if name in hosts:
            hosts[name].power_on(by="operator")
        case ["park", serial] if double.world.find_card(serial):
            card = double.world.find_card(serial)
            assert card is not None
            card.power_off()
        case ["show"]:
            return json.dumps(_shown(double))
        case _:
            return f"unknown command or name: {' '.join(words)}"
    return "ok"


def _shown(double: Double) -> dict[str, Any]:
    cards = {card.serial: {"running": card.running, "imaged": card.imaged} for card in double.world.cards}
    reboots = {host.name: host.reboots for host in double.world.hosts.values()}
    return {"violations": list(double.violations), "errors": double.errors, "cards": cards, "reboots": reboots}


if __name__ == "__main__":
    sys.exit(main())
