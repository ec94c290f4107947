"""BBP-MAP against hand-computed layers and against the authors' own runs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from modelfuse.errors import ContentError, OptionError
from modelfuse.solvers.bbp_layer import ClientUnits, GlobalLayer, GlobalPrior
from modelfuse.solvers.bbp_map import BetaBernoulli, Consensus, bbp_map, draw_sweep_orders

Array = NDArray[Any]

STRICT = (
    "D1_J3",
    "D200_J6_g1e-3",
    "J10_counts_reach_9",
    "J12_identical_perm",
    "J16_conv1_like",
    "noise_equal_J4",
    "pfnm_s0.1_s010_g50",
    "pool_J5_it0",
    "pool_J5_it2",
    "pool_J7_it1",
    "single_units",
    "three_unequal_pool",
    "two_clients_perm",
    "vector_precision_J4",
    "very_unequal",
)
EXACT = ("J16_embed_like_g1e-3", "cap700_J3")  # float32 ties: the exact assignment counts
LARGE = ("vgg_conv1", "vgg_conv3", "vgg_conv4_heavy_noise", "vgg_fc8")
NO_SWEEPS = np.empty((0, 2), dtype=np.intp)


class Case:
    """One stored run of the authors' code."""

    def __init__(self, folder: Path, name: str) -> None:
        self.about = json.loads((folder / f"{name}.json").read_text())
        with np.load(folder / f"{name}.npz") as arrays:
            self.arrays = dict(arrays)

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    def ragged(self, name: str) -> list[Array]:
        return np.split(self[f"{name}_flat"], self[f"{name}_offsets"][1:-1])

    @property
    def units(self) -> list[Array]:
        return [self[f"units_{client}"] for client in range(self.about["J"])]

    @property
    def process(self) -> BetaBernoulli:
        sigma = self.about["sigma"]
        return BetaBernoulli(self.about["gamma"], 1.0 if isinstance(sigma, str) else sigma, self.about["sigma0"])

    @property
    def relative_precision(self) -> Array:
        return self["local_precision"] * self.process.sigma

    def run(self) -> Consensus:
        return bbp_map(self.units, self["prior_mean"], self["sweep_orders"], self.process, self.relative_precision)

    def gains(self, client: int, others: dict[int, Array]) -> Array:
        """Return the gain matrix of one step: the others' orders as they stood, then the new units on offer."""
        process, clients = self.process, self.about["J"]
        prior = GlobalPrior(self["prior_mean"] * self["prior_precision"], float(self["prior_precision"][0]))
        prepared = [
            ClientUnits.prepare(values, precision, prior)
            for values, precision in zip(self.units, self["local_precision"], strict=True)
        ]
        layer = GlobalLayer(prior, per_coordinate=True)
        for other, order in others.items():
            layer.join(prepared[other], np.arange(len(order)), order)
        units = prepared[client]
        joining = layer.gains(units) + process.popularity(clients)[layer.counts]
        crowding = process.crowding(process.offered(len(units), layer.width))
        return np.hstack([joining, units.alone[:, None] + process.opening(clients) - crowding])


@pytest.fixture
def small(shared: Path, request: pytest.FixtureRequest) -> Case:
    return Case(shared / "reference" / "bbp_map", request.param)


def of(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("small", names, indirect=True)


@of(*STRICT, *EXACT)
def test_stored_runs_replay_to_the_same_layer(small: Case) -> None:
    found = small.run()
    for order, expected in zip(found.orders, small.ragged("exact_assignment"), strict=True):
        np.testing.assert_array_equal(order, expected)
    np.testing.assert_array_equal(found.counts, small["unit_counts"])
    np.testing.assert_allclose(found.posterior_mean, small["posterior_mean"], rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(found.natural, small["global_natural"], rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(found.precision, small["global_precision"], rtol=1e-12)


@of(*STRICT)
def test_every_step_of_a_stored_run_is_the_same(small: Case) -> None:
    steps = small.run().steps
    for order, expected in zip([step.order for step in steps], small.ragged("step_assignment"), strict=True):
        np.testing.assert_array_equal(order, expected)
    assert [step.client for step in steps] == small["step_client"].tolist()
    assert [step.width_before for step in steps] == small["step_L_before"].tolist()
    assert [step.width for step in steps] == small["step_L_after"].tolist()
    assert [step.width_before + step.offered for step in steps] == small["step_cols"].tolist()


@of(*STRICT, *EXACT)
def test_gains_equal_the_stored_ones(small: Case) -> None:
    first, second = small["init_order"][:2]
    _assert_close(small.gains(second, {first: np.arange(len(small.units[first]))}), small["first_cost"])
    if "last_cost" in small.arrays:
        last = small["step_client"][-1]
        others = {client: order for client, order in enumerate(small.ragged("assignment")) if client != last}
        _assert_close(small.gains(last, others), small["last_cost"])


@of("exact_duplicates")
def test_duplicate_units_end_in_an_equally_good_layer(small: Case) -> None:
    found = small.run()
    assert [step.width for step in found.steps] == small["step_L_after"].tolist()
    assert sorted(found.counts) == sorted(small["unit_counts"])
    stored = small.about["posterior_objective"]["exact"]
    assert (found.natural**2 / found.precision).sum() == pytest.approx(stored, rel=1e-12)


@of("above700_J2b")
def test_a_cap_that_leaves_units_without_a_place_is_an_error(small: Case) -> None:
    with pytest.raises(OptionError, match=r"--max-width 700: client 0 has 710 units, of which only 704 have a place"):
        small.run()
    lifted = BetaBernoulli(small.about["gamma"], small.about["sigma"], small.about["sigma0"], max_width=None)
    found = bbp_map(small.units, small["prior_mean"], small["sweep_orders"], lifted)
    assert [len(order) for order in found.orders] == [710, 703]
    assert found.counts.sum() == 710 + 703


@of("above700_J2b")
def test_a_step_above_the_cap_may_open_one_unit(small: Case) -> None:
    initial = bbp_map(small.units, small["prior_mean"], NO_SWEEPS, small.process).steps[0]
    assert (initial.width_before, initial.offered, initial.width) == (710, 1, 711)


@pytest.mark.parametrize("name", LARGE)
def test_layers_of_real_size_replay_to_the_same_layer(shared: Path, name: str) -> None:
    case = Case(shared / "reference" / "bbp_map_large", name)
    units = _recipe(case.about)
    prior_mean = _bias_prior(case.about["D"])
    found = bbp_map(units, prior_mean, case["sweep_orders"])
    for order, expected in zip(found.orders, case.ragged("exact_assignment"), strict=True):
        np.testing.assert_array_equal(order, expected)
    assert found.width == case.about["global_units"]
    assert [step.width for step in found.steps] == case["step_L_after"].tolist()
    np.testing.assert_allclose((found.posterior_mean**2).sum(axis=1), case["posterior_row_norm2"], rtol=1e-9)
    probe = np.random.RandomState(99).randn(case.about["D"], 4)
    np.testing.assert_allclose(found.posterior_mean @ probe, case["posterior_probe"], rtol=1e-9, atol=1e-9)


VGG9 = {
    "conv1": (32, 27, 47),
    "conv2": (64, 32 * 9, 79),
    "conv3": (128, 64 * 9, 143),
    "conv4": (128, 128 * 9, 143),
    "conv5": (256, 128 * 9, 271),
    "conv6": (256, 256 * 9, 271),
    "fc7": (512, 256 * 16, 527),
    "fc8": (512, 512, 527),
}


@pytest.mark.parametrize(
    "layer",
    [pytest.param(name, marks=pytest.mark.slow) if name in ("conv5", "conv6", "fc7") else name for name in VGG9],
)
def test_vgg9_grows_to_the_widths_of_the_paper(layer: str) -> None:
    width, fan, expected = VGG9[layer]
    generator = np.random.default_rng(0)
    base = generator.uniform(-1, 1, (width, fan + 1)) / np.sqrt(fan)
    noise = 0.1 / np.sqrt(3 * fan)
    units = [generator.permutation(base) + noise * generator.standard_normal(base.shape) for _ in range(16)]
    assert bbp_map(units, _bias_prior(fan + 1), draw_sweep_orders(1, 16, generator)).width == expected


def test_two_units_share_one_when_that_beats_a_new_one() -> None:
    # J = 2, γ = 2: neither log(γ / J) nor log(1 / (J − 1)) counts. The first client's unit is S = 3, P = 2; joining it
    # gains (3 + 3)² / 3 − 3² / 2 = 7.5, opening another 3² / 2 = 4.5.
    found = bbp_map([np.array([[3.0]]), np.array([[3.0]])], np.zeros(1), NO_SWEEPS, BetaBernoulli(gamma=2.0))
    assert [order.tolist() for order in found.orders] == [[0], [0]]
    assert found.natural.tolist() == [[6.0]]
    assert found.precision.tolist() == [[3.0]]
    assert found.posterior_mean.tolist() == [[2.0]]
    assert found.steps[0].improvement == pytest.approx(7.5)
    assert found.objectives == pytest.approx((4.5 + 7.5,))


def test_opposite_units_stay_apart() -> None:
    # Joining gains (−3 + 3)² / 3 − 4.5 = −4.5, opening 4.5.
    found = bbp_map([np.array([[3.0]]), np.array([[-3.0]])], np.zeros(1), NO_SWEEPS, BetaBernoulli(gamma=2.0))
    assert [order.tolist() for order in found.orders] == [[0], [1]]
    assert found.posterior_mean.tolist() == [[1.5], [-1.5]]


def test_the_second_new_unit_of_a_step_costs_more_than_the_first() -> None:
    # Two clients of two far units each, nothing in common: 4 · 50² / 2, less 2 log 2 for each client's pair.
    ones, twos = np.diag([50.0, 50.0, 0, 0])[:2], np.diag([0, 0, 50.0, 50.0])[2:]
    found = bbp_map([ones, twos], np.zeros(4), NO_SWEEPS, BetaBernoulli(gamma=2.0))
    assert found.width == 4
    assert found.objectives == pytest.approx((4 * 50**2 / 2 - 2 * 2 * np.log(2),))


def test_popularity_stops_growing_at_the_cap() -> None:
    np.testing.assert_allclose(
        BetaBernoulli(popularity_cap=2).popularity(5),
        [-np.inf, np.log(1 / 4), np.log(2 / 3), np.log(2 / 3), np.log(2 / 3)],
    )


def test_one_client_keeps_its_units_shrunk_towards_the_prior() -> None:
    units = np.random.default_rng(0).normal(size=(800, 3))  # wider than the cap, which is about growth
    found = bbp_map([units], np.full(3, 0.5), np.zeros((2, 1), dtype=np.intp), BetaBernoulli(sigma=0.5, sigma0=2.0))
    np.testing.assert_array_equal(found.orders[0], np.arange(800))
    np.testing.assert_allclose(found.posterior_mean, (units / 0.5 + 0.5 / 2.0) / (1 / 0.5 + 1 / 2.0), rtol=1e-12)
    assert not any(step.solved for step in found.steps)


def test_a_coordinate_of_no_precision_counts_for_nothing() -> None:
    generator = np.random.default_rng(0)
    units = [generator.normal(size=(4, 3)) for _ in range(2)]
    blind = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    changed = [units[0] + [0.0, 0.0, 9.0], units[1]]
    found, same = (bbp_map(given, np.zeros(3), NO_SWEEPS, relative_precision=blind) for given in (units, changed))
    np.testing.assert_array_equal(found.posterior_mean, same.posterior_mean)


def test_equal_precisions_of_a_client_are_one_number_a_unit() -> None:
    generator = np.random.default_rng(1)
    units = [generator.normal(size=(6, 4)) for _ in range(3)]
    sweeps = draw_sweep_orders(2, 3, generator)
    shares = np.repeat([[0.5], [1.0], [2.0]], 4, axis=1)
    nearly = shares.copy()
    nearly[0, 0] += 1e-12  # too little to matter, enough to be kept for each coordinate
    by_unit, by_coordinate = (
        bbp_map(units, np.zeros(4), sweeps, relative_precision=given) for given in (shares, nearly)
    )
    for one, other in zip(by_unit.orders, by_coordinate.orders, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(by_unit.objectives, by_coordinate.objectives, rtol=1e-9)
    np.testing.assert_allclose(by_unit.posterior_mean, by_coordinate.posterior_mean, rtol=1e-9)


def test_units_keep_their_dtype_and_are_not_changed() -> None:
    units = [np.random.default_rng(client).normal(size=(5, 3)).astype(np.float32) for client in range(3)]
    before = [values.copy() for values in units]
    found = bbp_map(units, np.zeros(3), draw_sweep_orders(3, 3, np.random.default_rng(0)))
    assert found.natural.dtype == np.float64
    for values, copy in zip(units, before, strict=True):
        np.testing.assert_array_equal(values, copy)


def test_sweep_orders_follow_the_generator() -> None:
    orders = draw_sweep_orders(4, 5, np.random.default_rng(7))
    np.testing.assert_array_equal(orders, draw_sweep_orders(4, 5, np.random.default_rng(7)))
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(5), (4, 1)))
    assert not np.array_equal(orders, draw_sweep_orders(4, 5, np.random.default_rng(8)))
    with pytest.raises(OptionError, match=r"--sweeps: -1 is negative"):
        draw_sweep_orders(-1, 5, np.random.default_rng(7))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"gamma": 0.0}, r"--gamma: 0\.0 is not a positive number"),
        ({"sigma": -1.0}, r"--sigma: -1\.0 is not"),
        ({"sigma0": float("nan")}, r"--sigma0: nan is not"),
        ({"popularity_cap": 0}, r"--popularity-cap: 0 is below 1"),
        ({"max_width": 0}, r"--max-width: 0 is below 1"),
    ],
)
def test_options_out_of_range_are_errors(option: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        BetaBernoulli(**option)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"units": []}, "there are no clients"),
        ({"units": [np.ones((2, 3)), np.ones((0, 3))]}, r"client 1: its units have the shape \(0, 3\)"),
        ({"units": [np.ones((2, 3)), np.ones((2, 4))]}, r"client 1: its units have the shape \(2, 4\)"),
        ({"units": [np.ones((2, 3)), np.full((2, 3), np.nan)]}, "client 1: its units hold NaN or infinity"),
        ({"prior_mean": np.array([0.0, 0.0, np.inf])}, "prior mean: it is not a finite vector"),
        ({"sweep_orders": np.array([[0, 0]])}, "sweep orders: a sweep does not visit every client once"),
        ({"relative_precision": np.ones((2, 1))}, r"relative precision: its shape is \(2, 1\)"),
        ({"relative_precision": -np.ones((2, 3))}, "relative precision: it holds negative or infinite numbers or NaN"),
    ],
)
def test_arrays_that_cannot_be_used_are_errors(change: dict[str, Any], message: str) -> None:
    given = {"units": [np.ones((2, 3))] * 2, "prior_mean": np.zeros(3), "sweep_orders": np.array([[0, 1]])}
    with pytest.raises(ContentError, match=message):
        bbp_map(**(given | change))


def _assert_close(found: Array, stored: Array) -> None:
    """Compare with the tolerance of the reference's float32: a share of the largest magnitude."""
    np.testing.assert_allclose(found, stored, rtol=0, atol=2e-6 * np.abs(stored).max())


def _bias_prior(coordinates: int) -> Array:
    return np.concatenate([np.zeros(coordinates - 1), [0.1]])


def _recipe(about: dict[str, Any]) -> list[Array]:
    """Rebuild the inputs of a large case from its recipe, and make sure that they are the stored run's."""
    coordinates, width = about["D"], about["units_per_client"]
    stream = np.random.RandomState(about["input_recipe"]["seed"])
    fan = coordinates - 1
    base = stream.uniform(-1 / np.sqrt(fan), 1 / np.sqrt(fan), (width, coordinates)).astype(np.float32)
    noise = _noise(about)
    units = []
    for _ in range(about["J"]):
        moved = base[stream.permutation(width)]
        units.append((moved + noise * stream.randn(width, coordinates)).astype(np.float32))
    digest = hashlib.sha256(b"".join(rows.tobytes() for rows in units)).hexdigest()
    assert digest == about["input_recipe"]["sha256_of_all_units_float32_concatenated"]
    return units


def _noise(about: dict[str, Any]) -> float:
    step = next(line for line in about["input_recipe"]["steps"] if line.startswith("noise = "))
    value = step.removeprefix("noise = ").split(" ")[0]
    return float(value) / np.sqrt(3 * (about["D"] - 1)) if "sqrt" in step else float(value)
