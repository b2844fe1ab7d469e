"""Who may ask: real bcrypt at its lowest cost, and a count of the work that it is given."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import threading
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import cast

import bcrypt
import pytest

from clusterwatt.expose.auth import MAX_CHECKS_OF_CLIENT, BusyError, Passwords, RateLimit
from clusterwatt.expose.press import Press
from tests.clocks import FakeClock
from tests.expose.test_server import in_loop

PASSWORD = "correct horse"
CLIENT = "192.0.2.1"


def hashed(password: str, cost: int = 4) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


USERS = {"alice": hashed(PASSWORD), "bob": hashed("b"), "zoë": hashed("naïve ☃", 5)}


class CountingBcrypt:
    """bcrypt, with the work that it did, in units of cost 4, and the threads that it did it on."""

    def __init__(self) -> None:
        self.work = 0
        self.threads: set[threading.Thread] = set()
        self.go_on = threading.Event()
        self.go_on.set()

    def checkpw(self, password: bytes, known: bytes) -> bool:
        self.go_on.wait(10)
        self.work += 2 ** (int(known.split(b"$")[2]) - 4)
        self.threads.add(threading.current_thread())
        return bcrypt.checkpw(password, known)


@contextlib.contextmanager
def made(users: dict[str, str] | None = None) -> Iterator[tuple[Passwords, CountingBcrypt]]:
    counting, press = CountingBcrypt(), Press("passwords")
    module = cast(ModuleType, SimpleNamespace(checkpw=counting.checkpw))
    try:
        yield Passwords(USERS if users is None else users, module, press, FakeClock()), counting
    finally:
        counting.go_on.set()
        press.stop()


@in_loop
async def test_the_right_password_fits_and_is_checked_once() -> None:
    with made() as (passwords, counting):
        for user, password in (("alice", PASSWORD), ("bob", "b"), ("zoë", "naïve ☃")):
            assert await passwords.fits([basic(user, password)], CLIENT)
            done = counting.work
            assert await passwords.fits([basic(user, password).replace("Basic", "basic")], CLIENT)
            assert counting.work == done
        assert threading.current_thread() not in counting.threads


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [""],
        ["Basic"],
        ["Basic "],
        ["Basic !!!"],
        ["Basic YWxpY2U="],  # no colon
        ["Bearer " + base64.b64encode(f"alice:{PASSWORD}".encode()).decode()],
        [basic("alice", PASSWORD), basic("alice", PASSWORD)],
        [basic("alice", "x" * 73)],
        [basic("alice", PASSWORD) + "é"],
        ["Basic " + "A" * 100_000],
    ],
)
def test_what_cannot_be_right_costs_nothing(headers: list[str]) -> None:
    async def test() -> None:
        with made() as (passwords, counting):
            assert not await passwords.fits(headers, CLIENT)
            assert counting.work == 0

    asyncio.run(test())


@pytest.mark.parametrize(
    ("user", "password"),
    [("alice", "wrong"), ("alice", ""), ("", ""), ("nobody", PASSWORD), ("bob", PASSWORD), ("alice", "a\0b")],
)
def test_every_wrong_answer_costs_the_same_whoever_is_named(user: str, password: str) -> None:
    async def test() -> None:
        with made() as (passwords, counting):
            for _ in range(2):
                before = counting.work
                assert not await passwords.fits([basic(user, password)], CLIENT)
                assert counting.work - before == 2  # the costliest of the hashes, cost 5

    asyncio.run(test())


@in_loop
async def test_a_right_password_is_not_another_users_and_a_known_one_does_not_hide_a_wrong_one() -> None:
    with made() as (passwords, _):
        assert await passwords.fits([basic("alice", PASSWORD)], CLIENT)
        assert not await passwords.fits([basic("bob", PASSWORD)], CLIENT)
        assert not await passwords.fits([basic("alice", PASSWORD + "x")], CLIENT)
        assert await passwords.fits([basic("alice", PASSWORD)], CLIENT)


@in_loop
async def test_passwords_are_not_kept() -> None:
    with made() as (passwords, _):
        await passwords.fits([basic("alice", PASSWORD)], CLIENT)
        kept = repr({name: getattr(passwords, name) for name in vars(passwords)})
        assert PASSWORD not in kept
        assert PASSWORD.encode().hex() not in kept


@in_loop
async def test_who_guesses_does_not_keep_others_waiting() -> None:
    with made() as (passwords, counting):
        assert await passwords.fits([basic("bob", "b")], CLIENT)
        counting.go_on.clear()
        guesses = [
            asyncio.create_task(passwords.fits([basic("alice", str(n))], CLIENT))
            for n in range(MAX_CHECKS_OF_CLIENT)
        ]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await passwords.fits([basic("alice", "one more")], CLIENT)
        assert await passwords.fits([basic("bob", "b")], CLIENT), "who is known waits for nobody"
        another = asyncio.create_task(passwords.fits([basic("alice", PASSWORD)], "192.0.2.2"))
        await asyncio.sleep(0)
        counting.go_on.set()
        assert await another
        assert not any(await asyncio.gather(*guesses))
        assert not await passwords.fits([basic("alice", "again")], CLIENT)


@in_loop
async def test_one_who_guesses_from_many_addresses_of_a_network_is_one_client() -> None:
    with made() as (passwords, counting):
        counting.go_on.clear()
        guesses = [
            asyncio.create_task(passwords.fits([basic("alice", str(n))], f"2001:db8:0:1::{n}"))
            for n in range(MAX_CHECKS_OF_CLIENT)
        ]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await passwords.fits([basic("alice", "one more")], "2001:db8:0:1:ffff::")
        another = asyncio.create_task(passwords.fits([basic("alice", PASSWORD)], "2001:db8:0:2::1"))
        await asyncio.sleep(0)
        counting.go_on.set()
        assert await another
        assert not any(await asyncio.gather(*guesses))


def test_a_wrong_password_is_logged_without_it_and_not_each_time(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        with made() as (passwords, _):
            for number in range(3):
                await passwords.fits([basic("EXAMPLE2", f"EXAMPLE-NOT-REAL{number}")], CLIENT)

    asyncio.run(test())
    (record,) = caplog.records
    assert CLIENT in record.getMessage()
    assert "EXAMPLE" not in record.getMessage()


def test_a_bucket_lets_a_burst_pass_and_then_one_in_each_interval() -> None:
    clock = FakeClock()
    limit = RateLimit(2.0, 3, clock)
    assert [limit.take() for _ in range(4)] == [True, True, True, False]
    clock.advance(1.9)
    assert not limit.take()
    clock.advance(0.2)
    assert [limit.take(), limit.take()] == [True, False]
    clock.advance(1e6)
    assert [limit.take() for _ in range(4)] == [True, True, True, False]
