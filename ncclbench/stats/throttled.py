"""Whether the GPUs were held back while a case was measured, as they said between its blocks."""

from __future__ import annotations

from collections.abc import Sequence

from ncclbench.store.model import Unit, UnitHealth

# Time held back, as a share of the time a reading covers, from which on it is told. Power limits are
# touched for moments on healthy GPUs.
MOST_SHARE = 0.01


def held_back(units: Sequence[Unit]) -> tuple[list[str], list[int]] | None:
    """What held GPUs back in these units, and on which ranks; None where no GPU was read.

    The words are those of NVML's reasons, "PCIe below its generation", "PCIe below its width", and "NVLink
    down" for a GPU with fewer links up than others had in the same unit.
    """
    read = [unit.health for unit in units if unit.health is not None]
    if not read:
        return None
    found: dict[str, set[int]] = {}
    for of_ranks in read:
        known = [each.nvlinks_up for each in of_ranks if each is not None and each.nvlinks_up is not None]
        for rank, health in enumerate(of_ranks):
            for word in () if health is None else _words(health, max(known, default=0)):
                found.setdefault(word, set()).add(rank)
    # What touched most ranks first.
    words = sorted(found, key=lambda word: (-len(found[word]), word))
    return words, sorted(set[int]().union(*found.values()))


def _words(health: UnitHealth, most_links: int) -> list[str]:
    words = [word for word, us in health.throttled_us.items() if us > MOST_SHARE * health.over_us]
    # A reason is of the moment of a reading: where the GPU counts the time, that alone decides.
    words += [word for word in health.reasons if word not in health.throttled_us]
    if health.pcie_generation is not None:
        words.append("PCIe below its generation")
    if health.pcie_width is not None:
        words.append("PCIe below its width")
    if health.nvlinks_up is not None and health.nvlinks_up < most_links:
        words.append("NVLink down")
    return words
