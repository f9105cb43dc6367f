# SPDX-License-Identifier: MIT
"""Why a recorded program ran out of memory, proved by replay.

The refused request is played, too, as the last event. `low` is memory that the program is known to have had, `high` the
most that it can have had: a setting counts if the program lives with `low`; the cause is taken for proved if as it was it
runs out with `high`.
"""

from . import candidates, causes, record, search
from .causes import Figures

PYTORCH = "PyTorch snapshot"


class Case:
    """A recorded program that ran out of memory, or would on a device of `memory`."""

    def __init__(self, player, memory=None, device=None):
        self.player = player
        self.memory = memory
        self.variables = record.settings(player.file)
        self.program = record.program(player.file)
        self.may_be_pytorch = record.has_unnamed_variable(player.file)
        self.full = record.keys(self.variables)
        self.first = player.get()
        self.is_framework = self.first.data["input_format"].startswith(PYTORCH)
        self.refusals = {each["index"]: each["recorded_refusal"] for each in self.first.devices if each["recorded_refusal"]}
        self.device = device if device is not None else next(iter(self.refusals), next(iter(self.first.leasts), 0))
        self.refusal = self.refusals.get(self.device)
        player.to_refusal = self.refusal is not None
        self.figures = Figures()
        self.figures.device = self.device
        self.low = self.high = None
        self.cause = causes.UNKNOWN
        self.before = None       # outcomes with `high`, by lag, of the program as it was
        self.advice = None
        self.least = None        # with which the program as it was lives, at the worst of the lags
        self.proofs = []
        self.search = None

    @property
    def now(self):
        return candidates.played(self.full)

    @property
    def conf(self):
        return candidates.text(self.now)

    @property
    def went_on(self):
        """It allocated after the refused request."""
        return self.refusal is not None and self.first.allocations >= self.player.get(self.conf).allocations

    # ---- figures

    def _capacities(self, recorded):
        """(known to have been there, the most there can have been)."""
        if self.memory:
            size = self.memory // search.GRANULE * search.GRANULE
            return size, size
        refusal = self.refusal or {}
        reserved, left, segment = (refusal.get(f"{name}_bytes") for name in ("reserved", "free", "segment"))
        if reserved is None or (left is None and segment is None):
            return None, None
        most = reserved + (left if left is not None else segment - search.GRANULE)
        memory = recorded["recorded_memory_bytes"]
        most = min(most, memory) if memory else most
        low = reserved if left is None else most
        return low // search.GRANULE * search.GRANULE, max(most, low) // search.GRANULE * search.GRANULE

    def read(self, assumed):
        """Fills the figures, from the record and one replay with as much memory as there can have been."""
        recorded = self.first.device(self.device)
        figures, refusal = self.figures, self.refusal
        figures.device_memory = recorded["recorded_memory_bytes"]
        self.low, self.high = self._capacities(recorded)
        if self.memory:
            figures.device_memory = self.high
        figures.allowed = record.allowed_bytes(self.variables, figures.device_memory)
        figures.capacity = self.high
        if refusal:
            figures.request = refusal["request_bytes"]
            whole = self.player.get(self.conf).device(self.device)
            figures.live = sum(whole["roads"][road]["live_bytes"] for road in ("sync", "async")) - figures.request
            if not self.memory:
                figures.reserved, figures.free = refusal["reserved_bytes"], refusal["free_bytes"]
        if self.high is not None:
            self._play(assumed)

    def _play(self, assumed):
        self.before = {lag: self.player.get(self.conf, lag, self.high) for lag in assumed}
        for lag, outcome in self.before.items():
            ended = outcome.device(self.device)
            self.proofs.append((self.conf, lag, self.high, not ended["out_of_memory"]))
        dead = [outcome.device(self.device) for outcome in self.before.values() if self._ran_out(outcome)]
        if not dead:
            return
        figures, out = self.figures, dead[0]["out_of_memory"]
        if figures.request is None:
            figures.request, figures.live = out["request_bytes"], out["live_bytes"]
        if figures.reserved is None:
            figures.reserved = out["reserved_bytes"]
        if not self.refusal or self.refusal["road"] == "sync":  # what pools have free is not counted
            figures.largest = dead[0]["largest_free_block_bytes"]

    def _ran_out(self, outcome):
        return bool(outcome.device(self.device)["out_of_memory"])

    @property
    def is_reproduced(self):
        return bool(self.before) and any(map(self._ran_out, self.before.values()))

    # ---- the cause, and what would have helped

    def _is_capped(self):
        """A limit refused, not the driver."""
        refusal = self.refusal or {}
        return bool(self.figures.allowed and refusal and refusal["segment_bytes"] is None and refusal["free_bytes"] is None)

    @property
    def peak_live(self):
        return self.first.device(self.device)["peak_live_bytes"]

    def judge(self):
        if not self.is_reproduced and (self.memory or not self.refusal):
            self.cause = causes.NOTHING
        elif not self.refusal and self.peak_live > self.high:
            self.cause = causes.TOO_MUCH
        elif self._is_capped():
            self.cause = causes.CAP
        else:
            self.cause = causes.cause(self.figures)
        if self.cause == causes.FRAGMENTATION and not self.memory:
            if self.is_framework and self.before and not self.is_reproduced:
                self.cause = causes.FRAMEWORK
            elif self.figures.others and self.low is not None and self.figures.needed > self.low:
                self.cause = causes.OTHERS  # however what it had were cut

    @property
    def can_prove(self):
        """There is a memory to try."""
        return self.high is not None or (self.cause == causes.CAP and self.figures.device_memory is not None)

    def prove(self, assumed, progress):
        """Looks for what would have helped."""
        self.search = search.Search(self.player, self.now, assumed, progress)
        self.search.measure_before()
        self.least = self.search.least_before
        if self.cause == causes.FRAGMENTATION and self.is_reproduced:
            self.advice = self.search.cure(self.low)
            if self.advice:
                self.proofs += [(self.advice.conf, lag, self.low, True) for lag in assumed]
        elif self.cause in (causes.CAP, causes.OTHERS, causes.REFUSED) and self.figures.device_memory:
            self._play_whole(assumed)

    def _play_whole(self, assumed):
        """As it was, with the whole device."""
        size = self.figures.device_memory // search.GRANULE * search.GRANULE
        for lag in assumed:
            self.proofs.append((self.conf, lag, size, not self._ran_out(self.player.get(self.conf, lag, size))))

    @property
    def is_proved(self):
        """The cause, and for fragmentation a setting or that none helps."""
        lives = [lives for _, _, _, lives in self.proofs]
        if self.cause == causes.FRAGMENTATION:
            return self.is_reproduced
        if self.cause in (causes.CAP, causes.OTHERS):
            return bool(lives) and lives[-1]
        if self.cause == causes.FRAMEWORK:
            return bool(lives) and all(lives)
        return self.cause == causes.TOO_MUCH
