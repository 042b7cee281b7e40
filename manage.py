#!/usr/bin/env python
"""Django's own commands."""

import os
import sys


def main() -> None:
    """Run Django's command line."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "drydock.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
