"""`drydock offers`, `locations` and `instance-types`: what providers offer, as last polled."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded

if TYPE_CHECKING:
    from drydock_client.protocol import Client
    from drydock_client.values import InstanceTypeInfo, OfferInfo


_WHAT, _WHERE, _COST = "Machine", "Where", "Price and time"

Gpu = Annotated[str, typer.Option("--gpu", metavar="MODEL", help="GPU model, for example a100.", rich_help_panel=_WHAT)]

Gpus = Annotated[int, typer.Option("--gpus", metavar="N", help="Minimum number of GPUs.", rich_help_panel=_WHAT)]

Maker = Annotated[str, typer.Option("--gpu-maker", help="GPU vendor: nvidia, amd, ...", rich_help_panel=_WHAT)]

GpuMemory = Annotated[
    str, typer.Option("--gpu-memory", metavar="SIZE", help="Minimum memory of each GPU.", rich_help_panel=_WHAT)
]

Vcpus = Annotated[int, typer.Option("--vcpus", help="Minimum number of vCPUs.", rich_help_panel=_WHAT)]

Ram = Annotated[
    str, typer.Option("--ram", metavar="SIZE", help='Minimum memory, such as "64GiB".', rich_help_panel=_WHAT)
]

Arch = Annotated[str, typer.Option("--arch", help="Architecture: x86_64 or arm64.", rich_help_panel=_WHAT)]

Confidential = Annotated[
    list[str] | None,
    typer.Option(
        "--confidential", metavar="tdx|sev_snp|sev", help="Confidential computing technology.", rich_help_panel=_WHAT
    ),
]

Type = Annotated[
    list[str] | None,
    typer.Option(
        "--type", metavar="PATTERN", help="Only this type; * matches any text. Repeatable.", rich_help_panel=_WHAT
    ),
]

Region = Annotated[
    list[str] | None, typer.Option("--region", help="Only in this region; repeatable.", rich_help_panel=_WHERE)
]

Zone = Annotated[
    list[str] | None, typer.Option("--zone", help="Only in this zone; repeatable.", rich_help_panel=_WHERE)
]

Continent = Annotated[
    list[str] | None,
    typer.Option("--continent", metavar="AF|AS|EU|NA|OC|SA", help="Repeatable.", rich_help_panel=_WHERE),
]

Credential = Annotated[str, typer.Option("--credential", help="Only offers for this account.", rich_help_panel=_WHERE)]

Kind = Annotated[
    str, typer.Option("--kind", help="Only offers for this kind: ec2, gce, azure.", rich_help_panel=_WHERE)
]

Market = Annotated[str, typer.Option("--market", metavar="on_demand|spot", rich_help_panel=_COST)]

MaxPrice = Annotated[
    float | None, typer.Option("--max-price", metavar="DOLLARS", help="Maximum price per hour.", rich_help_panel=_COST)
]

MaxBoot = Annotated[
    float | None,
    typer.Option(
        "--max-boot", metavar="SECONDS", help="Only offers that are usable within this time.", rich_help_panel=_COST
    ),
]

Sort = Annotated[str, typer.Option("--sort", metavar="price|fastest|vcpus|ram", help="Order of the results.")]

All = Annotated[bool, typer.Option("--all", help="Include types that were not offered at the last poll.")]

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Maximum number of results.")]


def add_offers(app: typer.Typer) -> None:
    """Add `drydock offers`."""
    app.command("offers", rich_help_panel="Leases")(offers)


@guarded
def offers(
    *, gpu: Gpu = "", gpus: Gpus = 0, gpu_maker: Maker = "", gpu_memory: GpuMemory = "", vcpus: Vcpus = 0,
    ram: Ram = "", arch: Arch = "", confidential: Confidential = None, type_: Type = None, region: Region = None,
    zone: Zone = None, continent: Continent = None, credential: Credential = "", kind: Kind = "", market: Market = "",
    max_price: MaxPrice = None, max_boot: MaxBoot = None, sort: Sort = "price", all_: All = False, limit: Limit = 50,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """List the offers of the clouds: instance types by zone and market, cheapest first.

    [dim]drydock offers --gpu a100 --max-price 5[/dim]
    """
    asked: dict[str, Any] = {
        "gpu": gpu, "gpus": gpus, "gpu_maker": gpu_maker, "gpu_memory_mib": gpu_memory, "vcpus": vcpus, "ram_mib": ram,
        "arch": arch, "confidential": confidential, "type": type_, "region": region, "zone": zone,
        "continent": continent, "credential": credential, "kind": kind, "market": market, "max_price": max_price,
        "max_boot": max_boot, "sort": sort, "all": all_,
    }  # fmt: skip
    client = o.client()
    given = {name: one for name, one in asked.items() if one is not None and one != ""}
    found = client.offers(given, limit=limit)
    if as_json:
        return output.emit(found)
    if not found:
        return output.say(_nothing(client))
    output.table(_OFFER_COLUMNS, [_offer_row(one) for one in found])
    output.say(_age(found) + (f" The first {limit}: --limit shows more." if len(found) == limit else ""))
    return None


_OFFER_COLUMNS = (
    "kind", "account", "where", "type", "market", "$/hour", "from", "vcpus", "ram", "gpu", "confidential", "boot",
    "available",
)  # fmt: skip

_TOGETHER = dt.timedelta(seconds=30)

"""If all polls are within this time of each other, `_age` reports them as one."""


def _offer_row(one: OfferInfo) -> tuple[Any, ...]:
    price = "unknown" if one.price is None else f"{one.price:.4f}"
    gpu = [str(one.gpu_count), one.gpu_maker, one.gpu_model] if one.gpu_count else []
    boot = "" if one.boot_seconds is None else f"{one.boot_seconds:.0f} s"
    return (
        one.kind, one.account, one.zone or one.location, one.type, one.market, price, one.price_source, one.vcpus,
        f"{one.ram_mib / 1024:g} GiB" if one.ram_mib else "", " ".join(filter(None, gpu)), list(one.confidential), boot,
        "yes" if one.available else "no",
    )  # fmt: skip


def _age(found: list[OfferInfo]) -> str:
    """Return a sentence that says how old the listed offers are."""
    seen = sorted(one.seen_at for one in found if one.seen_at is not None)
    if not seen:
        return "The time of the last poll is not known."
    if seen[-1] - seen[0] < _TOGETHER:
        return f"Polled {output.ago(seen[0])}."
    return f"Polled {output.ago(seen[-1])}, the oldest result {output.ago(seen[0])}."


def _nothing(client: Client) -> str:
    """Return a sentence that says why no offers are listed."""
    places = client.locations()
    seen = sorted(one.seen_at for one in places if one.seen_at is not None)
    if seen:
        return (
            f"No current offer matches. Last polled {output.ago(seen[-1])}; --all also shows types that are "
            "not offered."
        )
    failed = next((f" {one.account} {one.name}: {one.message}" for one in places if one.message), "")
    return (
        "No offers have been read yet in an account that you may use. Workers poll the accounts that "
        f"blueprints of clouds use; operators can see the progress with `drydock credentials`.{failed}"
    )


def add_locations(app: typer.Typer) -> None:
    """Add `drydock locations` and `drydock instance-types`."""
    app.command("locations", rich_help_panel="Leases")(locations)
    app.command("instance-types", rich_help_panel="Leases")(instance_types)


@guarded
def locations(*, as_json: o.AsJson = False) -> None:
    """List the locations that are polled, and when each was last polled."""
    found = o.client().locations()
    if as_json:
        return output.emit(found)
    rows = [
        (one.kind, one.account, one.name or "all", one.country, list(one.zones), one.offers,
         "not yet" if one.seen_at is None else output.ago(one.seen_at), one.message)
        for one in found
    ]  # fmt: skip
    return output.table(("kind", "account", "name", "country", "zones", "offers", "read", "message"), rows)


@guarded
def instance_types(
    *, gpu: Gpu = "", gpus: Gpus = 0, vcpus: Vcpus = 0, ram: Ram = "",
    arch: Arch = "", confidential: Confidential = None, type_: Type = None,
    region: Region = None, continent: Continent = None, credential: Credential = "",
    kind: Kind = "", max_price: MaxPrice = None, all_: All = False, limit: Limit = 50,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """List types by location, with the lowest price of their zones in each market."""
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
    return output.table(headers, [_type_row(one) for one in found])


def _type_row(one: InstanceTypeInfo) -> tuple[Any, ...]:
    gpu = [str(one.gpu_count), one.gpu_maker, one.gpu_model] if one.gpu_count else []
    return (
        one.kind, one.account, one.location, one.type, one.vcpus, f"{one.ram_mib / 1024:g} GiB" if one.ram_mib else "",
        " ".join(filter(None, gpu)), list(one.confidential), _lowest(one, "on_demand"), _lowest(one, "spot"),
    )  # fmt: skip


def _lowest(one: InstanceTypeInfo, market: str) -> str:
    known = [price.price for price in one.prices if price.market == market and price.price is not None]
    return f"{min(known):.4f}" if known else ""
