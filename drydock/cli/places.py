"""`drydock locations` and `drydock instance-types`: where accounts are read, and what types there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from drydock.cli import offers, output
from drydock.cli import options as o
from drydock.cli.exits import guarded

if TYPE_CHECKING:
    from leases.client import InstanceTypeInfo


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("locations", rich_help_panel="Leases")(locations)
    app.command("instance-types", rich_help_panel="Leases")(instance_types)


@guarded
def locations(*, as_json: o.AsJson = False) -> None:
    """Where accounts are read, and when each place was."""
    found = o.client().locations()
    if as_json:
        return output.emit(found)
    rows = [
        (one.kind, one.account, one.name or "all", one.country, list(one.zones), one.offers,
         "not yet" if one.seen_at is None else output.ago(one.seen_at), one.message)
        for one in found
    ]  # fmt: skip
    return output.table(("kind", "account", "name", "country", "zones", "offers", "read", "says"), rows)


@guarded
def instance_types(
    *, gpu: offers.Gpu = "", gpus: offers.Gpus = 0, vcpus: offers.Vcpus = 0, ram: offers.Ram = "",
    arch: offers.Arch = "", confidential: offers.Confidential = None, type_: offers.Type = None,
    region: offers.Region = None, continent: offers.Continent = None, credential: offers.Credential = "",
    kind: offers.Kind = "", max_price: offers.MaxPrice = None, all_: offers.All = False, limit: offers.Limit = 50,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Types by location, with what they cost by market: the lowest of their zones."""
    asked: dict[str, Any] = {
        "gpu": gpu, "gpus": gpus, "vcpus": vcpus, "ram_mib": ram, "arch": arch, "confidential": confidential,
        "type": type_, "region": region, "continent": continent, "credential": credential, "kind": kind,
        "max_price": max_price, "all": all_,
    }  # fmt: skip
    wanted = {name: one for name, one in asked.items() if one is not None and one != ""}
    found = o.client().instance_types(wanted, limit=limit)
    if as_json:
        return output.emit(found)
    headers = ("kind", "account", "where", "type", "vcpus", "ram", "gpu", "confidential", "on demand", "spot")
    return output.table(headers, [_row(one) for one in found])


def _row(one: InstanceTypeInfo) -> tuple[Any, ...]:
    gpu = [str(one.gpu_count), one.gpu_maker, one.gpu_model] if one.gpu_count else []
    return (
        one.kind, one.account, one.location, one.type, one.vcpus, f"{one.ram_mib / 1024:g} GiB" if one.ram_mib else "",
        " ".join(filter(None, gpu)), list(one.confidential), _lowest(one, "on_demand"), _lowest(one, "spot"),
    )  # fmt: skip


def _lowest(one: InstanceTypeInfo, market: str) -> str:
    known = [price.price for price in one.prices if price.market == market and price.price is not None]
    return f"{min(known):.4f}" if known else ""
