"""FedProto's split: so many classes, so many examples, each example once."""

from __future__ import annotations

import numpy as np
import pytest

from modelfuse.client.partition import Partition, draw_partition
from modelfuse.client.schemes import SchemeSettings
from modelfuse.client.shots import Shots
from modelfuse.errors import OptionError

TRAIN = np.repeat(np.arange(10), 300)
TEST = np.repeat(np.arange(10), 100)


def draw(shots: Shots | None, clients: int = 6, seed: int = 0) -> Partition:
    return draw_partition("nway-kshot", SchemeSettings(clients, 10, shots=shots), TRAIN, TEST, seed=seed)


def test_every_client_has_so_many_examples_of_its_classes_in_both_splits() -> None:
    drawn = draw(Shots(ways=3, shots=20, test_shots=5))
    for train, test in zip(drawn.clients, drawn.tests, strict=True):
        counts = np.bincount(TRAIN[train], minlength=10)
        assert sorted(counts[counts > 0]) == [20, 20, 20]
        np.testing.assert_array_equal(np.bincount(TEST[test], minlength=10), np.where(counts > 0, 5, 0))
    for parts in (drawn.clients, drawn.tests):
        together = np.concatenate(parts)
        assert len(np.unique(together)) == len(together)
    assert drawn.details["ways"] == 3
    assert drawn.details["noise"] == "uniform"


def test_a_seed_decides_the_draw() -> None:
    one, same, other = (draw(Shots(3, 2, 20, 2, 5), seed=seed) for seed in (1, 1, 2))
    for left, right in zip(one.clients, same.clients, strict=True):
        np.testing.assert_array_equal(left, right)
    assert [len(part) for part in one.clients] != [len(part) for part in other.clients]


@pytest.mark.parametrize(
    ("ways", "ways_std", "expected"),
    [(3, 2, range(2, 6)), (4, 2, range(2, 7)), (5, 3, range(2, 9)), (8, 3, range(5, 10)), (3, 0, [3])],
)
def test_uniform_numbers_are_the_codes(ways: int, ways_std: int, expected: range | list[int]) -> None:
    drawn = Shots(ways, ways_std).draw_ways(4000, 10, np.random.default_rng(0))
    numbers, counts = np.unique(drawn, return_counts=True)
    np.testing.assert_array_equal(numbers, list(expected))
    assert counts.max() < 1.3 * counts.min()  # all equally likely
    shots = Shots(3, shots=100, shots_std=2).draw_shots(4000, np.random.default_rng(0))
    np.testing.assert_array_equal(np.unique(shots), [99, 100, 101, 102])


def test_gaussian_numbers_have_the_deviation_asked_for() -> None:
    rng = np.random.default_rng(0)
    ways = Shots(5, 1, noise="gaussian").draw_ways(4000, 10, rng)
    assert ways.mean() == pytest.approx(5, abs=0.1)
    assert ways.std() == pytest.approx(1, abs=0.1)
    assert (Shots(1, 9, noise="gaussian").draw_ways(500, 10, rng) >= 1).all()
    assert Shots(5, shots=100, shots_std=10, noise="gaussian").draw_shots(4000, rng).std() == pytest.approx(10, abs=0.6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ways": 0}, "--ways: 0 is out of range"),
        ({"ways": 3, "shots": 0}, "--shots: 0 is out of range"),
        ({"ways": 3, "test_shots": 0}, "--test-shots: 0 is out of range"),
        ({"ways": 3, "ways_std": -1}, "--ways-std: -1 is out of range"),
        ({"ways": 3, "noise": "poisson"}, "--noise: 'poisson' is unknown"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Shots(**settings)  # type: ignore[arg-type]


def test_what_the_data_cannot_give_is_refused() -> None:
    with pytest.raises(OptionError, match="--ways: 11 of 10 classes"):
        draw(Shots(11))
    with pytest.raises(OptionError, match="--shots: 6 clients want 360 examples of class 0, which has 300"):
        draw(Shots(10, shots=60))
    with pytest.raises(OptionError, match="--test-shots: 6 clients want 120 examples of class 0, which has 100"):
        draw(Shots(10, shots=10, test_shots=20))
    with pytest.raises(OptionError, match="--ways: nway-kshot needs a number of classes"):
        draw(None)


def test_settings_belong_to_their_scheme() -> None:
    for scheme, alpha in (("iid", None), ("dirichlet-client", 1.0)):
        with pytest.raises(OptionError, match=f"the scheme {scheme} has no such setting"):
            draw_partition(scheme, SchemeSettings(3, 10, alpha, Shots(3)), TRAIN, TEST)
    with pytest.raises(OptionError, match="--alpha: the scheme nway-kshot has no such setting"):
        draw_partition("nway-kshot", SchemeSettings(3, 10, 0.5, Shots(3)), TRAIN, TEST)
