"""`drydock instances`: cloud machines in the terms of a cloud. An instance has the same number as its lease."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli.machines import failure_text
from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded

if TYPE_CHECKING:
    from drydock_client.values import InstanceInfo


Id = Annotated[
    int, typer.Argument(metavar="INSTANCE", help="Number of the instance, which is also the number of its lease.")
]

Types = Annotated[list[str] | None, typer.Option("--type", metavar="TYPE", help="Allowed instance type; repeatable.")]

Locations = Annotated[list[str] | None, typer.Option("--location", help="Allowed region; repeatable.")]

Zones = Annotated[list[str] | None, typer.Option("--zone", help="Allowed zone; repeatable.")]

Confidential = Annotated[list[str] | None, typer.Option("--confidential", metavar="tdx|sev_snp|sev")]

UserData = Annotated[
    typer.FileText | None,
    typer.Option(
        "--user-data", metavar="FILE", encoding="utf-8", errors="replace", help="File with a cloud-config in YAML."
    ),
]

Ports = Annotated[list[int] | None, typer.Option("--port", help="TCP port to open to other networks; repeatable.")]

Keys = Annotated[
    list[Path] | None, typer.Option("--public-key", metavar="FILE", help="Public key that may log in; repeatable.")
]

Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="KEY=VALUE", help="Repeatable.")]


def add_instances(app: typer.Typer) -> None:
    """Add `drydock instances`."""
    group = o.group(list_, "Cloud machines as instances: create, list, show, delete, stop, start, reboot.")
    named: dict[str, Callable[..., None]] = {
        "list": list_, "create": create, "show": show, "delete": delete, "stop": stop, "start": start,
        "reboot": reboot,
    }  # fmt: skip
    for name, command in named.items():
        group.command(name)(command)
    app.add_typer(group, name="instances", rich_help_panel="Leases")


@guarded
def list_(
    *, state: Annotated[list[str] | None, typer.Option("--state", help="Only instances in this state; repeatable.")]
    = None,
    all_: Annotated[bool, typer.Option("--all", help="Include terminated, reassigned and failed instances.")] = False,
    location: Annotated[str, typer.Option("--location", help="Only instances in this region.")] = "",
    tag: Annotated[str, typer.Option("--tag", metavar="KEY[=VALUE]")] = "", owner: o.Owner = None,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """List instances, newest first."""
    found = o.client(owner).instances(states=state or (), location=location, tag=tag, all=all_)
    if as_json:
        return output.emit(found)
    rows = [
        (i.id, i.name, i.state, i.kind, i.zone or i.location, i.instance_type, i.market,
         _dollars(i.hourly_cost), i.ssh_host, output.ago(i.created_at))
        for i in found
    ]  # fmt: skip
    headers = ("number", "name", "state", "cloud", "where", "type", "market", "$/hour", "address", "made")
    return output.table(headers, rows, empty="No instances.")


def _dollars(price: float | None) -> str:
    return "" if price is None else f"{price:.4f}"


@guarded
def create(
    *, type_: Types = None, location: Locations = None, zone: Zones = None,
    image: Annotated[str, typer.Option("--image", help="Image id as the cloud names it, such as an AMI id.")] = "",
    market: Annotated[str, typer.Option("--market", metavar="on_demand|spot|any")] = "on_demand",
    max_price: Annotated[float | None, typer.Option("--max-price", metavar="DOLLARS", help="Per hour.")] = None,
    vcpus: Annotated[int, typer.Option("--vcpus", help="Minimum number of vCPUs.")] = 0,
    ram: Annotated[str, typer.Option("--ram", metavar="SIZE", help='Minimum memory, such as 64GiB.')] = "",
    disk_gib: Annotated[int, typer.Option("--disk-gib", help="Size of the boot disk.")] = 0,
    gpu: Annotated[str, typer.Option("--gpu", metavar="MODEL")] = "",
    gpus: Annotated[int, typer.Option("--gpus", metavar="N")] = 0, confidential: Confidential = None,
    user_data: UserData = None, port: Ports = None, public_key: Keys = None, tag: Tags = None, name: o.Name = "",
    ttl: o.Ttl = None, key: o.Key = None, owner: o.Owner = None, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Request an instance. It is pending at first; `drydock wait` waits for it."""
    given: dict[str, Any] = {
        "instance_type": type_, "location": location, "zone": zone, "image": image, "market": market,
        "max_price": max_price, "vcpus": vcpus, "ram_mib": ram, "disk_gib": disk_gib, "gpu": gpu, "gpus": gpus,
        "user_data": user_data.read() if user_data else "", "confidential": confidential, "ports": port,
        "public_keys": o.public_keys(public_key),
        "tags": o.words(tag, "tags"), "name": name, "ttl": ttl, "idempotency_key": key,
    }  # fmt: skip
    made = o.client(owner).create_instance({name: one for name, one in given.items() if one})
    _tell(made, as_json)


@guarded
def show(instance: Id, *, as_json: o.AsJson = False) -> None:
    """Show an instance."""
    _tell(o.client().instance(instance), as_json)


@guarded
def delete(instance: Id, *, as_json: o.AsJson = False) -> None:
    """End an instance; idempotent.

    It is `released` while its machine is kept for the next lease, and `terminated` once the machine is gone.
    """
    _tell(o.client().end_instance(instance), as_json)


@guarded
def stop(instance: Id, *, as_json: o.AsJson = False) -> None:
    """Stop an instance. The instance is kept, and its disk is still billed."""
    _tell(o.client().change_instance(instance, "stop"), as_json)


@guarded
def start(instance: Id, *, as_json: o.AsJson = False) -> None:
    """Start an instance. Its address may change."""
    _tell(o.client().change_instance(instance, "start"), as_json)


@guarded
def reboot(instance: Id, *, as_json: o.AsJson = False) -> None:
    """Reboot an instance."""
    _tell(o.client().change_instance(instance, "reboot"), as_json)


def _tell(info: InstanceInfo, as_json: bool) -> None:
    if as_json:
        return output.emit(info)
    reached = f"{info.ssh_user}@{info.ssh_host}:{info.ssh_port}" if info.ssh_host else ""
    return output.pairs(
        f"instance {info.id}: {info.state}",
        [
            ("message", info.message), ("cloud", info.kind), ("blueprint", info.blueprint),
            ("where", info.zone or info.location), ("type", info.instance_type), ("market", info.market),
            ("price", _dollars(info.price)), ("costs now, $/hour", _dollars(info.hourly_cost)),
            ("kept until", info.kept_until), ("last failure", failure_text(info.failure)),
            ("image", info.image), ("provider's id", info.provider_id),
            ("public address", info.public_address), ("private address", info.private_address), ("ssh", reached),
            ("host key", list(info.ssh_host_keys)), ("tags", [f"{k}={v}" for k, v in info.tags.items()]),
            ("made", info.created_at), ("until", info.until), ("resource", info.resource),
        ],
    )  # fmt: skip
