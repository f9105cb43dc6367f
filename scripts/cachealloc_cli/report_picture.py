# SPDX-License-Identifier: MIT
"""An SVG picture, and a plane over time in it."""

import html
import math

from .terminal import count_text, size_text

WIDTH, LEFT, RIGHT = 960, 112, 16

STYLE = """\
.used{fill:#0072b2}.used2{fill:#3a94c9}.rounding{fill:#e69f00}.waiting{fill:#cc79a7}.free{fill:#f0d43c}.whole{fill:#009e73}
.held{fill:#e3e7eb}.bad{fill:#c44601}.flush{fill:#7b3fa0}.trim{fill:#57606a}.page{fill:#fff}.text{fill:#1b1f24}.soft{fill:#57606a}
.edge{stroke:#6e7781;fill:none;stroke-width:2}.limit{stroke:#1b1f24;fill:none;stroke-width:1.5;stroke-dasharray:7 4}
.grid{stroke:#e8ebef}.line{stroke:#d8dee4}.rule{stroke:#c44601;stroke-width:1.5}.over{fill:#fff}
@media (prefers-color-scheme:dark){.used{fill:#3d9bd9}.used2{fill:#2079b3}.held{fill:#2b333d}.page{fill:#0d1117}.text{fill:#e8ebef}
.soft{fill:#9aa4b0}.bad{fill:#ff7b3d}.flush{fill:#b98ad6}.trim{fill:#9aa4b0}.edge{stroke:#8b95a1}.limit{stroke:#e8ebef}
.grid{stroke:#262d36}.line{stroke:#323a45}.rule{stroke:#ff7b3d}.over{fill:#0d1117}}
text{font:13px system-ui,'DejaVu Sans',sans-serif}.title{font-size:16px;font-weight:600}"""


def _escape(text):
    return html.escape(text, quote=False)


def _number(value):
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def whole_size(count):
    """As size_text, without a fraction of 0."""
    return size_text(count).replace(".0 ", " ")


class Picture:
    """Elements, from the top down; `height` grows."""

    def __init__(self, title, subtitle):
        self.parts, self.height = [], 0
        self.title = title
        self.text(16, 26, title, "text title")
        self.text(16, 47, subtitle, "soft")
        self.height = 62

    def add(self, text):
        self.parts.append(text)

    def text(self, x, y, words, kind="soft", anchor="start"):
        self.add(f'<text x="{_number(x)}" y="{_number(y)}" class="{kind}" text-anchor="{anchor}">{_escape(words)}</text>')

    def box(self, x, y, width, height, kind):
        self.add(f'<rect x="{_number(x)}" y="{_number(y)}" width="{_number(max(width, .3))}" height="{_number(height)}" '
                 f'class="{kind}"/>')

    def path(self, points, kind, closed=False):
        words = "L".join(f"{_number(x)} {_number(y)}" for x, y in points)
        self.add(f'<path d="M{words}{"Z" if closed else ""}" class="{kind}"/>')

    def boxes(self, places, height, kind):
        """Many at once: (x, y, width)."""
        if places:
            words = "".join(f"M{_number(x)} {_number(y)}h{_number(width)}v{height}h-{_number(width)}z"
                            for x, y, width in places)
            self.add(f'<path d="{words}" class="{kind}"/>')

    def stroke(self, x1, y1, x2, y2, kind):
        self.path([(x1, y1), (x2, y2)], kind)

    def legend(self, items):
        x = 16
        for shape, kind, words in items:
            width = 32 + 7.6 * len(words)
            if x + width > WIDTH:
                x, self.height = 16, self.height + 21
            if shape == "box":
                self.box(x, self.height - 3, 13, 12, kind)
            elif shape == "line":
                self.stroke(x, self.height + 3, x + 15, self.height + 3, kind)
            else:
                mark(self, shape, x + 7, self.height + 3, kind)
            self.text(x + 20, self.height + 8, words, "text")
            x += width
        self.height += 24

    def whole(self):
        size = f'width="{WIDTH}" height="{_number(self.height)}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {_number(self.height)}" {size} role="img">'
        return "\n".join([head, f"<title>{_escape(self.title)}</title>", f"<style>{STYLE}</style>", f'<rect {size} class="page"/>',
                          *self.parts, "</svg>\n"])


CORNERS = {"failed": ((-5, -5), (5, -5), (0, 5)), "flush": ((0, -5), (5, 0), (0, 5), (-5, 0)),
           "give_back": ((-5, 5), (5, 5), (0, -5))}


def mark(picture, shape, x, y, kind):
    if shape in CORNERS:
        picture.path([(x + dx, y + dy) for dx, dy in CORNERS[shape]], kind, closed=True)
    else:
        picture.add(f'<circle cx="{_number(x)}" cy="{_number(y)}" r="4" class="{kind}"/>')


# ---- axes


def step_of(most, base, wanted):
    power = base ** math.floor(math.log(max(most, 1) / wanted, base))
    choices = (1, 2, 5, 10) if base == 10 else [2 ** k for k in range(11)]
    return max(1, power * next((choice for choice in choices if choice * power >= most / wanted), base))


class Over:
    """A plane over time (or over events, where there is no clock): from bytes and events to places."""

    def __init__(self, picture, model, most, height=260):
        self.picture, self.model = picture, model
        self.top, self.bottom = picture.height + 4, picture.height + height
        self.most = max(most, 1) * 1.04
        self.end = (model.time[-1] if model.clock else model.count - 1) or 1
        picture.height = self.bottom + 44

    def x(self, number):
        return self.at(self.model.time[number] if self.model.clock else number)

    def at(self, value):
        return LEFT + value / self.end * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        return self.bottom - value / self.most * (self.bottom - self.top)

    def byte_axis(self):
        step, value = step_of(self.most, 1024, 5), 0
        while value <= self.most:
            self.picture.stroke(LEFT, self.y(value), WIDTH - RIGHT, self.y(value), "grid")
            self.picture.text(LEFT - 8, self.y(value) + 4, whole_size(value) if value else "0", "soft", "end")
            value += step

    def over_axis(self):
        picture, step, value = self.picture, step_of(self.end, 10, 8), 0
        units = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1))
        unit, scale = next(((name, size) for name, size in units if self.end >= 2 * size), units[-1])
        picture.stroke(LEFT, self.bottom, WIDTH - RIGHT, self.bottom, "line")
        while value <= self.end:
            words = f"{value / scale:g}" if self.model.clock else count_text(value)
            picture.text(self.at(value), self.bottom + 17, words, "soft", "middle")
            value += step
        words = f"time since the recording began, {unit}" if self.model.clock else \
            "event, by its number" if self.model.part.timeline else "line of statistics, by its number"
        picture.text((LEFT + WIDTH - RIGHT) / 2, self.bottom + 36, words, "soft", "middle")

    def outline(self, values):
        """The course of the values: of each pixel the least, the greatest and the last."""
        points, pixel, last = [], None, 0
        for number, value in enumerate(values):
            x = round(self.x(number))
            if x != pixel:
                if pixel is not None:
                    points += [(pixel, low), (pixel, last)] if low < min(high, last) else [(pixel, last)]
                points += [(x, last), (x, value)]
                pixel, low, high, last = x, value, value, value
            elif value > high:
                points.append((x, value))
            low, high, last = min(low, value), max(high, value), value
        if pixel is not None:
            points += [(pixel, last), (WIDTH - RIGHT, last)]
        return [(x, self.y(value)) for x, value in thinned(points)]

    def fill(self, values, kind):
        points = self.outline(values)
        if points:
            self.picture.path([(points[0][0], self.bottom), *points, (points[-1][0], self.bottom)], kind, closed=True)


def is_between(before, point, after):
    """It lies on the way, straight up or across."""
    if before[0] == point[0] == after[0]:
        return (before[1] - point[1]) * (point[1] - after[1]) >= 0
    return before[1] == point[1] == after[1]


def thinned(points):
    """Without those that lie between their neighbours."""
    kept = []
    for point in points:
        while len(kept) > 1 and is_between(kept[-2], kept[-1], point):
            kept.pop()
        if not kept or kept[-1] != point:
            kept.append(point)
    return kept
