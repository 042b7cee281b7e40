"""Generates docs/settings.md from the fields of `drydock.environment.Environment`."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

from drydock import environment
from drydock.environment import Environment


def page() -> str:
    """Return the content of the page."""
    lines = [
        "# Settings",
        "",
        "Settings are environment variables. All errors in them are reported at once. `make docs` generates this page",
        "from `drydock/environment.py`.",
        "",
        "| variable | default | meaning |",
        "| --- | --- | --- |",
    ]
    for name, field in Environment.model_fields.items():
        default = None if field.default_factory else field.default
        lines.append(f"| `{environment.variable(name)}` | {_shown(default)} | {field.description} |")
    return "\n".join(lines) + "\n"


def _shown(default: Any) -> str:
    if isinstance(default, SecretStr) or default in ("", (), None):
        return ""
    if isinstance(default, bool):
        return f"`{int(default)}`"
    return f"`{','.join(default)}`" if isinstance(default, tuple) else f"`{default}`"


if __name__ == "__main__":
    print(page(), end="")
