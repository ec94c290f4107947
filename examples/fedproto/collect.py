"""Gather all eval files of a build folder into one csv: python collect.py build > results/rounds.csv."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PLACE = re.compile(
    r"(?P<dataset>[^/]+)-s(?P<stdev>\d+)-n(?P<ways>\d+)-k(?P<shots>\d+)-c(?P<clients>\d+)/"
    r"(?P<method>[a-z-]+)-l(?P<weight>[\d.]+)-(?P<seed>\d+)/eval-(?P<round>\d+)\.json"
)
FIGURES = ("by", "accuracy_percent", "std_over_clients", "test_examples")


def lines(build: Path) -> Iterator[dict[str, str]]:
    """Yield a line for each result of each eval file, rounds in order."""
    found = [(match, path) for path in build.glob("*/*/eval-*.json") if (match := PLACE.search(path.as_posix()))]
    for match, path in sorted(found, key=lambda pair: (pair[1].parent.as_posix(), int(pair[0]["round"]))):
        for result in json.loads(path.read_text())["results"]:
            figures = (
                result["model"],
                f"{100 * result['accuracy']:.3f}",
                f"{100 * result['accuracy_std']:.3f}",
                str(result["count"]),
            )
            yield match.groupdict() | dict(zip(FIGURES, figures, strict=True))


writer = csv.DictWriter(sys.stdout, [*PLACE.groupindex, *FIGURES], lineterminator="\n")
writer.writeheader()
writer.writerows(lines(Path(sys.argv[1])))
