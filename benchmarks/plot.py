"""Curves as an SVG file, by hand, so that no plotting library is needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

__all__ = ["Curve", "Panel", "svg"]

#: Pixels of a panel's plot, and around it.
WIDTH, HEIGHT = 330, 260
LEFT, TOP, RIGHT, BOTTOM = 62, 40, 16, 52

#: Pixels of a line of the legend.
LEGEND = 22

#: Colours that are told apart on white and on dark pages, and by most who see few colours.
COLOURS = ("#888888", "#e69f00", "#0072b2", "#009e73", "#cc79a7", "#d55e00")


@dataclass(frozen=True)
class Curve:
    """One system's points; a dashed line for the second number of a pair."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One plot; both axes are logarithmic."""

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]


def svg(panels: Sequence[Panel], names: Sequence[str]) -> str:
    """The panels side by side, with one legend; names have the same colour in all."""
    colours = dict(zip(names, COLOURS, strict=False))
    width = len(panels) * (LEFT + WIDTH + RIGHT)
    height = TOP + HEIGHT + BOTTOM + LEGEND
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            ' font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({number * (LEFT + WIDTH + RIGHT) + LEFT} {TOP})">')
        parts += _panel(panel, colours)
        parts.append("</g>")
    parts += _legend(colours, height - LEGEND / 2)
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, colours: dict[str, str]) -> list[str]:
    points = [point for curve in panel.curves for point in curve.points]
    if not points:
        return [_text(WIDTH / 2, HEIGHT / 2, "not measured")]
    x_axis = _Axis([x for x, _ in points], WIDTH)
    y_axis = _Axis([y for _, y in points], HEIGHT)
    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#444"/>']
    parts += [_text(WIDTH / 2, -14, panel.title, "font-weight='bold'"), _text(WIDTH / 2, HEIGHT + 38, panel.x_label)]
    parts.append(_text(-46, HEIGHT / 2, panel.y_label, f'transform="rotate(-90 -46 {HEIGHT / 2})"'))
    for value in x_axis.ticks:
        x = x_axis.place(value)
        parts.append(f'<path d="M{x:.1f} 0V{HEIGHT}" stroke="#ddd"/>')
        parts.append(_text(x, HEIGHT + 18, f"{value:,g}"))
    for value in y_axis.ticks:
        y = HEIGHT - y_axis.place(value)
        parts.append(f'<path d="M0 {y:.1f}H{WIDTH}" stroke="#ddd"/>')
        parts.append(_text(-6, y + 4, f"{value:,g}", 'text-anchor="end"'))
    for curve in panel.curves:
        places = [(x_axis.place(x), HEIGHT - y_axis.place(y)) for x, y in curve.points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dashes = ' stroke-dasharray="5 4"' if curve.dashed else ""
        colour = colours[curve.name]
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    return parts


class _Axis:
    """A logarithmic axis from a step below the values to one above; steps are 1, 2 and 5 of each power of ten."""

    def __init__(self, values: Sequence[float], length: float) -> None:
        steps = [digit * 10.0**power for power in range(-3, 8) for digit in (1, 2, 5)]
        first = max((number for number, step in enumerate(steps) if step <= min(values)), default=0)
        last = min((number for number, step in enumerate(steps) if step >= max(values)), default=len(steps) - 1)
        if first == last:
            last += 1
        self._low, self._high, self._length = steps[first], steps[last], length
        self.ticks = steps[first : last + 1]

    def place(self, value: float) -> float:
        return math.log(value / self._low) / math.log(self._high / self._low) * self._length


def _legend(colours: dict[str, str], y: float) -> list[str]:
    parts = []
    x = float(LEFT)
    for name, colour in colours.items():
        parts.append(f'<rect x="{x}" y="{y - 6}" width="18" height="4" fill="{colour}"/>')
        parts.append(_text(x + 24, y, name, 'text-anchor="start"'))
        x += 44 + 7.5 * len(name)
    return parts


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    anchor = "" if "text-anchor" in attributes else ' text-anchor="middle"'
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="#222"{anchor} {attributes}>{escape(text)}</text>'
