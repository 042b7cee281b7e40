"""The charts that the config of a blueprint allows owners to install."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import Field, field_validator

from blueprints.contract import Fields
from interfaces.dpu_services import AllowedChart

_FULL = re.compile(r"v?(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
"""A version with all three numbers (https://semver.org). Helm and Argo CD take others, such as `1.x`, for ranges."""
_LONGEST_VERSION = 128


class ChartConfig(Fields):
    """A chart that owners may install as a service."""

    repository: str = Field(pattern=r"^(oci|https)://\S+$", max_length=2000)
    name: str = Field(min_length=1, max_length=128)
    versions: tuple[str, ...] = Field(
        min_length=1, description="Allowed versions, each of them in full, such as 1.2.0. Ranges are refused."
    )

    @field_validator("versions")
    @classmethod
    def _are_full(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for version in value:
            if len(version) > _LONGEST_VERSION or not _FULL.fullmatch(version):
                raise ValueError(f"{version[:_LONGEST_VERSION]!r} is not a full version, such as 1.2.0.")
        return value


def allowed(charts: Sequence[ChartConfig]) -> tuple[AllowedChart, ...]:
    """Return the charts of a config as the interface `dpu_services` takes them."""
    return tuple(AllowedChart(repository=one.repository, name=one.name, versions=one.versions) for one in charts)
