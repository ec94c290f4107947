"""The bar chart: heights, error bars, hatches, gaps, published figures."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.axes import Axes
from result_documents import evaluated

from modelfuse.errors import OptionError
from modelfuse.reporting.plots.bars import draw_bars
from modelfuse.reporting.plots.style import HATCHES
from modelfuse.reporting.records import records_of
from modelfuse.reporting.reference import Published, Reference
from modelfuse.reporting.table import Layout, Table, tabulate


def _table(*runs: tuple[str, float, float, int], reference: Reference | None = None) -> Table:
    records = [
        record
        for method, alpha, accuracy, seed in runs
        for record in records_of(evaluated(accuracy, method=method, labels={"alpha": alpha, "seed": seed}), "r.json")
    ]
    return tabulate(records, Layout(("method",), ("alpha",)), [reference] if reference else [])


def _axes(table: Table) -> Axes:
    (axes,) = draw_bars(table).axes
    return axes


def test_bars_are_as_high_as_the_means_and_error_bars_span_two_deviations() -> None:
    axes = _axes(_table(("a", 0.1, 0.2, 1), ("a", 0.1, 0.4, 2), ("b", 0.1, 0.5, 1)))
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([30, 50])
    (error_bar, *_) = axes.containers
    spread = error_bar.lines[2][0].get_segments()[0]
    np.testing.assert_allclose(spread[:, 1], [30 - 10 * 2**0.5, 30 + 10 * 2**0.5])
    assert [text.get_text() for text in axes.texts] == ["30.0", "50.0"]


def test_rows_differ_without_colour_and_columns_are_named_in_symbols() -> None:
    axes = _axes(_table(("a", 0.1, 0.2, 1), ("b", 0.1, 0.5, 1)))
    assert len({(bar.get_facecolor(), bar.get_hatch()) for bar in axes.patches}) == 2
    assert len(set(HATCHES)) == len(HATCHES)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["α=0.1"]
    assert axes.get_ylabel() == "accuracy (%)"


def test_a_missing_cell_is_a_gap_with_a_dash() -> None:
    axes = _axes(_table(("a", 0.1, 0.2, 1), ("b", 0.2, 0.5, 1)))
    assert len(axes.patches) == 2
    assert [text.get_text() for text in axes.texts].count("–") == 2


def test_published_figures_stand_where_the_bars_are() -> None:
    reference = Reference("paper.csv", "paper", {("a", "0.1"): Published(43.0), ("c", "0.1"): Published(12.0)})
    axes = _axes(_table(("a", 0.1, 0.2, 1), reference=reference))
    first, second = axes.lines
    (bar,) = axes.patches
    assert first.get_xydata()[0] == pytest.approx([bar.get_x() + bar.get_width() / 2, 43.0])
    assert second.get_ydata() == [12.0]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["a", "c", "paper"]


def test_more_rows_than_hatches_are_an_error() -> None:
    with pytest.raises(OptionError, match="9 bars cannot be told apart"):
        draw_bars(_table(*((name, 1.0, 0.5, 1) for name in "abcdefghi")))
