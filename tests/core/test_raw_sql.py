"""Raw SQL is in the modules that docs/architecture.md names, and the triggers that it names are in the database."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from django.db import connection

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("blueprints", "drydock", "drydock_client", "drydock_agent", "interfaces", "leases")
ELSEWHERE = ("migrations", "fake")
"""Folders of their own rules: migrations are SQL where need be, and the fake provider has an SQLite of its own."""
SQL = re.compile(r"\bSELECT\b|\bINSERT INTO\b|\bDELETE FROM\b|\bUPDATE \w+ (\w+ )?SET\b|\bFOR NO KEY UPDATE\b")
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def has_sql(source: str) -> bool:
    """Whether a string of the module, other than a docstring, is SQL."""
    tree = ast.parse(source)
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return any(SQL.search(_text(node)) for node in ast.walk(tree) if id(node) not in documentation)


def _text(node: ast.AST) -> str:
    """A string, with a word in place of each expression of an f-string."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "expression" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('sql = f"SELECT {columns} FROM leases_lease"', True),
        ('run("UPDATE leases_run SET token = NULL")', True),
        ('run(f"UPDATE {table} t SET token = NULL")', True),
        ('def late():\n    """SELECT is mentioned here."""\n', False),
        ('say("Select a row, then update it.")', False),
    ],
)
def test_sql_is_recognized(source: str, found: bool) -> None:
    assert has_sql(source) is found


def test_raw_sql_is_only_in_the_modules_that_the_architecture_names() -> None:
    with_sql = {
        str(path.relative_to(ROOT).with_suffix(""))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if not set(ELSEWHERE) & set(path.parts) and has_sql(path.read_text())
    }
    named = dict(re.findall(r"^\| `([a-z_/]+)` \| (.+) \|$", PAGE[PAGE.index("## Raw SQL") :], re.MULTILINE))
    assert with_sql == set(named), "docs/architecture.md, Raw SQL: add the module with its reason, or use the ORM"
    assert [name for name, why in named.items() if len(why) < 30] == []


@pytest.mark.django_db
def test_the_triggers_named_are_those_of_the_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
            " WHERE NOT t.tgisinternal AND c.relname LIKE 'leases_%'"
        )
        there = {name for (name,) in cursor.fetchall()}
    section = PAGE[PAGE.index("## States and triggers") : PAGE.index("## Raw SQL")]
    rows = re.findall(r"^\| (`[a-z_`, ]+) \|", section, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == there
