# SPDX-License-Identifier: MIT
"""Pictures for a README or a paper: one view of one file as SVG, light or dark as the reader's page is."""

import math
import os

from . import report_model as model_of
from .report_data import Refused
from .report_picture import LEFT, RIGHT, WIDTH, Over, Picture, mark, whole_size
from .terminal import count_text, size_text, time_text

LANES = (("failed", "bad", "out of memory"), ("flush", "flush", "flush"), ("give_back", "whole", "give-back"),
         ("trim", "trim", "trim"))


def lanes(plane, model):
    picture = plane.picture
    for name, kind, words in LANES:
        if not model.marks[name]:
            continue
        y, last = picture.height + 4, -9
        picture.text(LEFT - 8, y + 4, words, "soft", "end")
        picture.stroke(LEFT, y, WIDTH - RIGHT, y, "grid")
        for number in model.marks[name]:
            x = round(plane.x(number))
            if x - last >= 2:
                mark(picture, name, x, y, kind)
                last = x
        picture.height += 18


def memory(model, picture):
    present = [(name, kind, words) for name, kind, words in LANES if model.marks[name]]
    picture.legend([("box", "used", "requested"), ("box", "rounding", "allocated (rounding)"), ("line", "edge", "reserved"),
                    *([("line", "limit", f"limit {size_text(model.limit)}")] if model.limit else []), *present])
    plane = Over(picture, model, max(model.limit, max(model.reserved, default=0), max(model.requested, default=0)))
    plane.byte_axis()
    plane.fill(model.reserved, "held")
    plane.fill(model.allocated, "rounding")
    plane.fill(model.requested, "used")
    picture.path(plane.outline(model.reserved), "edge")
    if model.limit:
        picture.stroke(LEFT, plane.y(model.limit), WIDTH - RIGHT, plane.y(model.limit), "limit")
    for number in model.marks["failed"][-200:]:
        picture.stroke(plane.x(number), plane.top, plane.x(number), plane.bottom, "rule")
    if model.marks["failed"]:
        number = model.marks["failed"][-1]
        asked = model.refused(number)
        words = f"out of memory: {size_text(asked)} refused" if asked else "out of memory"
        width, x = 7.2 * len(words) + 12, plane.x(number)
        left = x - width - 6 if x + width + 6 > WIDTH - RIGHT else x + 6
        picture.box(left, plane.top + 8, width, 22, "bad")
        picture.text(left + width / 2, plane.top + 23, words, "over", "middle")
    plane.over_axis()
    lanes(plane, model)


def waste(model, picture):
    parts = [("box", "rounding", "rounding"), ("box", "waiting", "waiting: not known to be finished")]
    if model.part.timeline:
        picture.legend([*parts, ("box", "free", "pieces"), ("box", "whole", "whole free segments")])
    else:
        picture.legend([*parts, ("box", "free", "free")])
    sums = [[0] * model.count for _ in range(4)]
    for number in range(model.count):
        total = 0
        for k, part in enumerate(model.waste(number)):
            total += part
            sums[k][number] = total
    plane = Over(picture, model, max(sums[3], default=0))
    plane.byte_axis()
    for values, kind in zip(sums[::-1], ("whole", "free", "waiting", "rounding")):
        plane.fill(values, kind)
    plane.over_axis()


def moment_of(model, at):
    failed = model.marks["failed"]
    if at == "oom" and not failed:
        raise Refused("--at oom: no request was refused")
    if at in (None, "oom"):
        return failed[-1] if failed else model.peak
    if at == "peak":
        return model.peak
    if int(at) >= model.count:
        raise Refused(f"--at {at}: there are {model.count} events, from 0 on")
    return int(at)


def place_map(model, picture, at):
    """Memory as one strip in rows, all of it to one scale."""
    number = moment_of(model, at)
    runs, asked = model.moment(number), model.refused(number)
    free = [length for _, length, used, _ in runs if not used]
    total, largest = sum(run[1] for run in runs), max(free, default=0)
    row_bytes = max(2 ** math.ceil(math.log2(max(total / 22, 1 << 21))), asked * 1.05)
    legend = [("box", "used", "block in use"), ("box", "free", "free piece"), ("box", "bad", "request that was refused")]
    picture.legend(legend if asked else legend[:2])
    when = f"At {time_text(model.time[number])}" if model.clock else f"At event {count_text(number)}"
    picture.text(16, picture.height + 8, f"{when}: {size_text(sum(free))} free in {len(free)} pieces, the largest "
                 f"{size_text(largest)}. One row: {size_text(row_bytes)}.", "text")
    picture.height += 20
    if asked:
        for words, length, kind in (("refused", asked, "bad"), ("the largest free piece", largest, "free")):
            width = length / row_bytes * (WIDTH - 32)
            picture.box(16, picture.height, width, 14, kind)
            picture.text(24 + width, picture.height + 12, f"{words}: {size_text(length)}", "text")
            picture.height += 20
    strip(picture, runs, row_bytes)


def strip(picture, runs, row_bytes):
    top, wide = picture.height + 4, WIDTH - 32
    places, turn, at, before = {"used": [], "used2": [], "free": [], "page": []}, 0, 0, None
    for _, length, used, segment in runs:
        turn ^= used
        kind = ("used" if turn else "used2") if used else "free"
        if segment != before and before is not None:
            row = int(at // row_bytes)
            places["page"].append((15.4 + (at - row * row_bytes) / row_bytes * wide, top + row * 21, 1.2))
        end = at + length
        while at < end:
            row = int(at // row_bytes)
            upto = min(end, (row + 1) * row_bytes)
            width = (upto - at) / row_bytes * wide
            if width >= .2:  # less than that cannot be seen
                places[kind].append((16 + (at - row * row_bytes) / row_bytes * wide, top + row * 21, width))
            at = upto
        before = segment
    for kind, boxes in places.items():
        picture.boxes(boxes, 17, kind)
    picture.height = top + max(1, math.ceil(at / row_bytes)) * 21 + 8


def sizes(model, picture):
    columns, cells = model.columns, {}
    for block, (birth, death) in enumerate(zip(model.birth, model.death)):
        size = max(9, columns["requested"][block].bit_length() - 1)
        life = None
        if death is not None:
            lasted = (model.time[death] - model.time[birth]) / 1e3 if model.clock else death - birth
            life = int(math.log10(max(lasted, 1)))
        cells[size, life] = cells.get((size, life), 0) + 1
    low, high = min((size for size, _ in cells), default=9), max((size for size, _ in cells), default=9)
    most_life = max((life for _, life in cells if life is not None), default=0)
    rows, left, top = [None, *range(most_life, -1, -1)], 150, picture.height
    wide, most = min((WIDTH - left - RIGHT) / (high - low + 1), 70), max(cells.values(), default=1)
    for row, life in enumerate(rows):
        upto = time_text(10 ** ((life or 0) + 1) * 1e3) if model.clock else f"{count_text(10 ** ((life or 0) + 1))} events"
        picture.text(left - 10, top + row * 26 + 18, "never freed" if life is None else f"up to {upto}", "soft", "end")
        for size in range(low, high + 1):
            count = cells.get((size, life))
            if not count:
                continue
            share, x = math.log1p(count) / math.log1p(most), left + (size - low) * wide
            picture.box(x + 1, top + row * 26 + 1, wide - 2, 24, "held")
            picture.box(x + 1, top + row * 26 + 1, wide - 2, 24, f'used" opacity="{.15 + .85 * share:.2f}')
            words = str(count) if count < 10000 else f"{count // 1000}k"
            picture.text(x + wide / 2, top + row * 26 + 18, words, "over" if share > .5 else "text", "middle")
    bottom = top + len(rows) * 26
    for size in range(low, high + 1, 1 if wide > 62 else 2):
        picture.text(left + (size - low) * wide, bottom + 17, whole_size(2 ** size), "soft", "middle")
    picture.text((left + WIDTH) / 2, bottom + 38, "size asked for (each column up to twice its left edge); numbers: blocks; "
                 "rows: lifetime", "soft", "middle")
    picture.height = bottom + 52


BINS = 108
CALLS = {model_of.TAKEN: 0, model_of.FLUSH: 1, model_of.GIVE_BACK: 1, model_of.TRIM: 1, model_of.REFUSED: 2, model_of.WAITED: 3}


def call_bins(model, end, count):
    """For each of `count` stretches of time: segments taken, given back, refused, and waits."""
    bins = [[0, 0, 0, 0] for _ in range(count)]
    for number, kind in enumerate(model.kinds):
        if kind in CALLS:
            at = model.time[number] if model.clock else number
            bins[min(count - 1, int(at / end * count))][CALLS[kind]] += 1
    return bins


def driver(model, picture):
    picture.legend([("box", "used", "segments taken"), ("box", "whole", "segments given back"),
                    ("failed", "bad", "refused by the driver"), ("box", "waiting", "the host waited")])
    plane = Over(picture, model, 1, 210)
    bins = call_bins(model, plane.end, BINS)
    up, down = max(1, *(each[0] for each in bins)), max(each[1] for each in bins)
    unit = (plane.bottom - plane.top - 30) / (up + down)
    zero, wide = plane.top + up * unit, (WIDTH - LEFT - RIGHT) / BINS
    picture.text(LEFT - 8, plane.top + 8, f"{count_text(up)} calls", "soft", "end")
    picture.text(LEFT - 8, zero + 4, "0", "soft", "end")
    if down * unit > 20:
        picture.text(LEFT - 8, zero + down * unit, f"{count_text(down)} calls", "soft", "end")
    if any(each[3] for each in bins):
        picture.text(LEFT - 8, plane.bottom - 8, "waits", "soft", "end")
    picture.stroke(LEFT, zero, WIDTH - RIGHT, zero, "line")
    for k, (taken, given, refused, waits) in enumerate(bins):
        x = LEFT + k * wide
        if taken:
            picture.box(x, zero - taken * unit, wide - 1, taken * unit, "used")
        if given:
            picture.box(x, zero, wide - 1, given * unit, "whole")
        if refused:
            mark(picture, "failed", x + wide / 2, plane.top + 5, "bad")
        if waits:
            picture.box(x, plane.bottom - 17, wide - 1, 10, "waiting")
    plane.over_axis()


VIEWS = {"memory": memory, "map": place_map, "waste": waste, "sizes": sizes, "driver": driver}
TITLES = {"memory": "Memory over time", "map": "Segments and blocks", "waste": "Where the waste is",
          "sizes": "Sizes and lifetimes", "driver": "Driver calls and waits"}
SOURCES = {"recorded": "as recorded", "replayed": "as replayed on cachealloc", "statistics": "statistics"}


def draw(view, parts, at):
    """The picture's text. Raises Refused."""
    part = parts[0]
    if len(parts) > 1:
        raise Refused(f"{part.name} has several devices: choose one by --device")
    if not part.timeline and view in ("map", "sizes", "driver"):
        raise Refused(f"--svg {view}: statistics tell no single blocks and calls; a trace does")
    model = model_of.Model(part)
    if not model.count:
        raise Refused(f"{part.name} has no events")
    name = part.head.get("program") or os.path.basename(part.name)
    subtitle = f"{name}, device {part.head['device']}, {SOURCES[part.head['source']]}: peak " \
        f"{size_text(model.requested[model.peak])} requested, {size_text(max(model.reserved))} reserved"
    picture = Picture(TITLES[view], subtitle)
    VIEWS[view](model, picture, *([at] if view == "map" else []))
    return picture.whole()
