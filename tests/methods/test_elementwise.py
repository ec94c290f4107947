"""Index-by-index merges: dtypes, buffers, streaming, and the authors' own Fisher merge."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from federation import write_federation
from safetensors.numpy import load_file

from modelfuse.cli.app import run
from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.files.writer import save
from modelfuse.methods import elementwise
from modelfuse.methods.fedavg import FedAvg
from modelfuse.methods.fisher import FisherMerge
from modelfuse.methods.gather import Given, gather
from modelfuse.methods.output import write_merged
from modelfuse.methods.uploads import Uploads
from modelfuse.types import ClientInfo, Metadata, Step


def _uploads(folder: Path, models: list[dict[str, Any]], sizes: list[int], fishers: list[Any] | None = None) -> Uploads:
    files = []
    for number, (model, size) in enumerate(zip(models, sizes, strict=True)):
        info = ClientInfo(id=number, num_examples=size)
        path = folder / f"client_{number}.safetensors"
        identity = save(path, model, Metadata(kind="model", client=info))
        files.append(path)
        if fishers is not None:
            path = folder / f"fisher_{number}.safetensors"
            save(path, fishers[number], Metadata(kind="fisher", model_id=identity))
            files.append(path)
    return gather(Given([open_checkpoint(path) for path in files]), companion=None if fishers is None else "fisher")


def _write(folder: Path, method: FedAvg | FisherMerge, uploads: Uploads) -> dict[str, Any]:
    write_merged(folder / "out.safetensors", method.merge(uploads), uploads, Step("merge", "0", {}))
    return open_checkpoint(folder / "out.safetensors").read_all()


def test_fedavg_weighs_by_examples(tmp_path: Path) -> None:
    uploads = _uploads(tmp_path, [{"w": np.float32([0, 4])}, {"w": np.float32([4, 8])}], [1, 3])
    assert _write(tmp_path, FedAvg(), uploads)["w"].tolist() == [3, 7]
    assert _write(tmp_path, FedAvg("uniform"), uploads)["w"].tolist() == [2, 6]


def test_integer_buffers_take_the_maximum_and_stay_integers(tmp_path: Path) -> None:
    models = [{"bn.num_batches_tracked": np.int64(count), "bn.running_mean": np.float32([count])} for count in (2, 10)]
    merged = _write(tmp_path, FedAvg("uniform"), _uploads(tmp_path, models, [1, 3]))
    assert merged["bn.num_batches_tracked"].dtype == np.int64
    assert merged["bn.num_batches_tracked"] == 10


def test_running_statistics_need_no_fisher(tmp_path: Path) -> None:
    models = [{"w": np.float32([mean]), "bn.running_mean": np.float32([mean])} for mean in (0, 4)]
    fishers = [{"w": np.float32([1])}, {"w": np.float32([3])}]
    merged = _write(tmp_path, FisherMerge(), _uploads(tmp_path, models, [3, 1], fishers))
    assert merged["w"] == 3
    assert merged["bn.running_mean"] == 1


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float16, np.float64])
def test_every_float_dtype_is_kept(tmp_path: Path, dtype: Any) -> None:
    models = [{"w": np.array([1, 2], dtype)}, {"w": np.array([3, 4], dtype)}]
    merged = _write(tmp_path, FedAvg(), _uploads(tmp_path, models, [1, 1]))
    assert merged["w"].dtype == dtype
    assert merged["w"].astype(float).tolist() == [2, 3]


def test_mixed_dtypes_promote_and_the_report_says_so(tmp_path: Path) -> None:
    uploads = _uploads(tmp_path, [{"w": np.float16([1])}, {"w": np.array([2], ml_dtypes.bfloat16)}], [1, 1])
    merged = FedAvg().merge(uploads)
    assert merged.report["promoted"] == {"w": "F32"}
    assert _write(tmp_path, FedAvg(), uploads)["w"].dtype == np.float32


def test_entries_that_no_fisher_weighs_take_the_plain_mean_and_are_counted(tmp_path: Path) -> None:
    models = [{"w": np.float32([0, 0])}, {"w": np.float32([4, 4])}]
    fishers = [{"w": np.float32([0, 1])}, {"w": np.float32([0, 1])}]
    uploads = _uploads(tmp_path, models, [3, 1], fishers)
    merged = FisherMerge().merge(uploads)
    assert np.concatenate(list(merged.tensors["w"].chunks())).tolist() == [1, 2]
    assert merged.report["entries_without_weight"] == 1


def test_slices_and_wholes_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models, fishers = write_federation(tmp_path)
    uploads = gather(Given([open_checkpoint(path) for path in models + fishers]), companion="fisher")
    whole = _write(tmp_path, FisherMerge(0.5, 1e-3), uploads)
    monkeypatch.setattr(elementwise, "CHUNK", 5)
    sliced = _write(tmp_path, FisherMerge(0.5, 1e-3), uploads)
    assert all(np.array_equal(whole[name], sliced[name]) for name in whole)


def test_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    large = {"w": np.ones(16_000_000, np.float32)}  # 64 MB a client
    uploads = _uploads(tmp_path, [large, large], [1, 1])
    tracemalloc.start()
    written = write_merged(tmp_path / "out.safetensors", FedAvg().merge(uploads), uploads, Step("merge", "0", {}))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert written == uploads.clients[0].model.model_id()
    assert peak < 32e6


@pytest.mark.parametrize("case", ["mlp_J2", "cnn_J3_tiny"])
def test_the_authors_fisher_merge(shared: Path, tmp_path: Path, case: str) -> None:
    folder = shared / "reference" / "fisher"
    arrays = np.load(folder / f"{case}.npz")
    count = json.loads((folder / f"{case}.json").read_text())["J"]
    sizes = np.rint(arrays["client_share"] / arrays["client_share"].min() * 10_000).astype(int).tolist()
    models = [{"w": arrays[f"client_vector_{k}"]} for k in range(count)]
    fishers = [{"w": arrays[f"fisher_diag_{k}"]} for k in range(count)]
    merged = _write(tmp_path, FisherMerge(fisher_floor=1e-6), _uploads(tmp_path, models, sizes, fishers))
    np.testing.assert_allclose(merged["w"], arrays["fisher_merge_without_quantisation"], rtol=0, atol=1e-6)
    averaged = _write(tmp_path, FedAvg(), _uploads(tmp_path, models, sizes))
    np.testing.assert_allclose(averaged["w"], arrays["fedavg"], rtol=0, atol=1e-6)


def test_the_command_writes_what_the_method_merges(tmp_path: Path) -> None:
    models, _ = write_federation(tmp_path)
    assert run(["-q", "merge", "-m", "fedavg", *map(str, models), "-o", str(tmp_path / "out.safetensors")]) == 0
    clients = [load_file(path) for path in models]
    for name, array in load_file(tmp_path / "out.safetensors").items():
        expected = sum(n * client[name].astype(float) for n, client in zip((10, 30, 20), clients, strict=True)) / 60
        np.testing.assert_array_equal(array, expected.astype(np.float32))
