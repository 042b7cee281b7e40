"""`drydock agents`: join codes, and the list."""

from __future__ import annotations


def test_an_operator_makes_a_code_that_is_shown_once(cli):
    pool = "reported-cards"
    cli("blueprints", "add", pool, "fake_reported", "provider=reported-cards")
    made = cli.json("agents", "join", pool, "--host", "node-1", "--ttl", "10m")
    assert (made["blueprint"], made["place"]) == (pool, "node-1")
    said = cli("agents", "join", pool)
    assert "any host" in said.stderr
    assert said.stdout.strip() not in ("", made["code"]), "each code is another"
    assert cli.json("agents", "list", "--blueprint", pool) == []
    assert "at most 1 h" in cli("agents", "join", pool, "--ttl", "2h", code=None).stderr
    assert "There is no blueprint" in cli("agents", "join", "no-such-cards", code=None).stderr
    assert "does not exist" in cli("agents", "show", "987654321", code=None).stderr


def test_what_cannot_be_installed_or_confirmed_is_said(cli):
    assert "does not exist" in cli("agents", "install", "no-such-host", code=None).stderr
    assert "does not exist" in cli("agents", "install", "987654321", "--server", "https://a.example", code=None).stderr
    assert "does not exist" in cli("agents", "install", "987654321", "--uninstall", code=None).stderr
    assert "does not exist" in cli("agents", "confirm", "987654321", "0" * 64, code=None).stderr
    said = cli("agents", "order", "987654321", "dance", code=None).stderr
    assert "Choose one of: discovery, upgrade" in said
