"""The line chart: points, bands, gaps, strokes."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.axes import Axes
from result_documents import evaluated

from modelfuse.errors import OptionError
from modelfuse.reporting.plots.curve import draw_curve
from modelfuse.reporting.plots.style import STROKES
from modelfuse.reporting.records import records_of
from modelfuse.reporting.table import Layout, Table, tabulate

LAYOUT = Layout(("method",), ("round",))


def _table(*runs: tuple[str, object, float, int]) -> Table:
    records = [
        record
        for method, at, accuracy, seed in runs
        for record in records_of(evaluated(accuracy, method=method, labels={"round": at, "seed": seed}), "r.json")
    ]
    return tabulate(records, LAYOUT)


def _axes(table: Table) -> Axes:
    (axes,) = draw_curve(table).axes
    return axes


def test_a_line_goes_through_the_means_in_percent_and_skips_what_is_missing() -> None:
    table = _table(("a", 1, 0.2, 1), ("a", 1, 0.4, 2), ("a", 10, 0.5, 1), ("b", 2, 0.6, 1))
    first, second = _axes(table).lines
    np.testing.assert_allclose(np.array(first.get_data(), float), [[1, 10], [30, 50]])
    np.testing.assert_allclose(np.array(second.get_data(), float), [[2], [60]])


def test_the_band_is_one_standard_deviation_wide() -> None:
    axes = _axes(_table(("a", 1, 0.2, 1), ("a", 1, 0.4, 2), ("a", 2, 0.5, 1)))
    (band,) = axes.collections
    y = band.get_paths()[0].vertices[:, 1]
    assert (y.min(), y.max()) == pytest.approx((30 - 10 * 2**0.5, 50))


def test_lines_differ_in_dashes_and_markers_and_are_named() -> None:
    axes = _axes(_table(*((name, 1, 0.5, 1) for name in "abcd")))
    assert len({line.get_marker() for line in axes.lines}) == 4
    assert len({(stroke.dashes, stroke.marker) for stroke in STROKES}) == len(STROKES)
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c", "d"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("round", "accuracy (%)")
    assert axes.get_title(loc="left") == "Accuracy by round"


def test_a_key_that_is_no_number_is_an_error() -> None:
    with pytest.raises(OptionError, match="--x: round 'first' is no number"):
        draw_curve(_table(("a", "first", 0.5, 1)))


def test_more_lines_than_strokes_are_an_error() -> None:
    with pytest.raises(OptionError, match="9 lines cannot be told apart"):
        draw_curve(_table(*((name, 1, 0.5, 1) for name in "abcdefghi")))
