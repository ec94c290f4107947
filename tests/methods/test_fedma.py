"""FedMA and PFNM by hand-computed layers, and what holds for any clients."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matched_cases import Array, merged_tensors, uploads_of

from modelfuse.core.units import local_part, realign
from modelfuse.errors import ContentError, OptionError
from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.methods.contract import Merged, from_options
from modelfuse.methods.fedma import FedMA
from modelfuse.methods.gather import Given, gather
from modelfuse.methods.pfnm import PFNM
from modelfuse.methods.round_files import write_round
from modelfuse.spec.architectures import parse_architecture
from modelfuse.spec.axes import PermutationSpec
from modelfuse.spec.layers import LSTM, BatchNorm2d, Conv2d, Embedding, Flatten, Linear, ReLU, Residual
from modelfuse.spec.rows import Signal, permutation_spec
from modelfuse.types import Step

MLP = parse_architecture("mlp:in=3,hidden=6-4,out=2").spec()
ONE_LAYER = parse_architecture("mlp:in=3,hidden=6,out=2").spec()
CNN = permutation_spec([Conv2d("conv", 3, 3), ReLU(), Flatten(), Linear("fc", 5), Linear("out", 2)], Signal(1, (4, 4)))
RESIDUAL = permutation_spec(
    [
        *(Conv2d("conv", 3, 3, padding=1), BatchNorm2d("norm")),
        Residual("block", (Conv2d("one", 4, 3, padding=1), ReLU(), Conv2d("two", 3, 3, padding=1))),
        *(Flatten(), Linear("out", 2)),
    ],
    Signal(1, (2, 2)),
)
LANGUAGE = permutation_spec([Embedding("embed", 7, 3), LSTM("rnn", 4), Linear("out", 2)], Signal(1))
SPECS = {"mlp": MLP, "cnn": CNN, "residual": RESIDUAL, "language": LANGUAGE}
FIXED = {"conv.weight": (1, 3, 3), "one.weight": (3, 3), "two.weight": (3, 3), "embed.weight": (7,), "fc1.weight": (3,)}
"""Lengths of the axes that are no group's, before the classes."""
WIDTHS = {"fc1": 6, "fc2": 4, "conv": 3, "fc": 5, "one": 4, "embed": 3, "rnn": 4}


def model(rng: np.random.Generator, spec: PermutationSpec, widths: dict[str, int] | None = None) -> dict[str, Array]:
    """Return random tensors of a spec's shapes, distinct enough to be told apart."""
    widths = WIDTHS | (widths or {})
    tensors: dict[str, Array] = {}
    for name, axes in spec.axes.items():
        free = iter((2,) if name in spec.class_axis else FIXED.get(name, ()))
        shape = [next(free) if axis is None else axis.stack * axis.block * widths[axis.group] for axis in axes]
        tensors[name] = np.float32(rng.normal(scale=2.0, size=shape)) if shape else np.array(3, dtype=np.int64)
        if name.endswith("running_var"):
            tensors[name] = np.abs(tensors[name])
    return tensors


def merge(method: Any, clients: list[dict[str, Array]], spec: PermutationSpec, counts: Array | None = None) -> Merged:
    """Return a merge of tensors."""
    counts = np.full((len(clients), 2), 5) if counts is None else counts
    with tempfile.TemporaryDirectory() as folder:
        return method.merge(uploads_of(Path(folder), clients, spec, counts))


def orders_of(merged: Merged, client: int) -> dict[str, Array]:
    """Return one client's orders."""
    return {group: orders[client] for group, orders in merged.orders.items()}


def shuffles(rng: np.random.Generator, spec: PermutationSpec) -> dict[str, Array]:
    """Return a random order for each group."""
    return {group: rng.permutation(WIDTHS[group]) for group in spec.groups()}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_shuffled_copies_of_one_model_merge_into_it(spec: PermutationSpec) -> None:
    rng = np.random.default_rng(0)
    own = model(rng, spec)
    clients = [own, *(realign(own, spec, shuffles(rng, spec)) for _ in range(3))]
    merged = merge(FedMA(gamma=1e-9, average="uniform"), clients, spec)
    tensors = merged_tensors(merged)
    for number, client in enumerate(clients):
        for name, array in local_part(tensors, spec, orders_of(merged, number)).items():
            np.testing.assert_allclose(array, client[name], rtol=1e-6, err_msg=name)


def test_shuffled_copies_merge_into_one_model_from_the_output_down() -> None:
    rng = np.random.default_rng(1)
    own = model(rng, MLP)
    clients = [own, *(realign(own, MLP, shuffles(rng, MLP)) for _ in range(2))]
    merged = merge(PFNM(gamma=1e-9, bias_mean=0.0), clients, MLP)
    assert merged.report["direction"] == "top-down"
    for name, array in local_part(merged_tensors(merged), MLP, orders_of(merged, 1)).items():
        shrunk = 1 / 2 if name.startswith("fc3") else 3 / 4  # the classes' shares sum to one client's precision
        np.testing.assert_allclose(array, shrunk * clients[1][name], rtol=1e-5, err_msg=name)


@given(st.integers(0, 10**6), st.sampled_from(["posterior", "uniform"]), st.sampled_from([FedMA, PFNM]))
@settings(max_examples=15)
def test_shuffling_clients_beforehand_changes_nothing_but_the_order(seed: int, average: str, method: Any) -> None:
    rng = np.random.default_rng(seed)
    clients = [model(rng, MLP, {"fc1": wide, "fc2": 9 - wide}) for wide in (6, 4, 5)]
    spec = MLP
    moved = []
    for client in clients:
        orders = {
            "fc1": rng.permutation(len(client["fc1.bias"])),
            "fc2": rng.permutation(len(client["fc2.bias"])),
        }
        moved.append(realign(client, spec, orders))
    options = {"average": average} if method is FedMA else {}
    one, other = (merged_tensors(merge(method(**options), each, spec)) for each in (clients, moved))
    inputs = rng.normal(size=(10, 3))
    np.testing.assert_allclose(_outputs(one, inputs), _outputs(other, inputs), rtol=1e-3, atol=1e-4)


def test_a_client_that_is_part_of_another_matches_exactly() -> None:
    rng = np.random.default_rng(2)
    large = model(rng, ONE_LAYER)
    rows = np.hstack((large["fc1.weight"], large["fc1.bias"][:, None]))
    rows *= 5 / np.linalg.norm(rows, axis=1, keepdims=True)  # of equal norms, the nearest unit attracts most
    large |= {"fc1.weight": np.ascontiguousarray(rows[:, :3]), "fc1.bias": np.ascontiguousarray(rows[:, 3])}
    chosen = np.array([4, 0, 2])
    small = {name: np.ascontiguousarray(array) for name, array in local_part(large, ONE_LAYER, {"fc1": chosen}).items()}
    merged = merge(FedMA(gamma=1e-3, average="uniform"), [small, large], ONE_LAYER)
    part, all_of_it = merged.orders["fc1"]
    np.testing.assert_array_equal(part, all_of_it[chosen])
    assert merged.report["groups"]["fc1"]["units_by_members"] == [3, 3]
    tensors = local_part(merged_tensors(merged), ONE_LAYER, {"fc1": all_of_it})
    for name in large:
        np.testing.assert_allclose(tensors[name], large[name], rtol=1e-6)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=4), st.integers(0, 99))
@settings(max_examples=15)
def test_every_client_gets_its_own_widths_back(widths: list[tuple[int, int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    clients = [model(rng, MLP, {"fc1": first, "fc2": second}) for first, second in widths]
    merged = merge(FedMA(seed=seed), clients, MLP)
    for group, at in (("fc1", 0), ("fc2", 1)):
        local = [pair[at] for pair in widths]
        assert max(local) <= merged.report["groups"][group]["width"] <= sum(local)
        assert merged.report["groups"][group]["local_widths"] == local
    for number, client in enumerate(clients):
        own = local_part(merged_tensors(merged), MLP, orders_of(merged, number))
        assert {name: array.shape for name, array in own.items()} == {
            name: array.shape for name, array in client.items()
        }
    assert merged.report["parameters"]["local"] == [sum(array.size for array in client.values()) for client in clients]


def _two_clients() -> list[dict[str, Array]]:
    """Return a client of two far units, and one that has the second of them and one far from both."""
    one = {
        "fc1.weight": [[40, 0, 0], [0, 20, 0]],
        "fc1.bias": [0, 0],
        "fc2.weight": [[1, 2], [3, 4]],
        "fc2.bias": [1, 1],
    }
    two = {
        "fc1.weight": [[0, 0, 30], [0, 22, 0]],
        "fc1.bias": [4, 0],
        "fc2.weight": [[5, 6], [7, 8]],
        "fc2.bias": [3, 3],
    }
    return [{name: np.float32(array) for name, array in client.items()} for client in (one, two)]


def test_the_uniform_average_leaves_out_who_lacks_a_unit() -> None:
    counts = np.array([[10, 5], [30, 5]])
    merged = merge(FedMA(average="uniform", sweeps=0), _two_clients(), ONE_LAYER, counts)
    assert [order.tolist() for order in merged.orders["fc1"]] == [[0, 1], [2, 1]]
    tensors = merged_tensors(merged)
    assert tensors["fc1.weight"].tolist() == [[40, 0, 0], [0, 21, 0], [0, 0, 30]]
    assert tensors["fc1.bias"].tolist() == [0, 0, 4]
    assert tensors["fc2.weight"].tolist() == [[1, 5, 5], [3, 6, 7]]  # (10·2 + 30·6) / 40 = 5
    assert tensors["fc2.bias"].tolist() == [2.5, 2]


def test_the_posterior_mean_shrinks_and_class_shares_count_zeros() -> None:
    counts = np.array([[10, 5], [30, 5]])
    merged = merge(FedMA(sweeps=0), _two_clients(), ONE_LAYER, counts)
    assert merged.report["average"] == "posterior"
    tensors = merged_tensors(merged)
    assert tensors["fc1.weight"].tolist() == [[20, 0, 0], [0, 14, 0], [0, 0, 15]]
    np.testing.assert_allclose(tensors["fc1.bias"], [0.05, 0.1 / 3, 2.05], rtol=1e-6)
    np.testing.assert_allclose(tensors["fc2.weight"], [[0.25, 5, 3.75], [1.5, 6, 3.5]])
    assert tensors["fc2.bias"].tolist() == [2.5, 2]


def test_one_client_is_its_own_uniform_merge_and_half_its_posterior() -> None:
    own = model(np.random.default_rng(3), MLP)
    uniform = merged_tensors(merge(FedMA(average="uniform"), [own], MLP))
    posterior = merged_tensors(merge(FedMA(bias_mean=0.0), [own], MLP))
    for name, array in own.items():
        np.testing.assert_array_equal(uniform[name], array)
        np.testing.assert_allclose(posterior[name], array if name.startswith("fc3") else array / 2, rtol=1e-6)


def test_identical_clients_shrink_by_m_over_m_plus_one() -> None:
    own = model(np.random.default_rng(4), MLP)
    merged = merge(FedMA(gamma=1e-9, bias_mean=0.0), [own] * 4, MLP)
    assert merged.report["parameters"]["growth"] == 1
    np.testing.assert_allclose(merged_tensors(merged)["fc1.weight"], 4 / 5 * own["fc1.weight"], rtol=1e-6)


def test_a_class_that_nobody_has_takes_the_plain_mean() -> None:
    tensors = merged_tensors(merge(FedMA(sweeps=0), _two_clients(), ONE_LAYER, np.array([[10, 0], [30, 0]])))
    np.testing.assert_allclose(tensors["fc2.weight"], [[0.25, 5, 3.75], [1.5, 6, 3.5]])
    assert np.isfinite(
        merged_tensors(merge(PFNM(), _two_clients(), ONE_LAYER, np.array([[1, 0], [3, 0]])))["fc2.bias"]
    ).all()


def test_running_statistics_do_not_shrink_and_counters_stay_integers() -> None:
    own = model(np.random.default_rng(5), RESIDUAL)
    tensors = merged_tensors(merge(FedMA(gamma=1e-9), [own] * 2, RESIDUAL))
    np.testing.assert_allclose(tensors["norm.running_var"], own["norm.running_var"], rtol=1e-6)
    np.testing.assert_allclose(tensors["norm.weight"], 2 / 3 * own["norm.weight"], rtol=1e-6)
    assert tensors["norm.num_batches_tracked"] == 3
    assert tensors["norm.num_batches_tracked"].dtype == np.int64


def test_the_recurrent_average_is_what_language_models_get() -> None:
    rng = np.random.default_rng(6)
    clients = [model(rng, LANGUAGE) for _ in range(2)]
    merged = merge(FedMA(gamma=1e3), clients, LANGUAGE)  # so large that units rather open new ones
    assert merged.report["average"] == "recurrent"
    assert merged.report["groups"]["rnn"]["width"] == 8
    first = local_part(merged_tensors(merged), LANGUAGE, orders_of(merged, 0))
    np.testing.assert_allclose(first["rnn.weight_hh_l0"], clients[0]["rnn.weight_hh_l0"] / 2, rtol=1e-6)
    np.testing.assert_allclose(first["rnn.bias_ih_l0"], clients[0]["rnn.bias_ih_l0"], rtol=1e-6)


def test_rounds_of_a_language_model_without_retraining_are_the_one_shot(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    clients = [model(rng, LANGUAGE) for _ in range(3)]
    method = FedMA(gamma=10.0)
    uploads = uploads_of(tmp_path / "own", clients, LANGUAGE)
    one = method.merge(uploads)
    assert one.report["groups"]["rnn"]["width"] > 4
    step = Step("merge", "0", {})
    for group in ("embed", "rnn"):
        done = method.round(uploads, group)
        assert done.progress.shared[-1] == group
        write_round(tmp_path / group, done, uploads, step)
        files = [open_checkpoint(tmp_path / group / f"client_{client}.safetensors") for client in range(3)]
        uploads = gather(Given(files), companion=None, equal_widths=False)
    final = FedMA(gamma=10.0, final=True).merge(uploads)
    tensors = merged_tensors(final)
    for name, array in merged_tensors(one).items():
        np.testing.assert_allclose(tensors[name], array, rtol=1e-6, err_msg=name)
    for client in range(3):
        for group, order in orders_of(one, client).items():
            np.testing.assert_array_equal(final.orders[group][client], order)


def test_sixteen_like_clients_of_small_weights_open_a_unit_each() -> None:
    rng = np.random.default_rng(10)
    own = {name: 0.05 * array for name, array in model(rng, MLP, {"fc1": 20, "fc2": 12}).items()}
    clients = [
        {name: np.float32(array + rng.normal(scale=1e-4, size=array.shape)) for name, array in own.items()}
        for _ in range(16)
    ]
    groups = merge(FedMA(), clients, MLP).report["groups"]
    assert [groups[group]["width"] for group in ("fc1", "fc2")] == [35, 27]  # L + 15, as the paper's 32 → 47


def test_the_sweeps_come_from_the_seed() -> None:
    rng = np.random.default_rng(7)
    clients = [model(rng, MLP) for _ in range(4)]
    one, same = (merged_tensors(merge(FedMA(seed=3), clients, MLP)) for _ in range(2))
    assert all(np.array_equal(one[name], same[name]) for name in one)
    sweeps = {"fc1": [[3, 2, 1, 0]], "fc2": []}
    assert len(merge(FedMA(sweep_orders=sweeps), clients, MLP).report["groups"]["fc1"]["iterations"]) == 2


def test_the_prior_of_the_authors_code_sits_on_the_first_weight() -> None:
    client = {name: np.zeros_like(array) for name, array in model(np.random.default_rng(8), MLP).items()}
    tensors = merged_tensors(merge(FedMA(bias_prior="ibm"), [client], MLP))
    np.testing.assert_allclose(tensors["fc1.bias"], 0.05, rtol=1e-6)
    np.testing.assert_allclose(tensors["fc2.weight"], [[0.05, 0, 0, 0, 0, 0]] * 4, rtol=1e-6)
    assert not tensors["fc2.bias"].any()


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (FedMA, {"average": "median"}, "'median' is not a choice"),
        (FedMA, {"gamma": 0.0}, "--gamma: 0.0 is not a positive number"),
        (FedMA, {"sigma": float("nan")}, "--sigma"),
        (FedMA, {"sweeps": -1}, "--sweeps: -1 is negative"),
        (FedMA, {"seed": -1}, "--seed: -1 is negative"),
        (FedMA, {"max_width": -1}, "--max-width"),
        (FedMA, {"bias_prior": "first"}, "'first' is not a choice"),
        (FedMA, {"bias_mean": float("inf")}, "--bias-mean: inf is not a number"),
        (FedMA, {"direction": "top-down"}, "--direction: method m does not know it"),
        (PFNM, {"direction": "sideways"}, "'sideways' is not a choice"),
        (PFNM, {"average": "uniform"}, "--average: method m does not know it"),
    ],
)
def test_an_option_out_of_range_is_an_error(method: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        from_options(method, "m", options)


def test_what_does_not_go_together_is_an_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    perceptrons, convolutions = [model(rng, MLP)] * 2, [model(rng, CNN)]
    with pytest.raises(OptionError, match="network is not fully connected"):
        merge(PFNM(direction="top-down"), convolutions, CNN)
    with pytest.raises(OptionError, match="--bias-prior ibm"):
        merge(PFNM(bias_prior="ibm"), perceptrons, MLP)
    with pytest.raises(ContentError, match="there are none for group fc2"):
        merge(FedMA(sweep_orders={"fc1": [[0, 1]]}), perceptrons, MLP)
    with pytest.raises(ContentError, match="does not visit 2 clients"):
        merge(FedMA(sweep_orders={"fc1": [[0]], "fc2": []}), perceptrons, MLP)
    with pytest.raises(OptionError, match="does not say how many examples of each class"):
        FedMA().merge(uploads_of(tmp_path, perceptrons, MLP))
    with pytest.raises(ContentError, match=r"its class counts are \[1, 2, 3\], its output layer has 2 classes"):
        merge(FedMA(), perceptrons, MLP, np.array([[1, 2, 3], [1, 2, 3]]))


def _outputs(tensors: dict[str, Array], inputs: Array) -> Array:
    for layer in ("fc1", "fc2"):
        inputs = np.maximum(inputs @ tensors[f"{layer}.weight"].T + tensors[f"{layer}.bias"], 0)
    return inputs @ tensors["fc3.weight"].T + tensors["fc3.bias"]
