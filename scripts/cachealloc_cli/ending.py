# SPDX-License-Identifier: MIT
"""Signals that end a command which has threads: Ctrl-C, SIGTERM and SIGHUP.

Python raises what a handler raises between any two steps of the main thread. In the midst of the locks of the standard
library that leaves them locked, or released twice. So a part that takes such locks is `held`: a signal is noted there, and
raised at its end.
"""

import contextlib
import os
import signal

#: what ends a command, and the handler that it has unless somebody chose another
_HANDLERS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}


class Ended(BaseException):
    """A signal other than Ctrl-C asked this command to end."""

    def __init__(self, number):
        super().__init__()
        self.number = number


class _Signals:
    held = 0
    noted = None

    @classmethod
    def handle(cls, number, _):
        cls.noted = number
        if not cls.held:
            cls.raise_noted()

    @classmethod
    def raise_noted(cls):
        number, cls.noted = cls.noted, None
        raise KeyboardInterrupt if number == signal.SIGINT else Ended(number)


def wanted():
    """True if a signal came in the part that is held."""
    return _Signals.noted is not None


@contextlib.contextmanager
def held():
    """A part of the main thread that no signal breaks off."""
    _Signals.held += 1
    try:
        yield
    finally:
        _Signals.held -= 1
        if wanted() and not _Signals.held:
            _Signals.raise_noted()


@contextlib.contextmanager
def ending():
    """Signals become exceptions, so that what was started is ended, too: Ctrl-C is KeyboardInterrupt; after SIGTERM and
    SIGHUP this process ends as they end one."""
    before = {number: signal.signal(number, _Signals.handle) for number, handler in _HANDLERS.items()
              if signal.getsignal(number) == handler}
    try:
        yield
    except Ended as ended:
        signal.signal(ended.number, signal.SIG_DFL)
        os.kill(os.getpid(), ended.number)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
