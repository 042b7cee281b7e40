"""Which accelerators a size has: Resource SKUs tells only how many.

Source: learn.microsoft.com, "GPU accelerated virtual machine sizes" and the pages of the series that it lists.
"""

from __future__ import annotations

import re

from blueprints.cloud.values import Gpu

GIB = 1024
_MODELS = tuple(
    (re.compile(pattern), maker, model, gib)
    for pattern, maker, model, gib in (
        (r"NCC?\d+ad(i)?s_H100_v5", "nvidia", "h100", 94),
        (r"ND\d+\w*_H100_v5", "nvidia", "h100", 80),
        (r"ND\d+\w*_H200_v5", "nvidia", "h200", 141),
        (r"ND\d+\w*_GB200\w*", "nvidia", "gb200", 192),
        (r"ND\d+\w*_GB300\w*", "nvidia", "gb300", 288),
        (r"ND\d+\w*_MI300X_v5", "amd", "mi300x", 192),
        (r"NC\d+ads_A100_v4", "nvidia", "a100", 80),
        (r"ND\d+amsr?_A100_v4", "nvidia", "a100", 80),
        (r"ND\d+asr(_A100)?_v4", "nvidia", "a100", 40),
        (r"NC\d+as_T4_v3", "nvidia", "t4", 16),
        (r"NC\d+r?s_v3", "nvidia", "v100", 16),
        (r"ND\d+rs_v2", "nvidia", "v100", 32),
        (r"N[CV]\d+adm?s_A10_v[45]", "nvidia", "a10", 24),
        (r"NC\d+l?ds_xl_RTXPRO6000BSE_v6", "nvidia", "rtxpro6000", 96),
        (r"NV\d+s_v3", "nvidia", "m60", 8),
        (r"NV\d+as_v4", "amd", "mi25", 16),
        (r"N[GV]\d+\w*_V710_v5", "amd", "v710", 24),
        (r"NG\d+\w*_V620(_v1)?", "amd", "v620", 32),
    )
)
_PARTS = {"NV6ads_A10_v5": 6, "NV12ads_A10_v5": 3, "NV18ads_A10_v5": 2, "NV4as_v4": 8, "NV8as_v4": 4, "NV16as_v4": 2}
"""Sizes with a part of one GPU: into how many it is divided."""


def gpus(size: str, count: str) -> tuple[Gpu, ...]:
    """The accelerators of a size by its name, as many as its capability `GPUs` says; a model that we do not know is
    called `unknown`."""
    number = max(1, round(float(count))) if count and float(count) > 0 else 0
    if not number:
        return ()
    short = size.removeprefix("Standard_")
    for pattern, maker, model, gib in _MODELS:
        if pattern.fullmatch(short):
            return (Gpu(maker=maker, model=model, count=number, memory_mib=gib * GIB // _PARTS.get(short, 1)),)
    return (Gpu(maker="nvidia", model="unknown", count=number),)
