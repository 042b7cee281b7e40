"""The two services beside EC2 that moto has not: Service Quotas' limits and the Price List."""

from __future__ import annotations

import json
from typing import Any

QUOTAS = {
    "L-1216C47A": ("Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", 64.0),
    "L-34B43A08": ("All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", 32.0),
    "L-DB2E81BA": ("Running On-Demand G and VT instances", 8.0),
    "L-3819A6DF": ("All G and VT Spot Instance Requests", 0.0),
    "L-417A185B": ("Running On-Demand P instances", 0.0),
    "L-0263D0A3": ("EC2-VPC Elastic IPs", 5.0),
}
"""Code -> name and limit, of which the last is none of virtual CPUs."""
LISTED = {"t3.micro": 0.0114, "m5.large": 0.107, "m6a.large": 0.0963}
"""What the Price List says of every region."""


def quotas(asked: dict[str, Any], limits: dict[str, tuple[str, float]]) -> dict[str, Any]:
    """ListServiceQuotas, three a page."""
    start = int(asked.get("NextToken") or 0)
    every = [
        {"ServiceCode": "ec2", "QuotaCode": code, "QuotaName": name, "Value": value}
        for code, (name, value) in limits.items()
    ]
    following = {"NextToken": str(start + 3)} if start + 3 < len(every) else {}
    return {"Quotas": every[start : start + 3], **following}


def products(asked: dict[str, Any]) -> dict[str, Any]:
    """GetProducts, two a page."""
    start = int(asked.get("NextToken") or 0)
    region = next(one["Value"] for one in asked["Filters"] if one["Field"] == "regionCode")
    every = [_product(name, region, price) for name, price in LISTED.items()]
    following = {"NextToken": str(start + 2)} if start + 2 < len(every) else {}
    return {"FormatVersion": "aws_v1", "PriceList": every[start : start + 2], **following}


def _product(name: str, region: str, price: float) -> str:
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{price:.10f}"}, "beginRange": "0", "endRange": "Inf"}
    return json.dumps(
        {
            "product": {"sku": name, "attributes": {"instanceType": name, "regionCode": region}},
            "terms": {"OnDemand": {f"{name}.JRTC": {"priceDimensions": {f"{name}.JRTC.6YS6": dimension}}}},
        }
    )
