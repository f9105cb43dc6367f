# SPDX-License-Identifier: MIT
"""Searching settings with which a recorded program needs less memory.

A candidate is played on a device with as little memory as it has to live with: one replay, and most candidates end
there. Of those that live the least memory is searched, the best are verified in the order of their rank, and the first
that passes is the answer. How far the device is behind the host (the lag) is part of a replay, and nobody knows it of a
program on another day: so a setting counts only if it needs no more memory than before at any of LAGS.

What a replay takes is chaotic to a point: a program may run out with a little more memory than its "least". Hence the
checks between (`_holds`), and that the program as it is must run out with what the setting needs.
"""

from . import candidates

GRANULE = 2 << 20
LAGS = (0, 20, 100, 300)
MARGIN = 0.01       # by which the least memory has to fall
KEY_MARGIN = 0.005  # by which it has to fall further for each key more
PEAK_MARGIN = 0.02  # by which the peak with plenty of memory may rise, or by as much as the least memory falls
CALLS = 2           # as many times the driver calls, or the waits, are a price that may be paid ...
CALLS_SHARE = 0.01  # ... or one more for so many allocations
VERIFIED_MAX = 12   # candidates that are verified at most
PAIRS_EVENTS = 1000000  # pairs of keys are tried alone up to so many events


def is_affordable(after, before):
    """Driver calls and waits of two outcomes with plenty of memory."""
    more = before.allocations * CALLS_SHARE
    return all(now <= max(CALLS * then, then + more)
               for now, then in ((after.calls, before.calls), (after.waits, before.waits)))


class Trial:
    """A change of the settings, and what is known of it."""

    def __init__(self, keys, change):
        self.change = change
        self.keys = keys          # with those that were there
        self.outcomes = {}        # by lag: with the least memory
        self.refused_for = None   # why it is not advised

    @property
    def conf(self):
        return candidates.text(self.keys)

    def least(self, lags):
        return max(self.outcomes[lag].least for lag in lags)


class Search:
    """`now`: the keys that the program has; `assumed`: the lags that are searched; all in the words of Player.ask."""

    def __init__(self, player, now, assumed, progress=lambda trial: None):
        self.player = player
        self.now = now
        self.assumed = list(assumed)
        self.lags = list(dict.fromkeys([*assumed, *LAGS]))
        self.progress = progress
        self.before = Trial(now, {})
        self.tried = 0
        self.best = None          # the best known, verified or not
        self.refused = []         # trials that live with less, and are not advised
        self.pairs_left_out = False

    # ---- measuring

    def _least(self, trial, lags):
        """Finds the least memory at these lags."""
        missing = [lag for lag in lags if lag not in trial.outcomes]
        asked = [self.player.ask(trial.conf, lag, least=True) for lag in missing]
        trial.outcomes.update(zip(missing, self.player.get_all(asked)))

    def measure_before(self):
        self._least(self.before, self.lags)

    @property
    def worst(self):
        """The lag among those assumed at which the program needs most."""
        return max(self.assumed, key=lambda lag: self.before.outcomes[lag].least)

    @property
    def least_before(self):
        return self.before.outcomes[self.worst].least

    def floor(self):
        """What no setting can go below: live memory of one moment, in the device's pieces."""
        live = max(outcome.largest_live for outcome in self.before.outcomes.values())
        return -(-live // GRANULE) * GRANULE

    def _target(self, lag, least):
        return max(GRANULE, min(least, self.before.outcomes[lag].least) // GRANULE * GRANULE)

    def living(self, changes, least):
        """Trials of those changes that live with `least` at all assumed lags; none lives with less at the next."""
        trials = [Trial(candidates.changed(self.now, change), change) for change in changes]
        self.tried += len(trials)
        for lag in sorted(self.assumed, key=lambda lag: lag != self.worst):
            asked = [self.player.ask(trial.conf, lag, self._target(lag, least)) for trial in trials]
            kept = []
            for trial, future in zip(trials, asked):
                if future.result().completed:
                    kept.append(trial)
                self.progress(self)
            trials = kept
        return trials

    # ---- ranking

    def _measured(self, trials, least):
        """Those whose least memory at the worst lag is no more than `least`, and whose price may be paid."""
        asked = [self.player.ask(trial.conf, self.worst, least=True) for trial in trials]
        kept = []
        for trial, future in zip(trials, asked):
            trial.outcomes[self.worst] = future.result()
            self.progress(self)
            if trial.outcomes[self.worst].least > least:
                continue
            trial.refused_for = self._price(trial, self.worst)
            (self.refused if trial.refused_for else kept).append(trial)
        for trial in kept:
            if self.best is None or self.rank(trial) < self.rank(self.best):
                self.best = trial
        return kept

    def _price(self, trial, lag):
        """Why the setting costs too much at that lag, or None."""
        after, before = trial.outcomes[lag], self.before.outcomes[lag]
        if not is_affordable(after, before):
            return (f"driver calls {before.calls} -> {after.calls}, host waits {before.waits} -> {after.waits} "
                    f"{lag_text(lag)}")
        gain = 1 - trial.outcomes[self.worst].least / self.least_before
        if after.peak > before.peak * (1 + max(PEAK_MARGIN, gain)):
            return f"peak reserved {(after.peak / before.peak - 1) * 100:+.1f} % {lag_text(lag)}"
        return None

    def rank(self, trial):
        outcome = trial.outcomes[self.worst]
        return outcome.least, len(trial.keys), outcome.peak, outcome.calls, trial.conf

    def ranked(self, trials):
        """By least memory; among those that are equal to a key's margin the one with the fewest keys comes first, then the
        one that reserves least, then the one with the fewest driver calls and waits."""
        def cost(trial):
            outcome = trial.outcomes[self.worst]
            return len(trial.keys), outcome.peak, outcome.calls + outcome.waits, self.rank(trial)

        left, order = sorted(trials, key=self.rank), []
        while left:
            bound = left[0].outcomes[self.worst].least + KEY_MARGIN * self.least_before
            first = min((trial for trial in left if trial.outcomes[self.worst].least <= bound), key=cost)
            left.remove(first)
            order.append(first)
        return order

    # ---- verifying

    def _holds(self, trial):
        """It lives with its least memory and with what was needed before, at all lags, and with sizes between."""
        asked = []
        for lag in self.lags:
            low, high = trial.outcomes[lag].least, self.before.outcomes[lag].least
            sizes = {low + (high - low) * step // 4 // GRANULE * GRANULE for step in range(5)}
            asked += [self.player.ask(trial.conf, lag, size) for size in sorted(sizes)]
        return all(outcome.completed for outcome in self.player.get_all(asked))

    def why_not(self, trial):
        """Why a trial is not advised, or None: it passes."""
        self._least(trial, self.lags)
        for lag in self.lags:
            before = self.before.outcomes[lag].leasts
            if any(least > before[device] for device, least in trial.outcomes[lag].leasts.items()):
                return f"it needs more memory {lag_text(lag)}"
            price = self._price(trial, lag)
            if price:
                return price
        least = trial.least(self.assumed)
        if least > self.least_before * (1 - MARGIN):
            return "it needs as much at another lag"
        if not self._holds(trial):
            return "it runs out with sizes between the two"
        if self.player.get(self.before.conf, self.worst, least).completed:
            return "the program lives with that as it is"
        return None

    def verified(self, trials):
        """The first in their rank that passes, or None."""
        for trial in self.ranked(trials)[:VERIFIED_MAX]:
            self.progress(self)
            trial.refused_for = self.why_not(trial)
            if trial.refused_for is None:
                return trial
            self.refused.append(trial)
        return None

    # ---- the whole

    def _wanted(self, trials):
        """The least memory that one key more has to reach."""
        if not trials:
            return int(self.least_before * (1 - MARGIN))
        best = min(trial.outcomes[self.worst].least for trial in trials)
        return int(best - KEY_MARGIN * self.least_before)

    def run(self):
        """The trial that is advised, or None."""
        self.measure_before()
        wanted = self._wanted([])
        if not self.least_before or wanted < self.floor():
            return None
        found = self._measured(self.living(candidates.singles(self.now), wanted), wanted)
        if found:
            for _ in range(2):  # up to three keys
                parents, wanted = self.ranked(found)[:3], self._wanted(found)
                changes = [change for parent in parents for change in candidates.extended(self.now, parent.change)]
                changes = list({candidates.text(change): change for change in changes}.values())
                more = self._measured(self.living(changes, wanted), wanted) if wanted >= self.floor() else []
                if not more:
                    break
                found += more
        elif self.before.outcomes[self.worst].data["events"] <= PAIRS_EVENTS:
            found = self._measured(self.living(candidates.pairs(self.now), wanted), wanted)
        else:
            self.pairs_left_out = True
        return self.verified(found)


    def cure(self, capacity):
        """The trial that lives with `capacity` and needs no more memory than before at any lag, or None. The price does not
        decide here: the program did not live without."""
        found = self.living(candidates.singles(self.now), capacity)
        if not found and self.before.outcomes[self.worst].data["events"] <= PAIRS_EVENTS:
            found = self.living(candidates.pairs(self.now), capacity)
        asked = [self.player.ask(trial.conf, self.worst, least=True) for trial in found]
        for trial, future in zip(found, asked):
            trial.outcomes[self.worst] = future.result()
            self.progress(self)
        for trial in self.ranked(found)[:VERIFIED_MAX]:
            self._least(trial, self.lags)
            raised = [lag for lag in self.lags if any(
                least > self.before.outcomes[lag].leasts[device] for device, least in trial.outcomes[lag].leasts.items())]
            if not raised and self.lives(trial, capacity):
                return trial
            trial.refused_for = f"it needs more memory {lag_text(raised[0])}" if raised else "it runs out at another lag"
            self.refused.append(trial)
        return None

    def lives(self, trial, capacity):
        return all(self.player.get(trial.conf, lag, capacity).completed for lag in self.assumed)


def lag_text(lag):
    if lag is None:
        return "with the device as recorded"
    return f"with the device {lag} us behind" if lag else "with the device idle"
