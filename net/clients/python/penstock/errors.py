"""What can go wrong, one class for each thing that the caller can do about it."""

from typing import Optional


class PenstockError(Exception):
    """The base of all errors of this package.

    `is_executed` is "no" or "unknown". `status` is the name of the server's status, if it said one.
    """

    is_executed = "no"

    def __init__(self, text: str, status: Optional[str] = None):
        super().__init__(text)
        self.status = status


class No(PenstockError):
    """A guard or a condition did not hold, or the key is missing. Nothing has changed.

    `instruction` is the number of the guard from 0, `reason` the number that it was given, `actual`
    the number that was there. `version` is that of the key, `shown` its value if `show` was asked.
    """

    def __init__(self, status, reason, instruction, actual, version, shown):
        text = status
        if reason:
            text += f", reason {reason}"
        if actual is not None:
            text += f", actual {actual}"
        super().__init__(text, status)
        self.reason = reason
        self.instruction = instruction
        self.actual = actual
        self.version = version
        self.shown = shown


class Busy(PenstockError):
    """Not executed: a queue is full, the server stops, or no node writes the key. Try later."""


class NotSent(PenstockError):
    """Not executed: there is no connection. Try again."""


class DeadlineExceeded(PenstockError):
    """Not executed: the deadline passed before."""


class Unknown(PenstockError):
    """Perhaps executed: the connection or the time ended before the answer came.

    `token` names the write, if it had one. Then `client.resolve(error)` asks the same write again:
    it is executed once, however often that is asked.
    """

    is_executed = "unknown"

    def __init__(self, text: str, status: Optional[str] = None, call=None):
        super().__init__(text, status)
        self._call = call

    @property
    def token(self):
        """The UUID of the write, or None if it was sent without one."""
        return self._call.token if self._call is not None else None


class Refused(PenstockError):
    """Not executed: the request is wrong, or the server cannot do it. `status` says why."""


class Unfit(PenstockError):
    """Not executed: the server and the options of the client do not go together."""


class ProtocolError(PenstockError):
    """The peer does not speak this protocol, or a frame was damaged on its way."""

    is_executed = "unknown"
