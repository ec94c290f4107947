"""Which device the client side computes on."""

from __future__ import annotations

import torch

from modelfuse.errors import OptionError

__all__ = ["pick_device"]


def pick_device(text: str, threads: int = 1) -> torch.device:
    """Return the device that ``--device`` asks for, and let torch use so many threads of the CPU from now on.

    One thread is the default: the last digits depend on the number, and pipelines run several commands side by side.

    Args:
        text: ``cpu``, ``cuda``, ``mps``, or ``auto`` for the first accelerator there is, else the CPU.
        threads: Threads of the CPU, at least 1.

    Raises:
        OptionError: No device has this name, or this machine does not have it.
    """
    torch.set_num_threads(threads)
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if text == "auto":
        return torch.device(next(name for name, there in present.items() if there))
    if text not in present:
        raise OptionError("--device", f"there is no device {text!r}", "Choose auto, cpu, cuda or mps.")
    if not present[text]:
        raise OptionError("--device", f"this machine or this torch has no {text}", "Choose auto or cpu.")
    return torch.device(text)
