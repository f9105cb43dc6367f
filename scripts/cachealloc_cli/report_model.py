# SPDX-License-Identifier: MIT
"""The sums of a timeline or of statistics over time, for pictures; report_page/model.js has the page's own."""

from itertools import accumulate

LIVE, ALLOC, FREED, HELD, TAKEN, FLUSH, GIVE_BACK, TRIM, REFUSED, FAILED, WAITED, COMPLETED = range(1, 13)
NO_SEGMENT = 0xFFFFFFFF
MARKS = {"failed": (FAILED,), "flush": (FLUSH,), "give_back": (GIVE_BACK,), "trim": (TRIM,)}


class Model:
    """Lists with a value for each event (of statistics: each line)."""

    def __init__(self, part):
        self.part = part
        self.limit = part.limit_bytes
        self.clock = part.head["clock"]
        if part.timeline:
            self._of_timeline(part.timeline.columns)
        else:
            self._of_rows(part.rows)
        self.count = len(self.requested)
        self.peak = max(range(self.count), key=self.requested.__getitem__, default=0)

    def _of_timeline(self, columns):
        kinds, args = columns["kind"], columns["arg"]
        requested, size, segment = columns["requested"], columns["size"], columns["segment"]
        segment_bytes = columns["segment_bytes"]
        self.columns, self.kinds, self.args = columns, kinds, args
        self.time = list(accumulate(columns["time_ns"]))
        self.waiting = columns["waiting"]
        self.birth, self.death = [], [None] * len(requested)
        self.segment_birth, self.segment_death = [], [None] * len(segment_bytes)
        self.requested, self.allocated, self.reserved, self.whole = [], [], [], []
        used, live, rounded, reserved, whole = [0] * len(segment_bytes), 0, 0, 0, 0
        for number, kind in enumerate(kinds):
            if kind in (LIVE, ALLOC):
                block = len(self.birth)
                self.birth.append(number)
                live, rounded, home = live + requested[block], rounded + size[block], segment[block]
                if home != NO_SEGMENT:
                    whole -= 0 if used[home] else segment_bytes[home]
                    used[home] += size[block]
            elif kind == FREED:
                block = args[number]
                self.death[block] = number
                live, rounded, home = live - requested[block], rounded - size[block], segment[block]
                if home != NO_SEGMENT:
                    used[home] -= size[block]
                    whole += 0 if used[home] or self.segment_death[home] is not None else segment_bytes[home]
            elif kind in (HELD, TAKEN):
                reserved += segment_bytes[len(self.segment_birth)]
                whole += segment_bytes[len(self.segment_birth)]
                self.segment_birth.append(number)
            elif kind in (FLUSH, GIVE_BACK, TRIM):
                gone = args[number]
                self.segment_death[gone] = number
                reserved -= segment_bytes[gone]
                whole -= 0 if used[gone] else segment_bytes[gone]
            self.requested.append(live)
            self.allocated.append(rounded)
            self.reserved.append(reserved)
            self.whole.append(whole)
        self.marks = {name: [n for n, kind in enumerate(kinds) if kind in which] for name, which in MARKS.items()}

    def _of_rows(self, rows):
        def gauge(name):
            return [row.get(name, {}).get("current", 0) for row in rows]

        def rises(name):
            values = [row.get(name, 0) for row in rows]
            return [n for n, value in enumerate(values) if value > (values[n - 1] if n else 0)]

        self.time = [row.get("elapsed_ns", 0) for row in rows]
        self.requested, self.allocated = gauge("requested_bytes"), gauge("allocated_bytes")
        self.reserved, self.whole = gauge("reserved_bytes"), [0] * len(rows)
        self.waiting = [max(0, active - taken) for active, taken in zip(gauge("active_bytes"), self.allocated)]
        self.marks = {"failed": rises("ooms"), "flush": rises("flushes"), "give_back": [], "trim": rises("trims")}

    def waste(self, number):
        """Bytes of rounding, of what waits, of pieces, of whole segments."""
        rounding = max(0, self.allocated[number] - self.requested[number])
        free = max(0, self.reserved[number] - self.allocated[number])
        waits = min(self.waiting[number], free)
        whole = min(self.whole[number], free - waits)
        return rounding, waits, free - waits - whole, whole

    def refused(self, number):
        """The bytes that were refused at the event, or 0."""
        if not self.part.timeline or not self.count or self.kinds[number] != FAILED:
            return 0
        return self.columns["failed"][self.args[number]]

    def moment(self, at):
        """Stretches (address, bytes, is it in use, segment) after the event `at`."""
        columns = self.columns
        live = sorted((columns["address"][b], columns["size"][b])
                      for b, (birth, death) in enumerate(zip(self.birth, self.death))
                      if birth <= at and (death is None or death > at))
        held = sorted((columns["segment_address"][s], columns["segment_bytes"][s], s)
                      for s, (birth, death) in enumerate(zip(self.segment_birth, self.segment_death))
                      if birth <= at and (death is None or death > at))
        runs, following = [], 0
        for first, length, segment in held:
            place, end = first, first + length
            while following < len(live) and live[following][0] < first:
                following += 1
            while following < len(live) and live[following][0] < end:
                address, size = live[following]
                if address > place:
                    runs.append((place, address - place, False, segment))
                upto = min(end, address + size)
                runs.append((address, upto - address, True, segment))
                place, following = max(place, upto), following + 1
            if place < end:
                runs.append((place, end - place, False, segment))
        return runs
