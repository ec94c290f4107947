"""PFNM and FedMA against the stored runs of the authors' code, with their sweep orders replayed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from matched_cases import Array, Case, merged_tensors, torch_layout, uploads_of

from modelfuse.core.units import local_part
from modelfuse.methods.fedma import FedMA
from modelfuse.methods.pfnm import PFNM
from modelfuse.spec.architectures import parse_architecture
from modelfuse.spec.axes import PermutationSpec
from modelfuse.spec.layers import LSTM, Embedding, Linear
from modelfuse.spec.rows import Signal, permutation_spec

CNNS = {
    "cnn_cifar_J2": "fednet:bias=true",
    "cnn_mnist_J3": "fednet:channels=1,size=28,bias=true",
    "fedfisher_pfnm_mnist_J3": "fednet:channels=1,size=28,bias=true",
    "lenet_mnist_J2": "lenet",
    "vgg9_small_J3": "vgg9",
}


def _renamed(spec: PermutationSpec, layers: list[str]) -> PermutationSpec:
    """Return the spec with its layers called as a case calls them; groups keep their names."""
    old = list(dict.fromkeys(name.rpartition(".")[0] for name in spec.axes))
    names = dict(zip(old, layers, strict=True))

    def renamed(tensor: str) -> str:
        layer, _, leaf = tensor.rpartition(".")
        return f"{names[layer]}.{leaf}"

    return PermutationSpec(
        {renamed(tensor): row for tensor, row in spec.axes.items()},
        {renamed(tensor): axis for tensor, axis in spec.class_axis.items()},
    )


def _as_stored(tensors: dict[str, Array], shapes: dict[str, list[int]]) -> dict[str, Array]:
    """Return the tensors in the layout of the authors' code: conv (out, in·k·k), fully connected (in, out)."""
    return {name: array.reshape(shapes[name]) if array.ndim != 2 else array.T for name, array in tensors.items()}


@pytest.mark.parametrize("method", [FedMA, PFNM])
@pytest.mark.parametrize("name", CNNS)
def test_convolutional_networks_in_one_shot(tmp_path: Path, shared: Path, name: str, method: type) -> None:
    case = Case(shared / "reference" / "network_oneshot", name)
    spec = _renamed(parse_architecture(CNNS[name]).spec(), case.about["layer_order"])
    clients = [case.part(f"client_{client}.") for client in range(case.about["J"])]
    groups = spec.groups()
    sweeps = {group: case[f"layer{number}_sweep_orders"].tolist() for number, group in enumerate(groups, start=1)}
    uploads = uploads_of(tmp_path, clients, spec, case["class_counts"])
    merged = method(bias_prior="ibm", sweep_orders=sweeps).merge(uploads)
    assert case.about["exact_variant_same_assignment"]
    for number, group in enumerate(groups, start=1):
        for found, stored in zip(merged.orders[group], case.ragged(f"layer{number}_assignment"), strict=True):
            np.testing.assert_array_equal(found, stored)
    assert [merged.report["groups"][group]["width"] for group in groups] == case.about["global_units"]
    for tensor, array in _as_stored(merged_tensors(merged), case.about["matched_shapes"]).items():
        np.testing.assert_allclose(array, case[f"matched.{tensor}"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["mlp2_J3", "mlp2_J12"])
@pytest.mark.parametrize("method", [FedMA, PFNM])
def test_perceptrons_from_the_input_up(tmp_path: Path, shared: Path, name: str, method: type) -> None:
    case = Case(shared / "reference" / "network_oneshot", name)
    clients = [torch_layout(case.part(f"client_{client}.")) for client in range(case.about["J"])]
    spec = parse_architecture("mlp:in=1,hidden=1-1,out=5").spec()
    sweeps = {f"fc{number}": case[f"layer{number}_sweep_orders"].tolist() for number in (1, 2)}
    uploads = uploads_of(tmp_path, clients, spec, case["class_counts"])
    upwards = {"direction": "bottom-up"} if method is PFNM else {}
    merged = method(bias_prior="ibm", sweep_orders=sweeps, **upwards).merge(uploads)
    tensors = merged_tensors(merged)
    for number in (1, 2):
        for found, stored in zip(merged.orders[f"fc{number}"], case.ragged(f"layer{number}_assignment"), strict=True):
            np.testing.assert_array_equal(found, stored)
        weight = case[f"layer{number}_global_weight_units_as_rows"]
        np.testing.assert_allclose(tensors[f"fc{number}.weight"], weight, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(
            tensors[f"fc{number}.bias"], case[f"layer{number}_global_bias"], rtol=1e-6, atol=1e-6
        )
    np.testing.assert_allclose(tensors["fc3.weight"], case["matched_last_weight"].T, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(tensors["fc3.bias"], case["matched_last_bias"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["pfnm_h1_J3", "pfnm_h2_J4", "pfnm_h3_J5_unequal"])
def test_perceptrons_from_the_output_down(tmp_path: Path, shared: Path, name: str) -> None:
    case = Case(shared / "reference" / "pfnm_mlp", name)
    clients = [torch_layout(case.part(f"client_{client}.")) for client in range(case.about["J"])]
    wide = [{tensor: array.astype(np.float64) for tensor, array in client.items()} for client in clients]
    hidden = len(case.about["dims"]) - 2
    spec = parse_architecture(f"mlp:in=1,hidden={'-'.join('1' * hidden)},out=5").spec()
    rows = case["sweep_orders"].reshape(hidden, case.about["iterations"], -1)  # the last hidden layer first
    sweeps = {group: layer.tolist() for group, layer in zip(spec.groups()[::-1], rows, strict=True)}
    uploads = uploads_of(tmp_path, wide, spec, case["class_counts"])
    merged = PFNM(sigma=case.about["sigma"], sigma0=case.about["sigma0"], sweep_orders=sweeps).merge(uploads)
    for number, group in enumerate(spec.groups(), start=1):
        for found, stored in zip(merged.orders[group], case.ragged(f"layer{number}_assignment"), strict=True):
            np.testing.assert_array_equal(found, stored)
    expected = torch_layout(case.part("global."))
    tensors = merged_tensors(merged)
    for tensor, array in expected.items():
        np.testing.assert_allclose(tensors[tensor], array, rtol=1e-9, atol=1e-12)


def _language_model() -> PermutationSpec:
    return permutation_spec([Embedding("encoder", 1, 1), LSTM("rnn", 1), Linear("decoder", 1)], Signal(1))


@pytest.mark.parametrize("name", ["lstm_J2", "lstm_J3_growing", "lstm_J11"])
def test_language_models(tmp_path: Path, shared: Path, name: str) -> None:
    case = Case(shared / "reference" / "lstm_oneshot", name)
    clients = [case.part(f"client_{client}.") for client in range(case.about["J"])]
    spec = _language_model()
    sweeps = {"encoder": case["embedding_sweep_orders"].tolist(), "rnn": case["hidden_sweep_orders"].tolist()}
    merged = FedMA(gamma=case.about["gamma"], sweep_orders=sweeps).merge(uploads_of(tmp_path, clients, spec))
    assert merged.report["average"] == "recurrent"
    for group, stored_name in (("encoder", "embedding"), ("rnn", "hidden")):
        for found, stored in zip(merged.orders[group], case.ragged(f"{stored_name}_assignment"), strict=True):
            np.testing.assert_array_equal(found, stored)
    tensors = merged_tensors(merged)
    for tensor, array in case.part("matched.").items():
        np.testing.assert_allclose(tensors[tensor], array, rtol=2e-6, atol=2e-6)
    for client in range(case.about["J"]):
        own = local_part(tensors, spec, {group: orders[client] for group, orders in merged.orders.items()})
        for tensor, array in case.part(f"reconstructed_client_{client}.").items():
            np.testing.assert_allclose(own[tensor], array, rtol=2e-6, atol=2e-6)


def test_what_matched_the_language_models_is_their_posterior(tmp_path: Path, shared: Path) -> None:
    case = Case(shared / "reference" / "lstm_oneshot", "lstm_J3_growing")
    clients = [case.part(f"client_{client}.") for client in range(case.about["J"])]
    sweeps = {"encoder": case["embedding_sweep_orders"].tolist(), "rnn": case["hidden_sweep_orders"].tolist()}
    method = FedMA(gamma=case.about["gamma"], sweep_orders=sweeps, average="posterior")
    counts = np.ones((case.about["J"], 16), dtype=int)
    tensors = merged_tensors(method.merge(uploads_of(tmp_path, clients, _language_model(), counts)))
    for tensor, array in (
        ("encoder.weight", case["posterior_mean.embedding_units_as_rows"].T),
        ("rnn.weight_ih_l0", case["posterior_mean.rnn.weight_ih_l0"]),
        ("rnn.bias_ih_l0", case["posterior_mean.rnn.bias_ih_l0"]),
    ):
        np.testing.assert_allclose(tensors[tensor], array, rtol=1e-6, atol=1e-6)


def test_cutting_a_grown_vgg9_back(shared: Path) -> None:
    case = Case(shared / "reference" / "fedma_comm", "vgg9_reconstruct_paper_widths")
    spec = parse_architecture("vgg9").spec()
    random = np.random.RandomState(case.about["input_recipe"]["seed"])
    widths = case.about["matched_widths"]
    layers = [name.removesuffix(".weight") for name in spec.axes if name.endswith(".weight")]
    digest = hashlib.sha256()
    tensors: dict[str, Array] = {}
    for number, layer in enumerate(layers):
        before = widths[number - 1] if number else 3
        after = widths[number] if number < 8 else 10
        stored = (after, 9 * before) if number < 6 else (before * (16 if number == 6 else 1), after)
        weight = random.randn(*stored).astype(np.float32)
        bias = random.randn(after).astype(np.float32)
        digest.update(weight.tobytes() + bias.tobytes())
        tensors[f"{layer}.weight"] = weight.reshape(after, before, 3, 3) if number < 6 else weight.T
        tensors[f"{layer}.bias"] = bias
    assert digest.hexdigest() == case.about["input_recipe"]["sha256"]
    orders = {group: case[f"assignment_{number}"] for number, group in enumerate(spec.groups(), start=1)}
    own = local_part(tensors, spec, orders)
    for number, layer in enumerate(layers):
        weight = own[f"{layer}.weight"]
        stored = weight.reshape(len(weight), -1) if number < 6 else weight.T
        for offset, array in enumerate((stored, own[f"{layer}.bias"])):
            expected = case.about["output_sha256_float32_c_order"][2 * number + offset]
            assert hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest() == expected
