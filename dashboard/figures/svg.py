"""Marks of SVG as text, rounded to a tenth of a pixel; text is escaped."""

from __future__ import annotations

from html import escape

Box = tuple[float, float, float, float]
"""left, top, right, bottom."""


def number(value: float) -> str:
    """A coordinate without needless digits."""
    return f"{value:.1f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"


def rect(x: float, y: float, width: float, height: float, **attributes: object) -> str:
    return (
        f'<rect x="{number(x)}" y="{number(y)}" width="{number(max(width, 0))}" height="{number(max(height, 0))}"'
        f"{_attributes(attributes)}/>"
    )


def line(x0: float, y0: float, x1: float, y1: float, **attributes: object) -> str:
    return f'<line x1="{number(x0)}" y1="{number(y0)}" x2="{number(x1)}" y2="{number(y1)}"{_attributes(attributes)}/>'


def path(data: str, **attributes: object) -> str:
    return f'<path d="{data}"{_attributes(attributes)}/>'


def text(x: float, y: float, content: str, **attributes: object) -> str:
    return f'<text x="{number(x)}" y="{number(y)}"{_attributes(attributes)}>{escape(content)}</text>'


def group(marks: list[str], title: str = "", **attributes: object) -> str:
    """Marks together; `title` is what pointing at them shows."""
    words = f"<title>{escape(title)}</title>" if title else ""
    return f"<g{_attributes(attributes)}>{words}{''.join(marks)}</g>"


def document(width: float, height: float, marks: list[str], label: str) -> str:
    """The whole picture; `label` describes it to a screen reader."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} {number(height)}" '
        f'role="group" aria-label="{escape(label)}" class="drawn">{"".join(marks)}</svg>'
    )


def curve(x0: float, y0: float, x1: float, y1: float) -> str:
    """A path that leaves and arrives level."""
    middle = (x0 + x1) / 2
    start, end = f"{number(x0)} {number(y0)}", f"{number(x1)} {number(y1)}"
    return f"M{start}C{number(middle)} {number(y0)} {number(middle)} {number(y1)} {end}"


def arch(x0: float, y0: float, x1: float, y1: float, top: float) -> str:
    """A path over what stands between two points; `top` is about where it is highest."""
    peak = top - (min(y0, y1) - top) / 3
    return (
        f"M{number(x0)} {number(y0)}C{number(x0 + (x1 - x0) * 0.12)} {number(peak)} "
        f"{number(x1 - (x1 - x0) * 0.12)} {number(peak)} {number(x1)} {number(y1)}"
    )


def overlaps(box: Box, others: list[Box]) -> bool:
    """Whether a box lies over any other."""
    return any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in others)


def _attributes(attributes: dict[str, object]) -> str:
    """Underscores stand for hyphens, `class_` for class."""
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(number(value) if isinstance(value, float) else value))}"'
        for name, value in attributes.items()
        if value is not None
    )
