"""Print results beside the paper's figures, as Markdown: python table.py results/rounds.csv expected.csv.

A cell is the last round that all seeds have: mean accuracy ± deviation over clients, each averaged over seeds.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean

Key = tuple[str, str, str, str]
Runs = dict[str, dict[int, tuple[float, float]]]  # seed to round to accuracy and deviation


def read(path: Path) -> dict[Key, Runs]:
    """Return the runs of each cell: data set with deviation, way of classifying, method, n."""
    cells: dict[Key, Runs] = defaultdict(lambda: defaultdict(dict))
    for line in csv.DictReader(path.read_text().splitlines()):
        key = (f"{line['dataset']} stdev={line['stdev']}", line["by"], line["method"], line["ways"])
        figures = float(line["accuracy_percent"]), float(line["std_over_clients"])
        cells[key][line["seed"]][int(line["round"])] = figures
    return cells


def last(runs: Runs) -> str:
    """Return a cell's text."""
    number = max(set.intersection(*(set(rounds) for rounds in runs.values())))
    accuracy, deviation = (fmean(rounds[number][part] for rounds in runs.values()) for part in (0, 1))
    return f"{accuracy:.2f} ± {deviation:.2f} (round {number}, {len(runs)} seed{'s' if len(runs) > 1 else ''})"


def main(results: Path, expected: Path) -> None:
    """Print a table for each data set and way of classifying."""
    cells = read(results)
    paper = {(line["row"], line["column"]): line for line in csv.DictReader(expected.read_text().splitlines())}
    for data, by in sorted({key[:2] for key in cells}):
        ways = sorted({key[3] for key in cells if key[:2] == (data, by)})
        print(f"\n{data}, by {by}:\n\n| method | " + " | ".join(f"n = {n} | paper" for n in ways) + " |")
        print("|---" * (1 + 2 * len(ways)) + "|")
        for method in sorted({key[2] for key in cells if key[:2] == (data, by)}):
            row = [method]
            for n in ways:
                known = paper.get((method, f"{data} ways={n}"))
                row.append(last(cells[data, by, method, n]) if (data, by, method, n) in cells else "–")
                row.append(f"{known['value']} ± {known['std']}" if known else "–")
            print("| " + " | ".join(row) + " |")


main(Path(sys.argv[1]), Path(sys.argv[2]))
