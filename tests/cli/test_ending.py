# SPDX-License-Identifier: MIT
"""Signals that end a command: never in the midst of a part that is held."""

import os
import signal

import command  # noqa: F401  the package's path
import pytest
from cachealloc_cli.ending import ending, held, wanted


def test_a_signal_is_raised_at_the_end_of_what_is_held():
    seen = []
    with ending(), pytest.raises(KeyboardInterrupt):
        with held():
            with held():
                os.kill(os.getpid(), signal.SIGINT)
                seen.append(wanted())
            seen.append(wanted())
        seen.append("after")
    assert seen == [True, True] and not wanted()


def test_a_signal_is_raised_at_once_elsewhere():
    with ending(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("not raised")
    assert not wanted()


def test_a_handler_of_somebody_elses_stays():
    seen = []
    before = signal.signal(signal.SIGHUP, lambda *_: seen.append("hup"))
    try:
        with ending():
            os.kill(os.getpid(), signal.SIGHUP)
        assert seen == ["hup"] and signal.getsignal(signal.SIGHUP) != signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
