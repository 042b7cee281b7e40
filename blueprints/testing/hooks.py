"""The hooks by which the author of a kind describes it to the conformance suite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

from pydantic import SecretStr

from blueprints.amounts import Amounts
from blueprints.answers import Hold, Json, Maintenance, NeededLease, NeededLock, Resolution
from blueprints.contract import Kind
from blueprints.hostshell import HostShell
from blueprints.leftovers import Outside as Outsiders
from blueprints.specs import Control, LeaseView, ResourceView
from blueprints.testing.rules import texts
from interfaces.command.contract import Command
from interfaces.console.contract import Console
from interfaces.contract import Interface
from interfaces.dpu_services import DpuServices, Service
from interfaces.filesystem.contract import Filesystem
from interfaces.httpd.contract import Httpd


@dataclass(frozen=True, kw_only=True)
class Outside:
    """An object that exists outside the allocator, for example at the provider.

    Objects made for the same key must have the same `name`.
    """

    name: str
    tags: Mapping[str, str] | None = field(default=None, compare=False)
    """The tags of the object; None if objects of its type have no tags."""


class Hooks:
    """The hooks. `kind` and `outside` are always required, the others if the kind has the capability that they name."""

    kind: ClassVar[Kind]
    pace: ClassVar[float] = 0.0
    """Maximum seconds to sleep for one Wait; 0 for a provider that needs no time."""

    def config(self) -> Json:
        """Return a valid config of a blueprint."""
        return {}

    def credentials(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the secrets of the credentials that the config names."""
        return {}

    def secrets_of(self, credential: Mapping[str, Any]) -> Iterable[str]:
        """Return the texts of a credential that must stay secret.

        If the kind's Credential has SecretStr fields, only those are secret, because facts may contain a region or a
        project; otherwise all are.
        """
        open_ones = _open_fields(getattr(self.kind, "Credential", None))
        return [text for name, value in credential.items() if name not in open_ones for text in texts(value)]

    def requirements(self) -> Json:
        """Return requirements that the config's resources meet."""
        return {}

    on_host: ClassVar[bool] = False
    """Whether leases of the bench run commands on a real host, so that the leftover suite applies."""

    def own_account(self, lease: LeaseView) -> bool:
        """Return whether the lease has an account that no other lease uses. Used with `on_host`."""
        return bool(lease.facts.get("isolation") == "uid")

    def home_above(self, lease: LeaseView) -> str:
        """Return the home of the account, if the lease's home is a folder in it. Used with `on_host`."""
        return str(lease.resource.facts.get("home", ""))

    def neighbour(self, resource: ResourceView) -> LeaseView | None:
        """Return another active lease on the same host that has an account of its own, or None if there is none."""
        return None

    def outside_looks(self) -> Outsiders | None:
        """Return access to the host that bypasses its leases, or None. Used with `on_host`."""
        return None

    def must_be_planted(self) -> Iterable[str]:
        """Return the rows of the suite that must be planted there. Used with `on_host`."""
        return ()

    def impossible(self) -> Json | None:
        """Return requirements that no resource meets, or None if the kind has no requirements."""
        return None

    def amounts(self) -> Amounts:
        """Return how much of the resource the lease takes."""
        return Amounts()

    def outside(self) -> Sequence[Outside]:
        """Return all objects of the kind that exist outside now, without asking the kind."""
        raise NotImplementedError

    def wrong_secrets(self) -> Sequence[Mapping[str, Any]]:
        """Return secrets of credentials that the provider refuses. Required for Offers."""
        return ()

    def begun_again(self, resource: ResourceView, built: ResourceView) -> ResourceView:
        """Return the resource with which a repeated build begins.

        If the first step decides something at random that the others rely on, return it with that decision, which the
        engine stores before anything is made.
        """
        return resource

    def registration(self) -> Json:
        """Return a valid registration. Required for Registers."""
        raise NotImplementedError

    def plant(self) -> None:
        """Create an object for `discover` to find. Required for Discovers."""
        raise NotImplementedError

    def kill(self, resource: ResourceView) -> None:
        """Make the resource unhealthy from outside, without using the kind. Required for Checks."""
        raise NotImplementedError

    def degrade(self, resource: ResourceView) -> bool:
        """Make the resource degraded, but usable, from outside. Return False if the kind reports no health."""
        return False

    def touch(self, resource: ResourceView) -> bool:
        """Change an object of the resource from outside. Return False if the config lets nothing be watched."""
        return False

    def power_of(self, resource: ResourceView) -> str:
        """Return "on" or "off", as seen from outside. Required for Powers."""
        raise NotImplementedError

    def disk_of(self, resource: ResourceView) -> int:
        """Return the size of the disk in GiB, as seen from outside. Required for Resizes."""
        raise NotImplementedError

    def disk_sizes(self) -> Sequence[int]:
        """Return the sizes in GiB to which the disk grows, in this order. Required for Resizes.

        Return only one if the provider lets a disk grow only once in a while.
        """
        return 200, 300

    def types(self) -> tuple[str, str]:
        """Return the type of the resource, and another type that it can change to. Required for Retypes."""
        raise NotImplementedError

    def type_of(self, resource: ResourceView) -> str:
        """Return the type of the resource, as seen from outside. Required for Retypes."""
        raise NotImplementedError

    def tags_of(self, resource: ResourceView) -> Mapping[str, str]:
        """Return the tags of the resource, as seen from outside. Required for Tags."""
        raise NotImplementedError

    def act_arguments(self, act: str) -> Json:
        """Return valid arguments for an act. Required for Acts with required arguments."""
        return {}

    def seen_of_act(self, resource: ResourceView, act: str) -> Json:
        """Return what an act has changed, as seen from outside, without anything that differs between two runs."""
        return {}

    def write_console(self, resource: ResourceView, text: str) -> None:
        """Write a text on the resource's console. Required for Consoles."""
        raise NotImplementedError

    def cut_off(self, resource: ResourceView) -> AbstractContextManager[None]:
        """Keep the resource from answering within the block. Required for kinds with `unreachable` codes."""
        raise NotImplementedError

    def changed_config(self) -> Json | None:
        """Return a config that differs from `config()` in fields that change while leases hold the resource.

        Return None if every change of the config disturbs leases.
        """
        return None

    def access_of(self, lease: LeaseView) -> Sequence[str]:
        """Return the accounts, keys, processes and services of the lease. Required for Activates."""
        raise NotImplementedError

    def service(self) -> Service:
        """Return a service whose chart the config allows. Required for the interface `dpu_services`."""
        raise NotImplementedError

    def litter(self, lease: LeaseView) -> None:
        """Leave something on the resource, as the lease's user would. Required for Cleans."""
        raise NotImplementedError

    def left_by(self, lease: LeaseView) -> Sequence[str]:
        """Return everything that the lease has left and that still exists. Required for Cleans."""
        raise NotImplementedError

    def use(self, interface: Interface) -> None:
        """Do something small with an opened interface. Override it for interfaces of your own."""
        match interface:
            case Command():
                assert interface.run(["true"], timeout=30).ok
            case Filesystem():
                interface.write_bytes("conformance", b"written")
                assert interface.read_bytes("conformance") == b"written"
                interface.remove("conformance")
            case Httpd():
                interface.status()
            case DpuServices():
                self._use_services(interface)
            case Console():
                line = interface.connect(timeout=30)
                try:
                    assert line.write(b"\r") in (0, 1)
                    line.read(0.1)
                finally:
                    line.close()
            case _:
                raise NotImplementedError(f"use() does not support the interface {interface.name!r}")

    def _use_services(self, services: DpuServices) -> None:
        wanted = self.service()
        services.apply(wanted)
        assert services.show(wanted.name).service == wanted
        assert [one.service.name for one in services.list()] == [wanted.name]
        services.remove(wanted.name)

    def use_control(self, control: Control) -> None:
        """Run something over a control connection. Required for Controls.

        Override it if nothing can be run there.
        """
        shell = HostShell(control.transport, 30)
        assert int(shell.run("id -u")) != control.uid
        assert shell.as_root("id -u").split() == ["0"]
        assert shell.as_root('stat -c %u -- "$1"', control.home).split() == [str(control.uid)]

    def supply(self, needed: NeededLease) -> LeaseView:
        """Return a lease that the kind requests."""
        raise NotImplementedError(f"{self.kind.name} needs a lease {needed.name!r} of type {needed.type!r}")

    def lock(self, needed: NeededLock) -> str:
        """Return the slot lock that the kind requests: one of its candidates."""
        return needed.candidates[0]

    def maintain(self, maintenance: Maintenance) -> None:
        """Carry out maintenance that the kind requests."""

    def resolve(self, hold: Hold) -> Resolution | None:
        """Answer a hold of the kind as an operator would, after doing what it asks for. Return None for no answer."""
        return None


def _open_fields(credential: Any) -> set[str]:
    """Return the fields of a credential's class that are not secret; empty if the class marks none as secret."""
    fields = credential.model_fields if credential is not None else {}
    secret = {name for name, one in fields.items() if SecretStr in (one.annotation, *get_args(one.annotation))}
    return fields.keys() - secret if secret else set()
