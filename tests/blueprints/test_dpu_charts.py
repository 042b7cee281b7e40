"""The charts that a blueprint allows."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from blueprints.dpuservices import ChartConfig, allowed
from interfaces.dpu_services import AllowedChart

CHART = {"repository": "oci://charts.example.org/doca/", "name": "firewall"}


def test_allowed_charts_are_those_of_the_config() -> None:
    config = ChartConfig(**CHART, versions=("1.2.0", "v1.3.0-rc.1+build.5"))
    assert allowed([config]) == (
        AllowedChart(
            repository="oci://charts.example.org/doca", name="firewall", versions=("1.2.0", "v1.3.0-rc.1+build.5")
        ),
    )


@pytest.mark.parametrize(
    "version",
    ["", "1", "1.2", "1.x", "1.2.x", "1.2.*", "*", "^1.2.0", "~1.2.0", ">=1.2.0", "1.2.0 - 1.4.0", "1.2.0,1.3.0",
     "1.2.0 || 2.0.0", "latest", "1.2.0\n", f"1.2.{'0' * 200}"],
)  # fmt: skip
def test_what_may_mean_several_versions_is_refused(version: str) -> None:
    with pytest.raises(ValidationError, match="not a full version"):
        ChartConfig(**CHART, versions=("1.2.0", version))
