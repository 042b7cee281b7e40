"""What the tests of the console share: rows made through the engine, a server on this machine, and a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.admin.conftest import _database, _quick, ask, blueprint, chief, lease, owner, site, staff, until
from tests.peers import require

__all__ = ["_database", "_quick", "ask", "blueprint", "chief", "lease", "owner", "site", "staff", "until"]

FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
PATIENCE = 20_000
"""Milliseconds. A busy machine is slow; a page that is right passes at once."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's chromium, without a window."""
    program = require("chromium")
    expect.set_options(timeout=PATIENCE)
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        # Playwright's own loop counts as running in this thread, where the tests make their rows.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        chromium = playwright.chromium.launch(executable_path=program, headless=True, args=FLAGS)
        yield chromium
        chromium.close()


def _outside(address: str, server: str) -> bool:
    return not address.startswith((f"{server}/", "data:", "about:"))


@pytest.fixture
def look(browser: Browser, live_server: Any) -> Iterator[Callable[..., Page]]:
    """`look(client, width=360, dark=True)`: a page signed in as the client is.

    It fails on any error of a script, on what the content policy refuses, and on a request to anywhere else.
    """
    contexts, problems = [], []

    def opened(client: Client, *, width: int = 1280, height: int = 800, dark: bool = False) -> Page:
        context = browser.new_context(
            base_url=live_server.url, viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
        )  # fmt: skip
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        name = settings.SESSION_COOKIE_NAME
        context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": live_server.url}])
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        page.on("request", lambda asked: problems.append(asked.url) if _outside(asked.url, live_server.url) else None)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not problems
