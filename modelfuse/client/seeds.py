"""Seeds for streams of random numbers that must not depend on one another."""

from __future__ import annotations

import hashlib

__all__ = ["derived_seed"]


def derived_seed(*parts: int) -> int:
    """Return a seed of 63 bits that depends on all numbers and on their order.

    Args:
        parts: What names the stream, such as the user's seed, a client and an epoch.
    """
    digest = hashlib.sha256(",".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1  # torch's generators take a signed 64-bit seed
