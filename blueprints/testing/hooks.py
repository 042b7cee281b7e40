"""What a stranger tells the conformance suite about a kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

from pydantic import SecretStr

from blueprints.amounts import Amounts
from blueprints.answers import Hold, Json, Maintenance, NeededLease, NeededLock
from blueprints.contract import Kind
from blueprints.hostshell import HostShell
from blueprints.leftovers import Outside as Outsiders
from blueprints.specs import Control, LeaseView, ResourceView
from blueprints.testing.rules import texts
from interfaces.command.contract import Command
from interfaces.contract import Interface
from interfaces.filesystem.contract import Filesystem
from interfaces.httpd.contract import Httpd


@dataclass(frozen=True, kw_only=True)
class Outside:
    """One thing that exists outside. `name` must be the same whenever it is made for the same key."""

    name: str
    tags: Mapping[str, str] | None = field(default=None, compare=False)
    """None: such things carry no tags."""


class Hooks:
    """The hooks. `kind` and `outside` are always needed, the others where the kind has that capability."""

    kind: ClassVar[Kind]
    pace: ClassVar[float] = 0.0
    """Most seconds to sleep for one Wait; 0 for a provider that needs no time."""

    def config(self) -> Json:
        """A valid config of a blueprint."""
        return {}

    def credentials(self) -> Mapping[str, Mapping[str, Any]]:
        """The secrets of the credentials that the config names."""
        return {}

    def secrets_of(self, credential: Mapping[str, Any]) -> Iterable[str]:
        """The texts of a credential that nobody may see: all, but for fields that the kind's Credential has beside
        those that it calls SecretStr: a region or a project stands in facts by right."""
        open_ones = _open_fields(getattr(self.kind, "Credential", None))
        return [text for name, value in credential.items() if name not in open_ones for text in texts(value)]

    def requirements(self) -> Json:
        """Requirements that the config's resources meet."""
        return {}

    on_host: ClassVar[bool] = False
    """Whether leases of the bench run commands on a real host, so that the leftover suite applies."""

    def own_account(self, lease: LeaseView) -> bool:
        """on_host: whether the lease has an account that is nobody else's."""
        return bool(lease.facts.get("isolation") == "uid")

    def home_above(self, lease: LeaseView) -> str:
        """on_host: the home of the account, where that of the lease is a folder in it."""
        return str(lease.resource.facts.get("home", ""))

    def neighbour(self, resource: ResourceView) -> LeaseView | None:
        """on_host: another active lease on the same host with an account of its own; None: there can be none."""
        return None

    def outside_looks(self) -> Outsiders | None:
        """on_host: those who can look at the host past its leases."""
        return None

    def must_be_planted(self) -> Iterable[str]:
        """on_host: the rows of the suite that are possible there: a test that plants nothing proves nothing."""
        return ()

    def impossible(self) -> Json | None:
        """Requirements that none of them meets; None: the kind has no requirements."""
        return None

    def amounts(self) -> Amounts:
        """What the lease takes of the resource."""
        return Amounts()

    def outside(self) -> Sequence[Outside]:
        """Look, not through the kind, for everything that the kind makes outside and that exists now."""
        raise NotImplementedError

    def wrong_secrets(self) -> Sequence[Mapping[str, Any]]:
        """Offers: secrets of credentials that the provider does not let in."""
        return ()

    def begun_again(self, resource: ResourceView, built: ResourceView) -> ResourceView:
        """The resource as a repeated build begins with it: as it was. Where the first step decides by chance what the
        others stand on, with what it decided: the engine keeps that before anything is made."""
        return resource

    def registration(self) -> Json:
        """Registers: a valid registration."""
        raise NotImplementedError

    def plant(self) -> None:
        """Discovers: put something there that is found."""
        raise NotImplementedError

    def kill(self, resource: ResourceView) -> None:
        """Checks: end the resource's health from outside, without its blueprint knowing."""
        raise NotImplementedError

    def power_of(self, resource: ResourceView) -> str:
        """Powers: "on" or "off", seen from outside."""
        raise NotImplementedError

    def disk_of(self, resource: ResourceView) -> int:
        """Resizes: GiB of its disk, seen from outside."""
        raise NotImplementedError

    def disk_sizes(self) -> Sequence[int]:
        """Resizes: GiB that its disk grows to, one size after the other. One alone where the provider lets a disk grow
        only once in a while."""
        return 200, 300

    def types(self) -> tuple[str, str]:
        """Retypes: the type that the resource is built as, and another that it can become."""
        raise NotImplementedError

    def type_of(self, resource: ResourceView) -> str:
        """Retypes: its type, seen from outside."""
        raise NotImplementedError

    def tags_of(self, resource: ResourceView) -> Mapping[str, str]:
        """Tags: those it bears, seen from outside."""
        raise NotImplementedError

    def write_console(self, resource: ResourceView, text: str) -> None:
        """Consoles: the resource writes on its console."""
        raise NotImplementedError

    def cut_off(self, resource: ResourceView) -> AbstractContextManager[None]:
        """Activates, of kinds that say what counts as `unreachable`: the resource does not answer meanwhile."""
        raise NotImplementedError

    def access_of(self, lease: LeaseView) -> Sequence[str]:
        """Activates: what lets the lease in or runs for it now: accounts, keys, processes."""
        raise NotImplementedError

    def litter(self, lease: LeaseView) -> None:
        """Cleans: leave something on the resource, as the lease's user would."""
        raise NotImplementedError

    def left_by(self, lease: LeaseView) -> Sequence[str]:
        """Cleans: what is there of the lease now."""
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
            case _:
                raise NotImplementedError(f"use() knows no interface {interface.name!r}")

    def use_control(self, control: Control) -> None:
        """Controls: do something with the way to a host. Override it where nothing can be run there."""
        shell = HostShell(control.transport, 30)
        assert int(shell.run("id -u")) != control.uid
        assert shell.as_root("id -u").split() == ["0"]
        assert shell.as_root('stat -c %u -- "$1"', control.home).split() == [str(control.uid)]

    def supply(self, needed: NeededLease) -> LeaseView:
        """A lease that the kind asks for."""
        raise NotImplementedError(f"{self.kind.name} needs a lease {needed.name!r} of type {needed.type!r}")

    def lock(self, needed: NeededLock) -> str:
        """A slot lock that the kind asks for: one of its candidates."""
        return needed.candidates[0]

    def maintain(self, maintenance: Maintenance) -> None:
        """Maintenance that the kind asks for."""

    def resolve(self, hold: Hold) -> bool:
        """What the kind holds for. False: nobody does it."""
        return False


def _open_fields(credential: Any) -> set[str]:
    """Fields of a credential's class that are no secrets; none where the class calls nothing a secret."""
    fields = credential.model_fields if credential is not None else {}
    secret = {name for name, one in fields.items() if SecretStr in (one.annotation, *get_args(one.annotation))}
    return fields.keys() - secret if secret else set()
