"""What was spent, and budgets, from the shell."""

from __future__ import annotations

import os
import pwd

import pytest


@pytest.fixture
def dear(cli, fakes):
    """A blueprint that builds at two dollars an hour, and has built for a lease."""
    pool = fakes('offers=[{"offer": "m.big", "price": 2.0}]')
    lease = cli.json("lease", "fake", "--blueprint", pool, "--keep")["leases"][0]["id"]
    yield pool
    cli("release", str(lease), code=None)


def test_what_was_spent_is_summed_up(cli, dear):
    (found,) = cli.json("usage", "--by", "blueprint", "--blueprint", dear)["groups"]
    assert (found["name"], found["leases"], found["hourly"]) == (dear, 1, 2.0)
    told = cli("usage", "--by", "lease", "--since", "7d", "--blueprint", dear)
    assert "Current cost: $2.0000 per hour." in told.stderr
    headers, row = cli("usage", "--csv", "--blueprint", dear).stdout.splitlines()
    assert headers == "id,name,leases,seconds,cost,hourly,energy_wh"
    assert row.endswith(",2,")
    assert "No lease had a price or measured its energy." in cli("usage", "--blueprint", "other").stderr
    assert "by" in cli("usage", "--by", "colour", code=2).stderr
    assert "since" in cli("usage", "--since", "yesterday", code=2).stderr


def test_budgets_are_set_listed_and_removed(cli, dear):
    me = pwd.getpwuid(os.geteuid()).pw_name
    (budget,) = cli.json("budgets", "set", "2.50", "--user", me)
    assert (budget["max_hourly"], budget["used"], budget["left"]) == (2.5, 2.0, 0.5)
    assert "2.5000  2.0000  0.5000" in cli("budgets").stdout
    assert "not an amount" in cli("budgets", "set", "much", "--user", me, code=2).stderr
    cli("budgets", "set", "1", code=2)
    cli("budgets", "set", "1", "--blueprint", "nothing", code=3)
    cli("budgets", "remove", "--user", me)
    assert cli.json("budgets") == []
    cli("budgets", "remove", "--user", me, code=3)
