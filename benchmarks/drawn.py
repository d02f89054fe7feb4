"""How long a fresh browser takes to draw the page of a usual run, and a page of two machines.

    python benchmarks/drawn.py [--rounds 5]

Each round starts a headless Chromium (from Debian's package, no debugger but what playwright needs), opens
the page from its file, and waits until all figures in sight are drawn. Pages are those of the tests of the
report: 96 rows of one run; 164 rows of two nodes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from _bar import tell

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from report_browsing import Browser, started_chromium, written_pages

_BAR_S = 1.6
_PAGES = {"usual": "drawn: a run", "versus": "drawn: two sides"}


def seconds_to_draw(page: Path) -> float:
    """From opening the file in a browser that has just started until all in sight is drawn."""
    for chromium in started_chromium():
        with Browser(chromium) as browser:
            begun = time.perf_counter()
            browser.open(page).drawn()
            return time.perf_counter() - begun
    raise SystemExit("Chromium did not start")


def main() -> None:
    """Print the best and the median of each page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        pages = written_pages(Path(folder))
        for name, bar in _PAGES.items():
            took_s = [seconds_to_draw(pages[name]) for _ in range(rounds)]
            median_s = statistics.median(took_s)
            tell(bar, f"best {min(took_s):.2f} s, median {median_s:.2f} s", median_s <= _BAR_S)


if __name__ == "__main__":
    main()
