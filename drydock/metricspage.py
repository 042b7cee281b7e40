"""The page docs/metrics.md, made from the figures: `python -m drydock.metricspage`."""

from __future__ import annotations

import os


def reference() -> str:
    """The page."""
    from drydock.metrics import OWN, PREFIX
    from leases.reports.figures import FIGURES

    lines = [
        "# Metrics",
        "",
        "What `/metrics` tells: all of it gauges, read from the database at each scrape. This page is made from",
        "`leases/reports/figures.py` by `make docs`.",
        "",
        "| name | labels | what it is |",
        "| --- | --- | --- |",
    ]
    lines += [f"| `{PREFIX}{name}` |  | {says} |" for name, says in OWN.items()]
    for figure in FIGURES:
        labels = ", ".join(f"`{label}`" for label in figure.labels)
        lines.append(f"| `{PREFIX}{figure.name}` | {labels} | {figure.says} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print it."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "drydock.settings")
    django.setup()
    print(reference(), end="")


if __name__ == "__main__":
    main()
