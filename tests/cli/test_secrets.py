"""`drydock secrets rotate`: from the old key to the new one, on a database of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from drydock.engines import Config
from tests.cli.conftest import Cli, make_database
from tests.settings import KEYS

OLD = KEYS["DRYDOCK_ENCRYPTION_KEYS"]


@pytest.fixture
def chief(servers: Cli, state: Path) -> Cli:
    """An operator on a database that nobody else uses."""
    sockets = Config(state=state).layout.sockets
    make_database(sockets, "rotated")
    return servers.also(DATABASE_URL=f"postgresql://drydock@/rotated?host={sockets}", DRYDOCK_USER="chief")


@pytest.mark.slow
def test_a_key_is_replaced(chief: Cli, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("sesame")
    add = ["credentials", "add", "one", f"token=@{tmp_path / 'token'}"]
    made = chief.each([["migrate", "--operator", "chief"], add])
    assert [one.returncode for one in made] == [0, 0], made
    new = Fernet.generate_key().decode()
    rotate = ["secrets", "rotate"]
    both = chief.also(DRYDOCK_ENCRYPTION_KEYS=f"{new},{OLD}")
    doctor, due, done, again = both.each([["doctor"], [*rotate, "--dry-run", "--json"], [*rotate, "--json"], rotate])
    assert "drydock secrets rotate" in doctor.stdout
    assert (due.returncode, json.loads(due.stdout)["rotated"], json.loads(due.stdout)["left"]) == (1, 0, 1)
    found = json.loads(done.stdout)
    assert (done.returncode, found["rotated"], found["left"]) == (0, 1, 0)
    assert {one["model"]: one["rows"] for one in found["models"]}["blueprints.Credential"] == 1
    assert (again.returncode, again.stdout.splitlines()[-1]) == (
        0,
        "0 rotated, 0 left. Only the first key is needed now.",
    )
    lost = chief(*rotate, code=1)
    assert "None of the keys can decrypt these rows of blueprints.Credential" in lost.stderr
    assert "0 rotated, 1 left." in lost.stdout
