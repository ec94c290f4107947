"""BBP-MAP on the eight hidden layers of VGG-9 with 16 clients, against the published per-unit loop."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from solvers.per_unit_loop import PerUnitLoop
from threadpoolctl import threadpool_limits

from modelfuse.solvers.bbp_map import bbp_map, draw_sweep_orders

pytestmark = pytest.mark.bench

Array = NDArray[Any]

CLIENTS, SWEEPS = 16, 5
# units and incoming weights, with the growth of the layer before left out
LAYERS = {
    "conv1": (32, 27),
    "conv2": (64, 288),
    "conv3": (128, 576),
    "conv4": (128, 1152),
    "conv5": (256, 1152),
    "conv6": (256, 2304),
    "fc7": (512, 4096),
    "fc8": (512, 512),
}


@pytest.mark.parametrize("noise", [0.1, 3.0], ids=["alike", "unlike"])
def test_bbp_map_against_the_per_unit_loop(noise: float) -> None:
    """CPU seconds at one thread, for clients that match well and for clients whose noise exceeds their weights."""
    print(
        f"\n{CLIENTS} clients, {SWEEPS} sweeps, noise {noise} of the weights; float32: the loop's costs, as published"
    )
    print(
        f"{'layer':<6}{'units':>6}{'weights':>9}{'width':>7}{'loop':>10}{'float32':>10}{'modelfuse':>11}{'ratios':>13}"
    )
    totals = np.zeros(3)
    for name, (width, fan) in LAYERS.items():
        units, prior_mean, sweeps = _problem(width, fan, noise)
        with threadpool_limits(1):
            ours, found = _timed(lambda: bbp_map(units, prior_mean, sweeps))  # noqa: B023 - called at once
            seconds = []
            for dtype in (np.float64, np.float32):
                loop = PerUnitLoop(units, prior_mean, np.ones((CLIENTS, fan + 1)), dtype=dtype)
                spent, (assignment, _) = _timed(lambda: loop.run(sweeps.tolist()))  # noqa: B023 - called at once
                seconds.append(spent)
                assert [order.tolist() for order in found.orders] == assignment
        totals += (*seconds, ours)
        print(f"{name:<6}{width:>6}{fan:>9}{found.width:>7}{_line(*seconds, ours)}", flush=True)
    print(f"{'total':<28}{_line(*totals)}")


def _line(float64: float, float32: float, ours: float) -> str:
    return f"{float64:>9.2f}s{float32:>9.2f}s{ours:>10.3f}s{float64 / ours:>7.1f}{float32 / ours:>6.1f}"


def _timed(call: Any) -> tuple[float, Any]:
    started = time.process_time()
    result = call()
    return time.process_time() - started, result


def _problem(width: int, fan: int, noise: float) -> tuple[list[Array], Array, Array]:
    generator = np.random.default_rng(0)
    base = generator.uniform(-1, 1, (width, fan + 1)) / np.sqrt(fan)
    spread = noise / np.sqrt(3 * fan)
    units = [
        (generator.permutation(base) + spread * generator.standard_normal(base.shape)).astype(np.float32)
        for _ in range(CLIENTS)
    ]
    prior_mean = np.append(np.zeros(fan), 0.1)
    return units, prior_mean, draw_sweep_orders(SWEEPS, CLIENTS, generator)
