"""FedFiOT on whole networks, against stored results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from modelfuse.core.units import invert
from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.files.writer import save
from modelfuse.methods.contract import Merged
from modelfuse.methods.fedfiot import FedFiOT
from modelfuse.methods.gather import Given, gather
from modelfuse.methods.uploads import Uploads
from modelfuse.spec.axes import Axis, PermutationSpec, consume, match
from modelfuse.types import Metadata

NETWORKS = [
    *("cnn_bias_k6", "cnn_euclidean_match", "cnn_euclidean_uniform", "cnn_external_reference", "cnn_no_alignment"),
    *("cnn_nobias_k4", "cnn_uniform_aggregate", "mlp_bias_k3", "mlp_bias_k6_deep", "mlp_equal_sizes"),
    *("mlp_explicit_reference", "mlp_fallback_identity", "mlp_nobias_k2", "mlp_s1", "mlp_wide_fisher"),
]


def _spec(architecture: dict[str, Any]) -> PermutationSpec:
    rows: dict[str, tuple[Axis | None, ...]] = {}
    layers = architecture["layers"]
    for number, layer in enumerate(layers):
        name, owns = layer["name"], match(layer["name"]) if number < len(layers) - 1 else None
        before = layers[number - 1]["name"] if number else None
        # a convolution's kernel is on axes of its own; behind a flatten a unit has several columns
        reads = consume(before, block=layer["coords_per_unit"] if layer["type"] == "linear" else 1) if before else None
        rows[f"{name}.weight"] = (owns, reads) if layer["type"] == "linear" else (owns, reads, None, None)
        if layer["bias"]:
            rows[f"{name}.bias"] = (owns,)
    return PermutationSpec(rows)


def _uploads(folder: Path, case: dict[str, Any]) -> Uploads:
    paths = [folder / f"client_{k}.safetensors" for k in range(case["K"])]
    reference = {"largest": None, "external": folder / "reference.safetensors"}.get(
        case["reference"], folder / f"client_{case['reference_index']}.safetensors"
    )
    given = Given(
        files=[open_checkpoint(path) for path in paths],
        fishers=[open_checkpoint(folder / f"fisher_{k}.safetensors") for k in range(case["K"])],
        num_examples=case["sample_counts"],
        spec=_spec(case["architecture"]),
        references=[None if reference is None else open_checkpoint(reference)],
    )
    return gather(given, companion="fisher")


def _method(case: dict[str, Any]) -> FedFiOT:
    return FedFiOT(
        rho=case["rho"],
        lam=case["damping"],
        inner_iters=case["max_iters"],
        matching=case["match"] if case["align"] else "identity",
        average=case["aggregate"],
        safeguard=case["fallback_to_identity"],
    )


def _tensors(merged: Merged) -> dict[str, np.ndarray]:
    return {
        name: np.concatenate(list(tensor.chunks())).reshape(tensor.layout.shape)
        for name, tensor in merged.tensors.items()
    }


def _check(case: dict[str, Any], merged: Merged, folder: Path) -> None:
    expected = case["expected"]
    assert merged.report["objective"]["aligned"] == pytest.approx(expected["J_aligned"], rel=1e-9)
    assert merged.report["objective"]["identity"] == pytest.approx(expected["J_identity"], rel=1e-9)
    if case["align"]:
        assert merged.report["objective"]["chosen"] == expected["chosen"]
        for layer in expected["layers"][:-1]:
            trace = merged.report["groups"][layer["layer"]]
            assert [step["objective"] for step in trace["iterations"]] == pytest.approx(layer["J"], rel=1e-9)
            assert trace["stop"] == layer["stop"]
            if expected["chosen"] == "aligned":
                orders = merged.orders[layer["layer"]]
                assert [invert(order).tolist() for order in orders] == layer["assignments"][-1]
    stored = load_file(folder / "merged.safetensors")
    for name, tensor in _tensors(merged).items():
        # the clients are float32, and so is what a merge of them writes
        np.testing.assert_allclose(tensor, stored[name].astype(np.float32), rtol=2e-7, atol=1e-12)


@pytest.mark.parametrize("name", NETWORKS)
def test_stored_networks(shared: Path, name: str) -> None:
    folder = shared / "reference" / "fedfiot" / "network" / name
    case = json.loads((folder / "case.json").read_text())
    _check(case, _method(case).merge(_uploads(folder, case)), folder)


def test_quantised_uploads_merge_as_stored(shared: Path, tmp_path: Path) -> None:
    folder = shared / "reference" / "fedfiot" / "network" / "cnn_quantized_uploads"
    case = json.loads((folder / "case.json").read_text())
    for path in sorted(folder.glob("client_*")) + sorted(folder.glob("fisher_*")):
        kind = "model" if path.name.startswith("client") else "fisher"
        save(tmp_path / path.name, load_file(path), Metadata(kind=kind), bits=16)
    report = _method(case).merge(_uploads(tmp_path, case)).report
    assert report["objective"]["aligned"] == pytest.approx(case["expected"]["J_aligned"], rel=1e-4)
    for layer in case["expected"]["layers"][:-1]:
        steps = report["groups"][layer["layer"]]["iterations"]
        assert [step["objective"] for step in steps] == pytest.approx(layer["J"], rel=1e-4)


@pytest.mark.parametrize("folder_name", ["fednet-cifar10-k6", "fednet-cifar10-k6-independent"])
def test_real_checkpoints_give_the_stored_objectives(shared: Path, folder_name: str) -> None:
    from modelfuse.spec.architectures import parse_architecture

    folder = shared / "data" / folder_name
    counts = json.loads((folder / "clients.json").read_text())["sample_counts"]
    case = json.loads((folder / "fedfiot_reference.json").read_text())[0]
    given = Given(
        files=[open_checkpoint(folder / f"client_{k}.safetensors") for k in range(6)],
        fishers=[open_checkpoint(folder / f"fisher_{k}.safetensors") for k in range(6)],
        num_examples=counts,
        spec=parse_architecture("fednet").spec(),
    )
    report = FedFiOT(rho=case["rho"], lam=case["damping"]).merge(gather(given, companion="fisher")).report
    assert report["objective"]["aligned"] == pytest.approx(case["J_aligned"], rel=1e-9)
    assert report["objective"]["identity"] == pytest.approx(case["J_identity"], rel=1e-9)
    assert report["objective"]["chosen"] == case["chosen_by_algorithm_1"]
    for layer in case["layers"][:-1]:
        trace = report["groups"][layer["layer"].removesuffix(".weight")]
        assert [step["objective"] for step in trace["iterations"]] == pytest.approx(layer["J"], rel=1e-9)
        assert trace["permuted_fraction"] == layer["permuted_fraction_per_client"]
