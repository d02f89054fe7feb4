"""Panel: every link that a search measured, as a map; its classes; the pairs that are odd."""

from __future__ import annotations

from typing import Any

from ncclbench.attribution.words import name_of
from ncclbench.plan.model import SHARED_GPU
from ncclbench.report.linkmap import FULL_COLOUR, MEASURES, class_medians, link_map
from ncclbench.report.model import Report, Source
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.searched import Searched
from ncclbench.report.text import list_text, rate_text
from ncclbench.units import count_text

# Of the odd pairs; the others are in the map and in ``matrix --json``.
MOST_ODD = 40


def build(report: Report) -> Content | None:
    """One block per search that measured pairs; nothing for other runs."""
    blocks = [
        block
        for number, (source, search) in enumerate(report.searches)
        if (block := _block(source, search, f"links-{number}"))
    ]
    if not blocks:
        return None
    return {
        "blocks": blocks,
        "figures": [figure for block in blocks for figure in block["figures"]],
        "full_colour": f"{FULL_COLOUR:g}x",
        "several_runs": len(report.sources) > 1,
    }


PANEL = Panel(
    name="links",
    order=-4,
    title="Links",
    description="How fast data goes from each source to each destination, against links of the same class.",
    build=build,
    template="links.html",
)


def _block(source: Source, search: Searched, name: str) -> dict[str, Any] | None:
    found = link_map(search, name)
    if found is None:
        return None
    odd = [link for link in search.links if link["odd"]]
    apart = search.unexplained(odd)
    unlike = [link for link in odd if id(link) not in {id(one) for one in apart}]
    # What no name explains comes first.
    listed = sorted(apart, key=_ratio) + sorted(unlike, key=_ratio)
    return {
        "run": source.label,
        "figures": [found.figure],
        "notes": [note for note in (_shared(source), found.note, _not_measured(search)) if note],
        "classes": _classes(search),
        "counts": _counts(search, odd, apart),
        "odd": [_odd(search, link) for link in listed[:MOST_ODD]],
        "more": max(0, len(listed) - MOST_ODD),
    }


def _shared(source: Source) -> str:
    return (
        f"{SHARED_GPU[:1].upper()}{SHARED_GPU[1:]}, only what differs." if source.run.plan.share_gpu else ""
    )


def _ratio(link: dict[str, Any]) -> float:
    return float(link["ratio_to_class_median"])


def _not_measured(search: Searched) -> str:
    """How many cells are empty, and that nothing is known of them."""
    measured = [link for link in search.links if link["bandwidth_GBs"] is not None]
    ranks = {rank for link in measured for rank in (link["src"], link["dst"])}
    missing = len(ranks) * (len(ranks) - 1) - len(measured)
    if not missing:
        return ""
    return f"{count_text(missing, 'ordered pair')} of {len(ranks) * (len(ranks) - 1):,} not looked at: empty."


def _classes(search: Searched) -> list[list[str]]:
    """Cells of a line per class: how many links, how many odd, the median of each measure."""
    medians = {measure.key: class_medians(search.links, measure.key) for measure in MEASURES}
    lines = []
    for name in medians["bandwidth_GBs"]:
        own = [link for link in search.links if link["class"] == name and link["bandwidth_GBs"] is not None]
        texts = [
            measure.text(medians[measure.key][name]) if name in medians[measure.key] else "–"
            for measure in MEASURES
        ]
        lines.append([name, f"{len(own):,}", *texts, f"{sum(link['odd'] for link in own):,}"])
    return lines


def _counts(search: Searched, odd: list[dict[str, Any]], apart: list[dict[str, Any]]) -> str:
    if not odd:
        return "No pair is odd."
    said = f"{count_text(len(odd), 'ordered pair is', 'ordered pairs are')} odd"
    if len(apart) == len(odd):
        return f"{said}."
    names, left = [], [link for link in odd if id(link) not in {id(one) for one in apart}]
    for one in search.answer.suspects:
        rest = [
            link for link in left if one.kind == "link" or not {link["src"], link["dst"]} & set(one.ranks)
        ]
        names += [name_of(one)] if len(rest) < len(left) else []
        left = rest
    return f"{said}, {len(odd) - len(apart):,} of them of {list_text(names)}, named above."


def _odd(search: Searched, link: dict[str, Any]) -> list[str]:
    """Cells of an odd link."""
    places = search.places
    hosts = [places.hosts[places.host_of[link[end]]] for end in ("src", "dst")]
    low, high = link["ratio_ci_low"], link["ratio_ci_high"]
    interval = "–" if low is None or high is None else f"{100 * low:.0f} – {100 * high:.0f} %"
    return [
        f"{link['src']} → {link['dst']}",
        f"{hosts[0]} → {hosts[1]}",
        link["class"],
        f"{100 * _ratio(link):.0f} %",
        interval,
        rate_text(link["bandwidth_GBs"]),
    ]
