"""Run the command line as `python -m drydock`."""

from drydock.cli import main

if __name__ == "__main__":
    main()
