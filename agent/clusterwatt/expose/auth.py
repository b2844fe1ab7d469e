"""HTTP Basic authentication (RFC 7617) with passwords that bcrypt has hashed, and a bound on requests.

A check takes tens of milliseconds by design. So it runs on a thread of its own, a password that was found
right is known again by a digest under a key that lives only in memory, and few checks may wait at a time.
Neither the time of an answer nor its text tells whether a user exists.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from types import ModuleType

from clusterwatt.clock import Clock
from clusterwatt.expose.gate import client_of
from clusterwatt.expose.press import Press
from clusterwatt.log import ChangeLog

log = logging.getLogger(__name__)

MAX_HEADER_CHARACTERS = 1_024
MAX_PASSWORD_BYTES = 72  # what bcrypt takes in
MAX_CHECKS = 16
MAX_CHECKS_OF_CLIENT = 4  # so that one who guesses does not keep others waiting
NOBODY = b"." * 53  # in place of salt and digest of a user who does not exist


class BusyError(Exception):
    """Too many passwords wait to be checked."""


class Passwords:
    """Checks who asks. Belongs to the event loop; `press` does the slow part."""

    def __init__(self, users: Mapping[str, str], bcrypt: ModuleType, press: Press, clock: Clock) -> None:
        self.users = users
        self._hashes = {name.encode(): text.encode() for name, text in users.items()}
        self._highest_cost = max(map(_cost, self._hashes.values()))
        self._bcrypt = bcrypt
        self._press = press
        self._key = secrets.token_bytes(32)
        self._verified: dict[bytes, bytes] = {}  # at most one digest for each user
        self._checks: Counter[str] = Counter()
        self._log = ChangeLog(log, clock)

    async def fits(self, headers: Sequence[str], client: str) -> bool:
        """Whether the Authorization headers of a request are those of a user. Raises BusyError.

        `client`: its address, as text; empty where it has none.
        """
        said = _user_and_password(headers)
        if said is None:
            return False
        user, password = said
        digest = hashlib.blake2b(password, key=self._key).digest()
        if hmac.compare_digest(self._verified.get(user, b""), digest):
            return True
        counted_as = client_of((client,)) if client else ""
        if self._checks.total() >= MAX_CHECKS or self._checks[counted_as] >= MAX_CHECKS_OF_CLIENT:
            raise BusyError
        self._checks[counted_as] += 1
        try:
            fits = await self._press.do(lambda: self._check(user, password))
        finally:
            self._checks[counted_as] -= 1
            self._checks += Counter()  # forget clients without a check
        if fits:
            self._verified[user] = digest
        else:  # not which user: people type passwords there
            self._log.bad("", "refused", "%s: wrong user name or password" % (client or "a client"))
        return fits

    def _check(self, user: bytes, password: bytes) -> bool:
        """As much work for every user, known or not, as the costliest of the hashes takes."""
        known = self._hashes.get(user)
        if known is None:
            self._compare(password, _hash(self._highest_cost))
            return False
        fits = self._compare(password, known)
        for cost in range(_cost(known), self._highest_cost):  # each doubles what has been done
            self._compare(password, _hash(cost))
        return fits

    def _compare(self, password: bytes, known: bytes) -> bool:
        try:
            fits: bool = self._bcrypt.checkpw(password, known)
        except ValueError:  # a password that no hash can be of
            return False
        return fits


class RateLimit:
    """A token bucket: so many requests at once, then one in each interval."""

    def __init__(self, interval_s: float, burst: int, clock: Clock) -> None:
        self._interval_s = interval_s
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._as_of_s = clock.monotonic_s()

    def take(self) -> bool:
        """Whether a request may pass now."""
        now_s = self._clock.monotonic_s()
        gained = (now_s - self._as_of_s) / self._interval_s
        self._tokens = min(self._burst, self._tokens + gained)
        self._as_of_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def _user_and_password(headers: Sequence[str]) -> tuple[bytes, bytes] | None:
    """What a request says; None when it says nothing that could be right."""
    if len(headers) != 1 or len(headers[0]) > MAX_HEADER_CHARACTERS:
        return None
    scheme, _, encoded = headers[0].partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon and len(password) <= MAX_PASSWORD_BYTES else None


def _cost(known: bytes) -> int:
    return int(known.split(b"$")[2])


def _hash(cost: int) -> bytes:
    """A hash of this cost that no password is known to have."""
    return b"$2b$%02d$" % cost + NOBODY
