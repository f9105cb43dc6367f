# SPDX-License-Identifier: MIT
"""Why a request could not be served, from the figures of that moment.

The order is that of the library's own hint (shim/process/oom_message.c): the cause that explains most comes first.
"""

#: a driver may refuse a piece although so much more is free: its own pages
SLACK = 32 << 20
#: three figures of a report, each to 0.01 GiB
ROUNDING = 16 << 20

TOO_MUCH, CAP, REFUSED, OTHERS, OUTSIDE, FRAGMENTATION, FRAMEWORK, NOTHING, UNKNOWN = (
    "too_much", "cap", "refused", "others", "outside", "fragmentation", "framework_cache", "nothing_failed", "unknown")


class Figures:
    """Bytes; None: not known."""

    FIELDS = ("request", "live", "reserved", "largest", "free", "capacity", "device_memory", "allowed", "process")

    def __init__(self, **known):
        for name in self.FIELDS:
            setattr(self, name, known.get(name))
        self.device = 0
        self.is_ours = False  # cachealloc's, not PyTorch's
        self.is_pool = False  # PyTorch's on cudaMallocAsync
        self.platform = "CUDA"  # whose memory ran out: HIP and XPU are no business of ours
        self.private_pools = None  # bytes of `live`, in PyTorch's pools of CUDA graphs
        self.reports = 1
        self.other_devices = []  # that have reports, too

    @property
    def pieces(self):
        """Reserved, and not live."""
        return None if None in (self.reserved, self.live) else max(0, self.reserved - self.live)

    @property
    def others(self):
        """Of the device, held by others: other processes; libraries and contexts, too, unless `process` is known."""
        if None not in (self.device_memory, self.free, self.process):
            return _counts(self.device_memory - self.free - self.process)
        if self.device_memory is None or self.reserved is None:
            return None
        if self.free is not None:
            return max(0, self.device_memory - self.free - self.reserved)
        return None if self.capacity is None else max(0, self.device_memory - self.capacity)

    @property
    def outside(self):
        """Of the device, held by this process outside the allocator."""
        return None if None in (self.process, self.reserved) else _counts(self.process - self.reserved)

    @property
    def pieces_are_too_little(self):
        """Even as one piece, with what the driver would have given, they would not have held the request."""
        return None not in (self.pieces, self.free) and self.pieces + max(0, self.free - SLACK) < self.request

    @property
    def may_have_been_free(self):
        """`others` would have held the request: the figures do not tell whether it was taken at all."""
        return self.free is None and None not in (self.others, self.request) and self.others >= self.request + SLACK

    @property
    def needed(self):
        return None if None in (self.live, self.request) else self.live + self.request

    def as_json(self):
        both = {f"{name}_bytes": getattr(self, name) for name in self.FIELDS}
        both["request_bytes"] = self.request
        return {**both, "pieces_bytes": self.pieces, "others_bytes": self.others, "outside_bytes": self.outside}


def _counts(difference):
    """0: no more than the rounding of a report."""
    return difference if difference >= ROUNDING else 0


def cause(figures):
    """One of the words above."""
    if figures.needed is None:
        return UNKNOWN
    total = figures.device_memory if figures.device_memory is not None else figures.capacity
    if total is not None and figures.needed > total:
        return TOO_MUCH
    if figures.allowed is not None and (figures.reserved or figures.live) + figures.request > figures.allowed:
        return CAP
    if figures.free is not None and figures.free >= figures.request + SLACK:
        return REFUSED if figures.allowed is None else CAP
    if total is None or (figures.others is None and figures.capacity is None):
        return UNKNOWN
    if figures.may_have_been_free and figures.others > total // 2:
        return REFUSED  # so much is not the program's that pieces are no reason
    others, outside = figures.others or 0, figures.outside or 0
    if figures.needed > total - others - outside or ((others or outside) and figures.pieces_are_too_little):
        return OTHERS if others >= outside else OUTSIDE
    return FRAGMENTATION
