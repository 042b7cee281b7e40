"""Clients that break the provider contract in one point each: what every check of the suite has to notice."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from blueprints.cloud.client import Client, UserData
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Market
from interfaces.keys import new_key_pair

Broken = Callable[[type[Client]], type[Client]]


def altered(method: str, answer: Callable[..., Any]) -> Broken:
    """A class whose method is `answer(client, sound, *arguments)`, where `sound` is what it was."""

    def derive(base: type[Client]) -> type[Client]:
        sound = getattr(base, method)

        def broken(self: Any, *arguments: Any) -> Any:
            return answer(self, lambda *given: sound(self, *given), *arguments)

        return type(f"Broken{base.__name__}", (base,), {method: broken})

    return derive


def nothing(method: str) -> Broken:
    """It does nothing, and says that it has."""
    return altered(method, lambda self, sound, *arguments: None)


_numbers = count()


def _another_host_key(self: Any, sound: Any, order: Any, prepared: Any) -> Any:
    """The image makes a host key of its own."""
    head, _, body = order.user_data.partition("\n")
    said, pair = json.loads(body), new_key_pair("another")
    said["ssh_keys"] = {"ed25519_private": pair.private, "ed25519_public": pair.public}
    return sound(replace(order, user_data=f"{head}\n{json.dumps(said)}"), prepared)


def _not_there_is_an_error(self: Any, sound: Any, instance: Any) -> Any:
    found = self.instance(instance.location, instance.zone, instance.key, instance.id)
    if found is None or found.state == "terminated":
        raise CloudError(Meaning.NOT_FOUND, "There is no such machine.")
    return sound(instance)


def _free(self: Any, sound: Any, location: str) -> Any:
    return [replace(one, prices=tuple(replace(price, per_hour=0.0) for price in one.prices)) for one in sound(location)]


def _sound_image(self: Any, sound: Any, location: str, wanted: Any, arch: str) -> Any:
    return sound(location, {**wanted, "id": wanted["id"].removesuffix("0")}, arch) if "id" in wanted else None


BROKEN: dict[str, Broken] = {
    "identity": altered("identity", lambda self, sound: f"{sound()}-{next(_numbers)}"),
    "locations": altered("locations", lambda self, sound: [replace(one, available=False) for one in sound()]),
    "types": altered("types", lambda self, sound, place: list(sound(place))[next(_numbers) % 2 :]),
    "prices": altered("types", _free),
    "quotas": altered("quotas", lambda self, sound, place: [*sound(place), *sound(place)]),
    "image-choice": altered("image", _sound_image),
    "images": altered("images", lambda self, sound, *given: list(reversed(sound(*given)))),
    "create": altered("create", lambda self, sound, *given: replace(sound(*given), tags={})),
    "repeated-create": altered(
        "create", lambda self, sound, order, given: sound(replace(order, token=f"again-{next(_numbers)}"), given)
    ),
    "listing": altered("instances", lambda self, sound, place, tags: sound(place, {})),
    "ssh": altered("create", _another_host_key),
    "tags": nothing("set_tags"),
    "console": altered("console", lambda self, sound, instance: ""),
    "reboot": nothing("reboot"),
    "resize-volume": nothing("resize_volume"),
    "stop-start": nothing("stop"),
    "change-type": nothing("change_type"),
    "lost-create": altered("find", lambda self, sound, order: None),
    "spot": altered("create", lambda self, sound, order, given: sound(replace(order, market=Market.ON_DEMAND), given)),
    "terminate": altered("terminate", _not_there_is_an_error),
    "nothing-left": altered("sweep", lambda self, sound, *given: [*sound(*given), "disk of another name"]),
}
"""Check -> a client that it does not pass; the checks that are not here have tests of their own."""
OPENED = {"opens nothing": nothing("open_ports"), "closes nothing": nothing("close_ports")}


class Plain(Client, UserData):
    """Another client's account, with as few capabilities as there can be. `refuses`: spot orders, as it has to."""

    provider = "plain"

    def __init__(self, behind: Client, *, refuses: bool = True) -> None:
        self.behind, self._refuses = behind, refuses
        self.find_after = behind.find_after  # type: ignore[misc]

    def identity(self) -> str:
        return self.behind.identity()

    def locations(self) -> Any:
        return self.behind.locations()

    def types(self, location: str) -> Any:
        return self.behind.types(location)

    def instances(self, location: str, tags: Mapping[str, str]) -> Any:
        return self.behind.instances(location, tags)

    def prepare(self, order: Any) -> Any:
        return self.behind.prepare(order)

    def create(self, order: Any, prepared: Mapping[str, str]) -> Any:
        if order.market is Market.SPOT and self._refuses:
            raise CloudError(Meaning.NOT_OFFERED, "There are no spot machines.")
        return self.behind.create(replace(order, market=Market.ON_DEMAND), prepared)

    def created(self, order: Any, handle: Mapping[str, str]) -> Any:
        return self.behind.created(order, handle)

    def find(self, order: Any) -> Any:
        return self.behind.find(order)

    def instance(self, *given: str) -> Any:
        return self.behind.instance(*given)

    def terminate(self, instance: Any) -> None:
        self.behind.terminate(instance)

    def sweep(self, location: str, zone: str, key: str, tags: Mapping[str, str], **how: Any) -> Sequence[str]:
        return self.behind.sweep(location, zone, key, tags, **how)

    def image(self, location: str, wanted: Mapping[str, str], arch: str) -> Any:
        return self.behind.image(location, wanted, arch)
