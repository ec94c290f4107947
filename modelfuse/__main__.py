"""The program: ``modelfuse`` and ``python -m modelfuse`` are the same."""

from __future__ import annotations

import sys

from modelfuse.cli.app import run

__all__ = ["main"]


def main() -> None:
    """Run the command line and leave with its exit status."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
