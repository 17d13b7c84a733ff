"""Figures for the page as SVG: text stays text, the ink is the page's own colour, so light and dark both read well."""

import hashlib
import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aircomp.report.page import Figure, as_number, cell_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Drawing

Points = Sequence[tuple[Any, ...]]
"""(x, y) or (x, y, spread) each."""

INK = "#010203"
"""Stands for the colour of the page's text until the SVG is written."""
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#c46b9c", "#7a70cf", "#a67c00", "#7f8790", "#cc3b54")
"""The colour-blind-safe palette of Okabe and Ito, and a red; each colour has a contrast of 3 on white and on near-black."""
MARKERS = "osD^vPX<>hp"
"""As many as have no divisor in common with the colours: a colour that comes again has another marker."""
DASHES = ("-", "--", ":", "-.")
SIDES = ((1, 1), (1, -1), (-1, 1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1))
"""Where a name can stand beside its point: to the right and above, and so on."""
LARGEST = 1e30
"""Numbers beyond are not drawn: axes overflow long before floats do."""
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "aircomp",
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "font.size": 9.0,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.grid.which": "major",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.18,
    "grid.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def svg_of(figure: "Drawing") -> str:
    """Return a drawing as markup to put into a page: the same bits every time, identifiers that no other one has."""
    buffer = io.StringIO()
    with _style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing")  # only the measuring font lacks it
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    # its style would reach the whole page, its fonts are the page's business
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r"font-family: [^;\"]*; ", "", text)
    text = re.sub(r'^(<svg[^>]*?) width="[^"]*"', r"\1", text)
    text = re.sub(r'^(<svg[^>]*?) height="[^"]*"', r"\1", text)
    prefix = f"f{hashlib.sha256(text.encode()).hexdigest()[:10]}-"
    text = re.sub(r'(<[^<>]* id=")', rf"\g<1>{prefix}", text)
    text = re.sub(r'(<[^<>]*href="#)', rf"\g<1>{prefix}", text)
    return text.replace("url(#", f"url(#{prefix}").replace(INK, "currentColor").strip()


def lines(
    series: Mapping[str, Points],
    *,
    x: str,
    y: str,
    title: str,
    alt: str,
    references: Mapping[str, float | Points] | None = None,
    log: bool = False,
    limits: tuple[float, float] | None = None,
) -> Figure:
    """Draw one line a series, with error bars where points have a spread; `references` are plain, without markers.

    Args:
        series: Points of each line by its label.
        x: Heading of the horizontal axis, with its unit.
        y: Heading of the vertical axis, with its unit.
        title: What stands above the figure.
        alt: What it shows, in words.
        references: What to compare with, by label: a level, or the points of a curve.
        log: Whether the vertical axis is logarithmic; what is not positive is left out then.
        limits: Ends of the vertical axis.
    """
    with _style():
        figure, axes = _blank(legend=len(series) + len(references or {}))
        drawable = {label: _drawable(points, log=log) for label, points in series.items()}
        for number, (label, points) in enumerate(drawable.items()):
            _line(axes, number, label, points)
        for number, (label, reference) in enumerate((references or {}).items()):
            _reference(axes, number, label, reference, log=log)
        axes.set(xlabel=_label(x), ylabel=_label(y))
        if all(isinstance(point[0], int) for points in series.values() for point in points):  # rounds, epochs, layers
            whole_numbers(axes.xaxis)
        values = [point[1] for points in drawable.values() for point in points]
        if log and values:
            logarithmic(axes.yaxis, values)
        elif limits is not None:
            axes.set_ylim(*limits)
        _legend(figure, axes)
        told = tuple((label, tuple(sorted(points, key=lambda point: point[0]))) for label, points in drawable.items())
        return Figure(title, svg_of(figure), alt, told)


def panels(
    series: Mapping[str, Mapping[str, Points]],
    *,
    x: str,
    y: str,
    title: str,
    alt: str,
    references: Mapping[str, Mapping[str, Points]] | None = None,
    log: bool = False,
    limits: tuple[float, float] | None = None,
) -> Figure:
    """Draw lines in panels below each other, over the whole width; every line has its name at its right end.

    Where panels share lines, a line has one colour in all of them.

    Args:
        series: Points of each line by its label, by the heading of its panel.
        x: Heading of the horizontal axes, with the unit.
        y: Heading of the vertical axes, with the unit.
        title: What stands above the figure.
        alt: What it shows, in words.
        references: Lines in grey by their label, by the heading of their panel.
        log: Whether the vertical axes are logarithmic; what is not positive is left out then.
        limits: Ends of the vertical axes.
    """
    from matplotlib.figure import Figure as Drawing

    labels = list(dict.fromkeys(label for lines in series.values() for label in lines))
    shared = len(labels) < sum(map(len, series.values()))
    with _style():
        # names stand an eighth of an inch apart, so many of them need a higher panel
        grey = {heading: (references or {}).get(heading, {}) for heading in series}
        heights = [max(1.5, 0.14 * (len(lines) + len(grey[heading])) + 0.3) for heading, lines in series.items()]
        # in inches, without a solver: that of matplotlib ends in other bits from process to process
        width, between, above, below = 7.2, 0.4, 0.3, 0.5
        tall = sum(heights) + between * (len(heights) - 1) + above + below
        names = max(
            (len(_label(label)) for heading in series for label in (*series[heading], *grey[heading])), default=0
        )
        margins = {"left": 0.75 / width, "right": 1 - (0.4 + 0.068 * names) / width}
        margins |= {"bottom": below / tall, "top": 1 - above / tall, "hspace": between * len(heights) / sum(heights)}
        drawing = Drawing(figsize=(width, tall))
        grid = drawing.subplots(
            len(series), 1, sharex=True, squeeze=False, height_ratios=heights, gridspec_kw=margins
        ).flatten()
        for axes, (heading, lines), height in zip(grid, series.items(), heights, strict=True):
            shown = {label: _drawable(points, log=log) for label, points in lines.items()}
            numbers = [labels.index(label) for label in shown] if shared else range(len(shown))
            for number, (label, points) in zip(numbers, shown.items(), strict=True):
                _line(axes, number, label, points)
            for number, (label, points) in enumerate(grey[heading].items()):
                _reference(axes, number, label, points, log=log)
            shown |= {label: _drawable(points, log=log) for label, points in grey[heading].items()}
            axes.set_title(_label(heading), fontsize=9, loc="left")
            values = [point[1] for points in shown.values() for point in points]
            if log and values:
                logarithmic(axes.yaxis, values)
            elif limits is not None:
                axes.set_ylim(*limits)
            axes.set_ylabel(_label(y))
            colours = [PALETTE[number % len(PALETTE)] for number in numbers] + [INK] * len(grey[heading])
            _names_at_ends(axes, shown, colours, 0.14 / height)
        grid[-1].set_xlabel(_label(x))
        return Figure(title, svg_of(drawing), alt)


def _names_at_ends(axes: "Axes", lines: Mapping[str, list[Any]], colours: Sequence[str], apart: float) -> None:
    """Write the name of each line at its right end, as far apart as names are high, with a thin line to its end."""
    to_share = axes.transData + axes.transAxes.inverted()
    ends = {}
    for (label, points), colour in zip(lines.items(), colours, strict=True):
        if points:
            last = max(points, key=lambda point: point[0])
            across, above = to_share.transform((last[0], last[1]))
            ends[label] = (float(across), float(above), colour)
    height = -math.inf
    order = sorted(ends.items(), key=lambda item: item[1][1])
    places = []
    for _, (_, above, _) in order:
        height = max(above, height + apart)
        places.append(height)
    shift = max(0.0, places[-1] - 1.0) / 2 if places else 0.0
    for (label, (across, above, colour)), place in zip(order, places, strict=True):
        arrow = {"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.6, "shrinkA": 0, "shrinkB": 2}
        given: Any = {"xycoords": "axes fraction", "textcoords": "axes fraction", "va": "center", "fontsize": 8}
        axes.annotate(_label(label), (across, above), (1.05, place - shift), color=colour, arrowprops=arrow, **given)


def bars(series: Mapping[str, Points], *, x: str, y: str, title: str, alt: str, log: bool = False) -> Figure:
    """Draw lying bars, grouped by category: each series has (category, value) or (category, value, spread).

    Args:
        series: Values of each colour by its label.
        x: Heading of the values, with their unit.
        y: Heading of the categories; empty for none.
        title: What stands above the figure.
        alt: What it shows, in words.
        log: Whether values are on a logarithmic axis; what is not positive is left out then.
    """
    categories = list(dict.fromkeys(str(point[0]) for points in series.values() for point in points))
    with _style():
        figure, axes = _blank(legend=len(series), height=1.0 + 0.2 * len(categories) * (len(series) + 0.6))
        thickness = 0.8 / max(len(series), 1)
        values = []
        for number, (label, points) in enumerate(series.items()):
            shift = (number - (len(series) - 1) / 2) * thickness
            rows = [(categories.index(str(category)) + shift, *rest) for category, *rest in points]
            for place, value, spread in _drawable(rows, log=log):
                values.append(value)
                axes.barh(place, value, 0.92 * thickness, color=PALETTE[number % len(PALETTE)], label=_label(label))
                if spread:
                    axes.errorbar(value, place, xerr=spread, fmt="none", ecolor=INK, capsize=2.5)
                end = (value + (spread or 0.0), place)
                axes.annotate(cell_text(value), end, (3, 0), textcoords="offset points", va="center", fontsize=8)
        axes.set_yticks(range(len(categories)), [_label(c) for c in categories])
        axes.set(xlabel=_label(x), ylabel=_label(y), ylim=(len(categories) - 0.4, -0.6))
        if log and values:
            logarithmic(axes.xaxis, values)
        axes.margins(x=0.14)  # room for the numbers
        axes.grid(visible=False, axis="y")
        _legend(figure, axes)
        return Figure(title, svg_of(figure), alt)


def scatter(
    series: Mapping[str, Sequence[tuple[float, float, str]]], *, x: str, y: str, title: str, alt: str
) -> Figure:
    """Draw points with their names in a plane of one scale, around the unit circle.

    Args:
        series: Points (x, y, name) of each colour by its label; one without points keeps its colour free.
        x: Heading of the horizontal axis.
        y: Heading of the vertical axis.
        title: What stands above the figure.
        alt: What it shows, in words.
    """
    with _style():
        figure, axes = _blank(legend=len(series) + 1, height=4.2)
        turn = [math.tau * step / 100 for step in range(101)]
        circle: Any = {"color": INK, "alpha": 0.4, "linewidth": 1.0, "linestyle": DASHES[1], "label": "unit circle"}
        axes.plot([math.cos(t) for t in turn], [math.sin(t) for t in turn], **circle)
        axes.axhline(0, color=INK, linewidth=0.6, alpha=0.4)
        axes.axvline(0, color=INK, linewidth=0.6, alpha=0.4)
        for number, (label, points) in enumerate(series.items()):
            if points:
                places = [[point[i] for point in points] for i in (0, 1)]
                colour, marker = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
                axes.plot(*places, marker, color=colour, label=_label(label))
        named = [point for points in series.values() for point in points]
        sides = _free_sides([complex(right, up) for right, up, _ in named])
        for (right, up, name), (across, above) in zip(named, sides, strict=True):
            place: Any = {"ha": ("center", "left", "right")[across], "va": ("center", "bottom", "top")[above]}
            place |= {"xytext": (5 * across, 4 * above), "textcoords": "offset points"}
            axes.annotate(_label(name), (right, up), fontsize=8, **place)
        axes.set(xlabel=_label(x), ylabel=_label(y))
        axes.set_aspect("equal", adjustable="datalim")
        axes.margins(0.2)  # room for the names
        _legend(figure, axes)
        return Figure(title, svg_of(figure), alt)


def _free_sides(points: Sequence[complex]) -> list[tuple[int, int]]:
    """Return on which side of each point its name is farthest from other points and from names already placed."""
    step = 0.07 * max((abs(point) for point in points), default=1.0)
    placed, found = list(points), []
    for number, point in enumerate(points):
        others = placed[:number] + placed[number + 1 :]
        spots = {side: point + step * complex(*side) / abs(complex(*side)) for side in SIDES}
        side = max(SIDES, key=lambda side: min((abs(spots[side] - other) for other in others), default=0.0))
        found.append(side)
        placed.append(spots[side])
    return found


def heatmap(
    matrix: Sequence[Sequence[float]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    x: str,
    y: str,
    unit: str,
    title: str,
    alt: str,
) -> Figure:
    """Draw a matrix as colours with their scale; up to 12 by 12 the cells also say their values.

    Args:
        matrix: A value for each row and column; None or NaN is left blank.
        rows: Names of the rows.
        columns: Names of the columns.
        x: Heading of the columns.
        y: Heading of the rows.
        unit: What the colours mean, with the unit.
        title: What stands above the figure.
        alt: What it shows, in words.
    """
    values = [[math.nan if (number := as_number(v)) is None else number for v in line] for line in matrix]
    with _style():
        figure, axes = _blank(legend=0, height=min(1.4 + 0.3 * len(rows), 6.0))
        image = axes.imshow(values, aspect="auto", interpolation="none", cmap="cividis")
        figure.colorbar(image, ax=axes, label=_label(unit)).outline.set_visible(False)  # type: ignore[operator]
        for axis, names in ((axes.xaxis, columns), (axes.yaxis, rows)):
            step = 1 + (len(names) - 1) // 24
            axis.set_ticks(range(0, len(names), step), [_label(name) for name in names[::step]])
        if max(len(rows), len(columns)) <= 12:
            middle = sum(image.get_clim()) / 2  # cividis is light above
            for row, line in enumerate(values):
                for column, value in enumerate(line):
                    ink = "black" if value > middle else "white"
                    text = "" if math.isnan(value) else cell_text(value)
                    axes.text(column, row, text, ha="center", va="center", fontsize=8, color=ink)
        axes.set(xlabel=_label(x), ylabel=_label(y))
        axes.grid(visible=False)
        return Figure(title, svg_of(figure), alt)


def can_draw(value: Any) -> bool:
    """Tell whether a value is a number that fits an axis."""
    number = as_number(value)
    return number is not None and abs(number) <= LARGEST


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(STYLE):
        yield


def _blank(*, legend: int, height: float = 2.9) -> tuple["Drawing", "Axes"]:
    """Return an empty drawing, narrow enough to be read on a phone and taller where it needs a long legend."""
    from matplotlib.figure import Figure as Drawing

    room = 0.2 * math.ceil(legend / 2) if legend > 1 else 0.0
    drawing = Drawing(figsize=(4.8, min(height + room, 12.0)), layout="constrained")
    return drawing, drawing.subplots()


def _line(axes: "Axes", number: int, label: str, points: list[tuple[float, float, float | None]]) -> None:
    points = sorted(points, key=lambda point: point[0])
    places, values = [point[0] for point in points], [point[1] for point in points]
    colour = PALETTE[number % len(PALETTE)]
    axes.plot(
        places,
        values,
        color=colour,
        linestyle=DASHES[number // len(PALETTE) % len(DASHES)],
        marker=MARKERS[number % len(MARKERS)] if len(points) <= 25 else "",
        label=_label(label),
        gid=f"series{number}",
    )
    spreads = [point[2] or 0.0 for point in points]
    if any(spreads):
        drawn = axes.errorbar(places, values, yerr=spreads, fmt="none", ecolor=colour, capsize=2.5)
        for place, part in enumerate(drawn.get_children()):
            part.set_gid(f"series{number}-spread{place}")


def _reference(axes: "Axes", number: int, label: str, reference: float | Points, *, log: bool) -> None:
    """Draw a level across the axes, or a curve."""
    style: Any = {
        "color": INK,
        "alpha": 0.55,
        "linewidth": 1.2,
        "linestyle": DASHES[1 + number % 3],
        "label": _label(label),
    }
    if isinstance(reference, Sequence):
        points = sorted(_drawable(reference, log=log), key=lambda point: point[0])
        axes.plot([point[0] for point in points], [point[1] for point in points], **style)
    elif can_draw(reference):
        axes.axhline(reference, **style)


def logarithmic(axis: "Axis", values: Sequence[float]) -> None:
    """Make an axis logarithmic with plain numbers on it, closer together where it spans little."""
    from matplotlib.ticker import LogLocator, NullFormatter

    decades = math.log10(max(values) / min(values))
    steps = (1.0,) if decades > 2 else (1.0, 2.0, 5.0) if decades > 0.7 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})  # type: ignore[attr-defined]
    axis.set_major_locator(LogLocator(subs=steps, numticks=9))
    axis.set_major_formatter(lambda value, _: _power(value, _seen(axis)))
    axis.set_minor_formatter(NullFormatter())


def whole_numbers(axis: "Axis") -> None:
    """Make an axis have ticks at whole numbers only, be it a single one."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


def _seen(axis: "Axis") -> list[float]:
    """Return the ticks of an axis that lie between its ends."""
    low, high = sorted(axis.get_view_interval())
    return [tick for tick in axis.get_majorticklocs() if low <= tick <= high]


def _power(value: float, ticks: Sequence[float]) -> str:
    """Write a tick of a logarithmic axis; within a decade all ticks have as many decimals as the one that needs most."""
    if 1e-3 <= value < 1e5:
        alike = [value, *ticks] if ticks and max(ticks) < 10 * min(ticks) else [value]
        rounded = [f"{tick:.9f}".rstrip("0") for tick in alike]  # a tick may be 0.30000000000000004
        decimals = max(len(text.partition(".")[2]) for text in rounded)
        return f"{value:,.{decimals}f}"
    exponent = math.floor(math.log10(value) + 1e-9)  # the logarithm of a power of ten may fall just short of it
    lead = value / 10.0**exponent
    power = "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return power if math.isclose(lead, 1.0) else f"{lead:.2g}·{power}"


def _drawable(points: Points, *, log: bool) -> list[tuple[float, float, float | None]]:
    """Keep the points that can be drawn, as (x, y, spread or None)."""
    found = []
    for x, y, *rest in points:
        if can_draw(x) and can_draw(y) and (y > 0 or not log):
            found.append((float(x), float(y), abs(float(rest[0])) if rest and can_draw(rest[0]) else None))
    return found


def _legend(figure: "Drawing", axes: "Axes") -> None:
    """Explain the lines below the axes, each label once; a single unexplained series needs no legend."""
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    if len(handles) > 1:
        wide = max(map(len, handles)) > 26
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=1 if wide else 2, fontsize=8.5
        )


def _label(text: str) -> str:
    """Make words from a file fit a figure: printable, one line, not too long, and no leading underscore.

    Matplotlib leaves labels that begin with an underscore out of the legend.
    """
    text = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    text = text if len(text) <= 48 else f"{text[:47]}…"
    return f" {text}" if text.startswith("_") else text
