"""The picture in the README: the top of a report in the light theme, down to the end of its curves.

``python tests/picturing.py results/example-cpu/report.html docs/images/report.png``
"""

from __future__ import annotations

import sys
from pathlib import Path

from report_browsing import Browser, started_chromium

WIDTH = 1180


def take(page: Path, picture: Path) -> None:
    """Write the PNG; a page that is not drawn in time, or wrong, ends it."""
    chromium = started_chromium()
    with Browser(next(chromium)) as browser:
        settings = {"viewport": {"width": WIDTH, "height": 1000}, "color_scheme": "light"}
        visit = browser.open(page.resolve(), **settings).drawn()
        assert visit.faults == []
        box = visit.page.locator("section#curves").bounding_box()
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": box["y"] + box["height"]}
        visit.page.screenshot(path=picture, full_page=True, clip=clip)
    chromium.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
