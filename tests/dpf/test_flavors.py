"""Configs of DPUs: flavors that do not fit a card, and bad addresses."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from blueprints.dpu.dpf.config import Config, hugepages_gib

GOOD = {"credential": "dpf", "image": "https://images/a.bfb", "flavor": {}}


@pytest.mark.parametrize(
    ("parameters", "gib"),
    [
        (["hugepagesz=2M", "hugepages=3072"], 6.0),
        (["hugepagesz=1G", "hugepages=40"], 40.0),
        (["hugepages=512"], 1.0),
        (["hugepagesz=1G", "hugepages=2", "hugepagesz=2M", "hugepages=1024"], 4.0),
        (["console=ttyAMA0", 7, None], 0.0),
        ("hugepages=1", 0.0),
    ],
)
def test_huge_pages_of_a_flavor_are_counted(parameters, gib):
    assert hugepages_gib({"grub": {"kernelParameters": parameters}}) == gib


@pytest.mark.parametrize(
    "wrong",
    [{"image": "ftp://a/b.bfb"}, {"image": "https://a/b.img"}, {"flavor": "Not A Name"}, {"namespace": "UPPER"},
     {"reboot": "hard"}, {"reimage": -1}, {"credential": ""}],
)  # fmt: skip
def test_bad_configs_are_refused_with_the_field(wrong):
    with pytest.raises(ValidationError) as refused:
        Config.model_validate({**GOOD, **wrong})
    assert next(iter(wrong)) in str(refused.value)


def test_limits_of_phases_are_those_of_the_config_or_the_documented_ones():
    config = Config.model_validate({**GOOD, "phase_limits": {"Pending": 5}})
    assert (config.limit("Pending"), config.limit("Rebooting"), config.limit("New")) == (5.0, 7200.0, 1800.0)
