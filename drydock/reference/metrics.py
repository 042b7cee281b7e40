"""Generates docs/metrics.md from the metrics in `leases.reports.figures`."""

from __future__ import annotations

import os

import django


def page() -> str:
    """Return the content of the page."""
    from drydock.probes import OWN_METRICS, PREFIX
    from leases.reports.figures import FIGURES

    lines = [
        "# Metrics",
        "",
        "The metrics of `/metrics`. All are gauges, read from the database at each scrape. `make docs` generates this",
        "page from `leases/reports/figures.py`.",
        "",
        "| name | labels | meaning |",
        "| --- | --- | --- |",
    ]
    lines += [f"| `{PREFIX}{name}` |  | {says} |" for name, says in OWN_METRICS.items()]
    for figure in FIGURES:
        labels = ", ".join(f"`{label}`" for label in figure.labels)
        lines.append(f"| `{PREFIX}{figure.name}` | {labels} | {figure.says} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the page."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "drydock.settings")
    django.setup()
    print(page(), end="")


if __name__ == "__main__":
    main()
