"""Offers from the shell, and the accounts that they are read from."""

from __future__ import annotations

import re

import pytest

from blueprints.fake.cloud import Cloud


@pytest.fixture
def vendor(cli, tmp_path, monkeypatch):
    """The shell of somebody with an account at a vendor and a blueprint that builds there; nothing is read yet."""
    monkeypatch.setenv("DRYDOCK_FAKE_CLOUD", str(tmp_path))
    here = cli.also(DRYDOCK_FAKE_CLOUD=str(tmp_path))
    here("credentials", "add", "vendor", "provider=-", stdin="vendor")
    here("blueprints", "add", "shop", "fake_cloud", "provider=vendor", "credential=vendor")
    yield here
    here("blueprints", "remove", "shop")
    here("credentials", "remove", "vendor")


def test_offers_are_read_and_looked_through(vendor):
    assert "No offers have been read yet" in vendor("offers").stderr
    assert vendor.json("offers") == []
    gpu = {"gpu_maker": "nvidia", "gpu_model": "a100", "gpu_count": 8, "ram_mib": 1 << 20, "boot_seconds": 95}
    cloud = Cloud("vendor")
    cloud.sell("east", "m1", zone="east-1", vcpus=2, ram_mib=4096, price=0.0512, price_source="bundled 2026-11-01")
    cloud.sell("west", "p4", vcpus=96, price=4.75, price_source="provider", confidential=["tdx"], **gpu)
    cloud.sell("west", "gone", vcpus=1, available=False)

    assert "polls of vendor are due now" in vendor("credentials", "read", "vendor").stdout
    vendor("sweep")
    vendor("sweep")
    told = vendor("offers", "--gpu", "a100", "--max-price", "5")
    heads, row = told.stdout.splitlines()
    assert heads.split() == [
        "KIND", "ACCOUNT", "WHERE", "TYPE", "MARKET", "$/HOUR", "FROM", "VCPUS", "RAM", "GPU", "CONFIDENTIAL", "BOOT",
        "AVAILABLE",
    ]  # fmt: skip
    for words in ("fake_cloud  vendor", "west", "p4", "4.7500  provider", "1024 GiB", "8 nvidia a100", "tdx", "95 s"):
        assert words in row, words
    assert "Polled " in told.stderr
    assert " ago." in told.stderr
    assert "0.0512  bundled 2026-11-01" in vendor("offers", "--region", "east", "--region", "north").stdout
    assert "unknown" in vendor("offers", "--all", "--type", "go*").stdout
    (found,) = vendor.json("offers", "--vcpus", "2", "--ram", "2GiB", "--sort", "fastest", "--limit", "1")
    assert (found["type"], found["boot_seconds"]) == ("p4", 95)
    said = vendor("offers", "--gpu", "h100")
    assert (said.stdout, "No current offer matches. Last polled " in said.stderr) == ("", True)
    for words, field in (
        (("--sort", "name"), "sort"),
        (("--max-price", "0"), "max_price"),
        (("--ram", "x"), "ram_mib"),
    ):
        assert field in vendor("offers", *words, code=2).stderr


def test_a_credential_says_how_its_readings_go(vendor):
    assert [one["kind"] for one in vendor.json("credentials", "show", "vendor")["readers"]] == ["fake_cloud"]
    Cloud("vendor").sell("east", "m1", vcpus=2)
    vendor("sweep")
    vendor("sweep")
    shown = vendor("credentials", "show", "vendor").stdout
    assert re.search("READ +PLACE +LAST", shown)
    assert re.search("inventory +east", shown)
    assert " ago" in vendor("credentials").stdout
    vendor("credentials", "replace", "vendor", "password=-", stdin="wrong")
    vendor("credentials", "read", "vendor")
    vendor("sweep")
    assert "does not know this account" in vendor("credentials", "show", "vendor").stdout
    assert "4 of 4 fail" in vendor("credentials").stdout
    vendor("credentials", "read", "nothing", code=3)
