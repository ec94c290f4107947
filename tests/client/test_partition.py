"""Partitions and their schemes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from modelfuse.client.partition import Partition, choose_clients, draw_partition, read_partition
from modelfuse.client.roles import Roles
from modelfuse.client.schemes import SCHEMES, SchemeSettings, divide_by_shares
from modelfuse.client.sources.source import Owners
from modelfuse.errors import ContentError, FileError, OptionError
from modelfuse.files.writer import save
from modelfuse.types import Metadata

LABELS = np.repeat(np.arange(10), 60)
TEST_LABELS = np.repeat(np.arange(10), 20)
HOLDOUT_OF_SEED_0 = [3, 189, 455, 478, 562]
SIZES_OF_SEED_0 = [92, 96, 95, 104, 97, 111]


def draw(scheme: str = "dirichlet-client", clients: int = 6, alpha: float | None = 0.5, **options: Any) -> Partition:
    return draw_partition(scheme, SchemeSettings(clients, 10, alpha), LABELS, TEST_LABELS, **options)


@given(
    scheme=st.sampled_from(sorted(SCHEMES.keys() - {"natural", "nway-kshot"})),
    clients=st.integers(1, 8),
    alpha=st.floats(0.05, 50),
    seed=st.integers(0, 2**32),
    holdout=st.integers(0, 100),
)
def test_clients_and_holdout_are_the_whole_train_split_and_disjoint(
    scheme: str, clients: int, alpha: float, seed: int, holdout: int
) -> None:
    given_alpha = None if scheme == "iid" else alpha
    try:
        drawn = draw(scheme, clients, given_alpha, seed=seed, holdout=holdout)
    except OptionError as error:  # a skewed split may leave a client without examples, draw after draw
        assert "draws gave" in str(error)
        return
    everything = np.concatenate([*drawn.clients, drawn.validation])
    np.testing.assert_array_equal(np.sort(everything), np.arange(len(LABELS)))
    np.testing.assert_array_equal(np.sort(np.concatenate(drawn.tests)), np.arange(len(TEST_LABELS)))
    assert len(drawn.validation) == holdout
    counts = [np.bincount(LABELS[indices], minlength=10).tolist() for indices in drawn.clients]
    assert drawn.details["class_counts"] == counts


def test_one_seed_is_one_split() -> None:
    first, second, other = draw(seed=3), draw(seed=3), draw(seed=4)
    assert all(map(np.array_equal, first.clients, second.clients))
    assert not all(map(np.array_equal, first.clients, other.clients))


def test_the_split_of_a_seed_stays_what_it_is() -> None:
    drawn = draw(seed=0, holdout=5)
    assert drawn.validation.tolist() == HOLDOUT_OF_SEED_0
    assert [len(indices) for indices in drawn.clients] == SIZES_OF_SEED_0


def test_classes_are_cut_in_proportion() -> None:
    shares = np.array([[0.5, 0.0], [0.25, 0.0], [0.25, 1.0]])
    labels = np.array([0, 1, 0, 1, 0, 0])
    parts = divide_by_shares(labels, shares, np.random.default_rng(0))
    assert [np.bincount(labels[part], minlength=2).tolist() for part in parts] == [[2, 0], [1, 0], [1, 2]]


def test_a_client_is_tested_on_its_own_mixture() -> None:
    drawn = draw(alpha=0.3, seed=1)
    for own, test in zip(drawn.clients, drawn.tests, strict=True):
        trained = np.bincount(LABELS[own], minlength=10) / 60
        tested = np.bincount(TEST_LABELS[test], minlength=10) / 20
        np.testing.assert_allclose(
            tested, trained, atol=0.5 / 20 + 0.5 / 60 + 1e-9
        )  # both are rounded to whole examples


def test_skew_follows_alpha() -> None:
    def skew(alpha: float) -> float:
        shares = np.array(draw(alpha=alpha, clients=4, seed=0).details["class_counts"]) / 60
        return float(shares.max(axis=0).mean())

    assert skew(0.01) > 0.9
    assert skew(1000.0) < 0.3


def class_split(alpha: float = 0.5, clients: int = 6, balance: bool = True, **options: Any) -> Partition:
    settings = SchemeSettings(clients, 10, alpha, balance=balance)
    return draw_partition("dirichlet-class", settings, LABELS, TEST_LABELS, **options)


def test_classes_are_divided_one_by_one() -> None:
    drawn = draw("dirichlet-class", alpha=0.1, seed=0)
    counts = np.array(drawn.details["class_counts"])  # (K, C)
    np.testing.assert_array_equal(counts.sum(axis=0), 60)
    assert (counts.max(axis=0) > 30).sum() > 5  # one client has most of most classes
    tested = np.array([np.bincount(TEST_LABELS[indices], minlength=10) for indices in drawn.tests])
    np.testing.assert_allclose(tested / 20, counts / 60, atol=0.5 / 20 + 0.5 / 60 + 1e-9)


@given(alpha=st.floats(0.05, 5), clients=st.integers(2, 8), seed=st.integers(0, 2**32))
def test_balance_gives_nothing_to_who_has_enough(alpha: float, clients: int, seed: int) -> None:
    counts = np.array(class_split(alpha, clients, seed=seed, min_examples=1).details["class_counts"])
    before = np.cumsum(counts, axis=1) - counts  # what each held when a class was divided
    assert not counts[before >= len(LABELS) / clients].any()
    assert counts.sum(axis=1).max() < len(LABELS) / clients + 60


def test_balance_against_the_rule_by_hand() -> None:
    settings = SchemeSettings(2, 3, 1.0, balance=True)
    labels = np.repeat(np.arange(3), 8)
    drawn = draw_partition("dirichlet-class", settings, labels, labels, seed=5)
    draws = np.random.default_rng(np.random.SeedSequence(5).spawn(2)[1]).dirichlet([1.0, 1.0], size=3)
    held, expected = np.zeros(2), []
    for p in draws:
        p = p * (held < 12)
        first = round(p[0] / p.sum() * 8)
        expected.append([first, 8 - first])
        held += expected[-1]
    assert drawn.details["class_counts"] == np.transpose(expected).tolist()
    assert drawn.details["balance"] is True


def test_a_balanced_split_that_cannot_be_is_given_up() -> None:
    with pytest.raises(OptionError, match="none of 100 draws gave each of 6 clients 100 examples"):
        class_split(min_examples=100)


def play(min_chars: int | None = None, clients: int | None = None, **options: Any) -> Partition:
    """Divide sequences of two steps among four roles, which own train examples 0 2 3 | 1 6 | 4 5 | none."""
    names, characters = ("a/X", "a/Y", "b/X", "b/Z"), np.array([900, 20_000, 10_000, 5_000])
    train, test = Owners(names, characters, np.array([0, 1, 0, 0, 2, 2, 1])), Owners(names, characters, np.arange(4))
    steps = np.array([[0, 1], [1, 1], [2, 0], [0, 0], [1, 0], [2, 2], [1, 2]])
    settings = SchemeSettings(clients, 3, min_chars=min_chars, roles=Roles(train, test))
    return draw_partition("natural", settings, steps, np.zeros((4, 2), dtype=np.int64), **options)


def test_natural_clients_are_roles() -> None:
    drawn = play()
    assert drawn.details["names"] == ["a/Y", "b/X"]
    assert [indices.tolist() for indices in drawn.clients] == [[1, 6], [4, 5]]
    assert [indices.tolist() for indices in drawn.tests] == [[1], [2]]
    assert drawn.details["class_counts"] == [[0, 3, 1], [1, 1, 2]]  # steps count, not sequences
    assert drawn.details["num_clients"] == 2


def test_fewer_clients_than_roles_are_drawn() -> None:
    assert {name for seed in range(9) for name in play(clients=1, seed=seed).details["names"]} == {"a/Y", "b/X"}


@pytest.mark.parametrize("seed", range(6))
def test_a_holdout_leaves_roles_their_own(seed: int) -> None:
    drawn = play(seed=seed, holdout=1)
    (held,) = drawn.validation.tolist()
    assert [indices.tolist() for indices in drawn.clients] == [
        [number for number in own if number != held] for own in ([1, 6], [4, 5])
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_chars": 5_000}, "--min-chars: b/Z speaks 5000 characters, too few for both splits. Raise"),
        ({"clients": 3}, "--num-clients: 2 of 4 roles speak at least 10,000 characters. Lower"),
        ({"min_chars": 20_001}, "--min-chars: 0 of 4 roles speak at least 20,001"),
    ],
)
def test_roles_that_cannot_be_clients(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        play(**options)


def test_schemes_refuse_what_they_do_not_know() -> None:
    for scheme, given_settings, message in (
        ("natural", {"alpha": 0.5}, "--alpha: the scheme natural has no such setting"),
        ("natural", {}, "--scheme natural: the data set does not come with clients"),
        ("iid", {"balance": True}, "--balance: the scheme iid has"),
        ("dirichlet-client", {"alpha": 0.5, "min_chars": 5}, "--min-chars: the scheme dirichlet-client has"),
    ):
        settings = SchemeSettings(3, 10, **given_settings)
        with pytest.raises(OptionError, match=message):
            draw_partition(scheme, settings, LABELS, TEST_LABELS)
    with pytest.raises(OptionError, match="--num-clients: the scheme needs"):
        draw_partition("iid", SchemeSettings(None, 10), LABELS, TEST_LABELS)
    sequences = np.zeros((4, 2), dtype=np.int64)
    with pytest.raises(OptionError, match="--scheme: dirichlet-class divides classes, and a sequence has many"):
        draw_partition("dirichlet-class", SchemeSettings(2, 10, 0.5), sequences, sequences)


def test_iid_gives_everybody_as_much() -> None:
    drawn = draw("iid", clients=7, alpha=None)
    assert {len(indices) for indices in drawn.clients} == {85, 86}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "dirichlet"}, "--scheme: 'dirichlet' is unknown. There are"),
        ({"clients": 0}, "--num-clients: 0"),
        ({"alpha": None}, "--alpha: the scheme needs"),
        ({"alpha": 0.0}, "--alpha: 0.0 is out of range"),
        ({"scheme": "iid"}, "--alpha: the scheme iid has no such setting"),
        ({"holdout": 600}, "--server-holdout: 600 of 600"),
        ({"min_examples": 100}, "--min-examples: none of 100 draws gave each of 6 clients 100 examples. Lower"),
        ({"min_examples": 101}, "--num-clients: 6 clients of at least 101 examples each, and there are 600 to divide"),
        ({"clients": 10**24}, "--num-clients: 1000000000000000000000000 clients of at least 1 examples"),
        ({"clients": 595, "holdout": 6}, "there are 594 to divide. Lower --num-clients, --min-examples or"),
        ({"alpha": 1e-300}, "none of 100 draws"),
    ],
)
def test_splits_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        draw(**options)


def test_draws_are_repeated_until_everybody_has_enough() -> None:
    assert min(map(len, draw(alpha=0.1, seed=0).clients)) < 60
    assert min(map(len, draw(alpha=0.1, seed=0, min_examples=60).clients)) >= 60


def test_a_file_gives_back_the_partition(tmp_path: Path) -> None:
    drawn = draw(holdout=10)
    save(tmp_path / "split.safetensors", drawn.tensors(), Metadata("partition", details=drawn.details))
    read = read_partition(tmp_path / "split.safetensors")
    assert all(map(np.array_equal, read.clients, drawn.clients))
    assert all(map(np.array_equal, read.tests, drawn.tests))
    np.testing.assert_array_equal(read.validation, drawn.validation)
    assert read.details["class_counts"] == drawn.details["class_counts"]


def foreign(path: Path, **tensors: Any) -> Path:
    safetensors.numpy.save_file({name: np.asarray(value) for name, value in tensors.items()}, path)
    return path


def test_a_foreign_file_needs_just_the_clients(tmp_path: Path) -> None:
    eleven = {f"client_{number}": np.array([number, 20], dtype=np.int32) for number in range(11)}
    read = read_partition(foreign(tmp_path / "f.safetensors", **eleven))
    assert [indices.tolist() for indices in read.clients] == [[number, 20] for number in range(11)]
    assert read.validation.size == 0
    assert read.tests == ()


def test_the_shared_partition(shared: Path) -> None:
    read = read_partition(shared / "data" / "fednet-cifar10-k6" / "partition.safetensors")
    assert [len(indices) for indices in read.clients] == [10701, 13230, 5764, 6994, 8910, 3901]
    assert len(read.validation) == 500
    read.check(50_000, None, "partition")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"validation": [0]}, "it has 0 tensors client_"),
        ({"client_0": [0], "client_2": [1]}, "tensor client_1 is missing. Number"),
        ({"client_0": [0], "client_1": [1], "test_0": [1]}, "2 tensors client_… and 1 tensors test_"),
        ({"client_0": [0.5]}, "client_0 has shape .* no list of indices"),
        ({"client_0": [-1]}, "no list of indices"),
        ({"client_0": [[1]]}, "no list of indices"),
    ],
)
def test_faults_of_partition_files(tmp_path: Path, tensors: dict[str, Any], message: str) -> None:
    with pytest.raises(ContentError, match=rf"f.safetensors: .*{message}"):
        read_partition(foreign(tmp_path / "f.safetensors", **tensors))


def test_other_kinds_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "m.safetensors", {"w": np.zeros(2, dtype=np.float32)}, Metadata("model"))
    with pytest.raises(FileError, match="a model file where a partition file is needed"):
        read_partition(tmp_path / "m.safetensors")


def test_a_partition_of_another_data_set_is_noticed() -> None:
    drawn = draw()
    drawn.check(600, 200, "p")
    with pytest.raises(ContentError, match="p: client_. speaks of example 599 and --data has 599"):
        drawn.check(599, 200, "p")
    with pytest.raises(ContentError, match="test_. speaks of example .* and --data has 10"):
        drawn.check(600, 10, "p")


def test_clients_are_chosen_by_number() -> None:
    assert choose_clients("all", 3) == (0, 1, 2)
    assert choose_clients("2, 0", 3) == (2, 0)
    for text in ("3", "-1", "1,1", "", "first", "0,,1"):
        with pytest.raises(OptionError, match="--client: .* from 0 to 2"):
            choose_clients(text, 3)


def test_a_partition_says_how_it_was_drawn_without_its_lists() -> None:
    details = {"scheme": "iid", "seed": 3, "data": "digits", "class_counts": [[1]], "classes": ["a"], "names": ["x"]}
    drawn = Partition((), np.empty(0, dtype=np.intp), details=details)
    assert drawn.settings() == {"scheme": "iid", "partition_seed": 3, "partition_data": "digits"}
