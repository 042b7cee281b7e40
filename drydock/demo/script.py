"""The scenes of the demo."""

from __future__ import annotations

import os
import socket
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from drydock.cli.toolkit.exits import undisturbed
from drydock.core import clock
from drydock.demo.demo_output import DemoOutput

if TYPE_CHECKING:
    from drydock_client.protocol import Client
    from interfaces.command import Command
    from interfaces.filesystem import Filesystem
    from interfaces.httpd import Httpd
    from leases.allocator import Lease


PATIENCE = 90.0

"""Seconds to wait for anything."""

PAGE = "<h1>Published by lease {id}</h1>\n"


class Demo:
    """The demo's scenes, in order."""

    def __init__(self, stage: DemoOutput) -> None:
        self.stage = stage
        self.leases: list[Lease] = []
        self.ports: set[int] = set()

    def run(self) -> None:
        """Run all scenes, from an empty state folder to an empty state folder."""
        from drydock.cli.toolkit.session import connect

        self.stage.scene("Engines: a private PostgreSQL and broker, and a worker for the duration of the demo")
        client = connect()
        self.client, self.owner = client, client.name
        self.stage.line("PostgreSQL is running, and its tables exist")
        with client.attended() as attended:
            attended.look()
            try:
                self._blueprints()
                host = self._host()
                storage = self._storage()
                first = self._page()
                second = self._takes_over(first)
                self.stage.scene("Release")
                for lease in (second, storage, host):
                    lease.release()
                self._give_all_back()
                self._timelines()
                self._nothing_left()
            finally:
                with undisturbed():
                    self._abandon(client)

    def _blueprints(self) -> None:
        self.stage.scene("Blueprints: this machine, folders on this machine, and web sites in folders")
        from drydock_client.values import BlueprintChange

        one = BlueprintChange(max_resources=1)
        for name, kind, config, change in (
            ("this-machine", "local_host", {}, BlueprintChange()),
            ("folders", "storage", {"disk_mib": 64}, BlueprintChange()),
            ("sites", "webroot", {"disk_mib": 64}, one),
        ):
            made = self.client.add_blueprint(name, kind, config, change)
            self.stage.promise(f"{name}: a {made.type} by kind {kind}", made.enabled, str(made.problems))

    def _lease(self, type_: str, **fields: Any) -> Lease:
        from leases.allocator import Allocator

        lease = Allocator(type_, owner=self.owner, ttl="10m", **fields).allocate()
        self.leases.append(lease)
        return lease

    def _active(self, lease: Lease) -> Lease:
        lease.wait_until_active(PATIENCE)
        self.stage.line(f"lease {lease.id}: {lease.info.type} {lease.info.resource_name} is active")
        return lease

    def _host(self) -> Lease:
        self.stage.scene("A host on this machine: run a command, write and read a file")
        lease = self._active(self._lease("host", vcpus=0.5, ram="64MiB"))
        done = cast("Command", lease.interface("command")).check(["uname", "-srm"])
        self.stage.promise(f"uname says {done.text.strip()}", done.text.startswith(os.uname().sysname))
        files = cast("Filesystem", lease.interface("filesystem"))
        _write(files)
        self.stage.promise("the file has the content that was written", files.read_text("notes/hello.txt") == HELLO)
        return lease

    def _storage(self) -> Lease:
        self.stage.scene("A folder with a size limit, on a host that the folder leases")
        lease = self._active(self._lease("storage", disk="64MiB"))
        files = cast("Filesystem", lease.interface("filesystem"))
        _write(files)
        self.stage.promise("the file has the content that was written", files.read_text("notes/hello.txt") == HELLO)
        return lease

    def _page(self) -> Lease:
        self.stage.scene("A web root in a folder on a host: publish a page, and fetch it over HTTP")
        lease = self._active(self._lease("webroot"))
        self._publish(lease)
        return lease

    def _publish(self, lease: Lease) -> str:
        page = PAGE.format(id=lease.id)
        uri = cast("Httpd", lease.interface("httpd")).publish("index.html", page)
        self.ports.add(int(uri.rsplit(":", 1)[1].split("/")[0]))
        status, server, body = fetch(uri)
        self.stage.line(f"{uri} answers {status}, served by {server}")
        self.stage.promise("a real nginx serves the page", body == page and "nginx" in server, body)
        return uri

    def _takes_over(self, first: Lease) -> Lease:
        self.stage.scene("Only one web root is allowed: a second lease waits, and gets it when the first lease ends")
        second = self._lease("webroot")
        until = clock.monotonic() + PATIENCE
        while not second.refresh().verdicts and clock.monotonic() < until:
            clock.sleep(0.05)
        verdict = second.verdicts[0] if second.verdicts else None
        said = "nothing" if verdict is None else f"{verdict.blueprint}: {verdict.sentence}"
        self.stage.line(f"lease {second.id} is {second.state}, place {second.info.place} in the queue; {said}")
        self.stage.promise("the second lease waits", second.state == "pending", second.state)
        began = clock.monotonic()
        first.release()
        self._active(second)
        self.stage.line(f"{clock.monotonic() - began:.2f} s after the release, including the cleaning")
        same = second.info.resource == self.client.lease(first.id).resource
        if os.geteuid() == 0:
            self.stage.promise("it got the web root that was released", same)
        else:
            # Leases share an account then: one could leave something behind that only another account finds.
            self.stage.promise("it got a new web root, because leases share an account here", not same)
        self._publish(second)
        return second

    def _give_all_back(self) -> None:
        until = clock.monotonic() + PATIENCE
        while clock.monotonic() < until:
            self.client.reclaim()
            if all(lease.refresh().over for lease in self.leases) and not self.client.resources():
                break
            clock.sleep(0.1)
        self._say_what_hangs()
        ended = [lease.id for lease in self.leases if lease.info.state == "destroyed"]
        self.stage.promise(f"{len(self.leases)} leases have ended", len(ended) == len(self.leases), str(ended))
        there = [f"{found.name} is {found.state}" for found in self.client.resources()]
        self.stage.promise("idle resources were removed", not there, ", ".join(there))

    def _say_what_hangs(self) -> None:
        for lease in self.leases:
            if not lease.info.over and lease.info.progress is not None:
                at = lease.info.progress
                self.stage.line(f"lease {lease.id} is stuck in phase {at.phase}: {at.step} {at.sentence}")

    def _timelines(self) -> None:
        self.stage.scene("The history of each lease, from its events")
        for lease in self.leases:
            self.stage.line(f"lease {lease.id}: {lease.info.type}")
            events = [e for e in self.client.events(lease=lease.id) if e.to_state]
            rows = [(e.at, e.to_state, e.duration, e.actor, e.message or e.reason) for e in events]
            self.stage.table(("at", "state", "after", "who", "message"), rows)
            way = [e.to_state for e in events]
            self.stage.promise("its timeline is complete", way[0] == "pending" and way[-1] == "destroyed", str(way))

    def _nothing_left(self) -> None:
        from leases.models import Job, Run, Share, SlotLock

        self.stage.scene("Nothing is left")
        for model in (Share, SlotLock, Run, Job):
            there = model._default_manager.count()
            self.stage.promise(f"no {model._meta.verbose_name} in the database", there == 0, str(there))
        open_ones = [port for port in self.ports if _listens(port)]
        self.stage.promise(f"no program listens on port {_join(self.ports)}", not open_ones, str(open_ones))
        hosts = Path(os.environ["DRYDOCK_STATE"]) / "hosts"
        left = [str(path) for path in hosts.rglob("*") if path.is_dir() or not path.name.startswith(".")]
        self.stage.promise("no folder of a lease is left", not [p for p in left if "-l" in p], str(left[:5]))

    def _abandon(self, client: Client) -> None:
        """Release every lease and remove what is left, however the demo ended."""
        client.close()
        for lease in self.leases:
            lease.release()
        if any(not lease.refresh().over for lease in self.leases) or client.resources():
            self._give_all_back()


HELLO = "written by the lease\n"


def _write(files: Filesystem) -> None:
    files.mkdir("notes")
    files.write_text("notes/hello.txt", HELLO)


def fetch(uri: str) -> tuple[int, str, str]:
    """Return the status, the Server header and the body of a page."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(uri, timeout=10) as answer:
        return answer.status, answer.headers.get("Server", ""), answer.read().decode()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _join(ports: set[int]) -> str:
    return " and ".join(str(port) for port in sorted(ports))
