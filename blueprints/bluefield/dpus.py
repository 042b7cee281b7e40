"""Attributes and requirements of a DPU, the same for every kind that builds DPUs, so that routing spans them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from blueprints.contract import Fields
from blueprints.matching import Match


class DpuAttributes(Fields):
    """Attributes of a DPU that is installed on a card."""

    model: str | None = Field(default=None, description="Generation of the card: BlueField2, BlueField3 or BlueField4.")
    memory_gib: int | None = Field(default=None, description="Memory of the card, in GiB.")
    ports: int | None = Field(default=None, description="Number of network ports.")
    image: str | None = Field(default=None, description="Address of the installed BFB image.")
    doca: str | None = Field(default=None, description="Version of DOCA in the image, such as 2.9.1.")
    flavor: str | None = Field(default=None, description="Name of the flavor.")
    mode: str | None = Field(default=None, description="Mode of the card: dpu, nic or zero-trust.")
    host: str | None = Field(default=None, description="Name of the host that the card is in.")
    cluster: str | None = Field(default=None, description="Name of the DPU cluster that the DPU has joined.")
    serial: str | None = Field(default=None, description="Serial number of the card.")


class DpuRequirements(Fields):
    """Requirements that a lease may set for its DPU."""

    model: str | None = Field(default=None, description="Generation of the card, such as BlueField3.")
    memory_gib: int | None = Field(default=None, ge=1, description="Least memory of the card, in GiB.")
    ports: int | None = Field(default=None, ge=1, description="Least number of network ports.")
    image: str | None = Field(default=None, description="Address of the BFB image.")
    doca: str | None = Field(default=None, description="Version of DOCA in the image.")
    flavor: str | None = Field(default=None, description="Name of the flavor.")
    mode: str | None = Field(default=None, description="Mode of the card: dpu, nic or zero-trust.")
    host: str | None = Field(default=None, description="Name of the host that the card is in.")
    cluster: str | None = Field(default=None, description="Name of the DPU cluster.")
    serial: str | None = Field(default=None, description="Serial number of the card.")


MATCHES = (
    *(Match(name, "=", name) for name in ("model", "image", "doca", "flavor", "mode", "host", "cluster", "serial")),
    Match("memory_gib", ">=", "memory_gib"),
    Match("ports", ">=", "ports"),
)
OF_CARD = ("model", "memory_gib", "ports", "host", "serial")
"""Requirements that the card must meet."""


def of_card(requirements: Any) -> Mapping[str, Any]:
    """Return the requirements of a DPU that its card must meet."""
    given = {name: getattr(requirements, name) for name in OF_CARD} if requirements is not None else {}
    return {name: value for name, value in given.items() if value is not None}
