"""What this machine is called, and which Host headers name it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from clusterwatt.expose.own_names import is_own, own_names
from tests.expose.sites import running, snapshot
from tests.expose.test_auth import PASSWORD, basic
from tests.expose.test_server import USE, in_loop
from tests.expose.test_tls import USERS, secured

NAMES = frozenset({"localhost", "gpu-17", "gpu-17.cluster.example"})


@pytest.mark.parametrize(
    "host",
    [
        "localhost:10777",
        "LOCALHOST",
        "127.0.0.1:10777",
        "192.0.2.7",
        "[::1]:10777",
        "[2001:db8::1]",
        "gpu-17:10777",
        "GPU-17.cluster.example.:10777",
    ],
)
def test_addresses_and_own_names(host: str) -> None:
    assert is_own(host, NAMES)


@pytest.mark.parametrize(
    "host",
    [
        "rebind.example",
        "gpu-17.rebind.example:10777",
        "localhost.rebind.example",
        "127.0.0.1.rebind.example",
        "user@rebind.example",
        "rebind.example/localhost",
        "[::1",
        "",
    ],
)
def test_names_of_others(host: str) -> None:
    assert not is_own(host, NAMES)


def test_a_machine_is_called_by_itself_its_hosts_file_and_its_domains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "GPU-17")
    hosts, resolver = tmp_path / "hosts", tmp_path / "resolv.conf"
    hosts.write_text(
        "127.0.0.1 localhost\n10.0.0.7 gpu-17.cluster.example gpu-17  # of ours\n10.0.0.8 gpu-18 login\n"
    )
    resolver.write_text("nameserver 10.0.0.1\nsearch cluster.example ib.example.\n#search no.example\n")
    assert own_names("node-a", hosts, resolver) == {
        "localhost",
        "gpu-17",
        "node-a",
        "gpu-17.cluster.example",
        "gpu-17.ib.example",
        "node-a.cluster.example",
        "node-a.ib.example",
    }
    missing = tmp_path / "missing"
    assert own_names("", missing, missing) == {"localhost", "gpu-17"}


@in_loop
async def test_a_web_page_that_has_its_name_resolve_to_this_machine_reads_nothing() -> None:
    async with running() as site:
        site.site.publish(snapshot(1, USE))
        await site.ask("/metrics")
        for path in ("/api/v1/node", "/api/v1/%6eode", "/"):
            answer = await site.ask(path, {"Host": "rebind.example:10777"})
            assert answer.status == 403
            assert answer.body.startswith(b"ask by an address or a name of this machine")
        for own in ("localhost", "127.0.0.1", socket.gethostname(), "gpu-node-17:10777"):
            assert (await site.ask("/api/v1/node", {"Host": own})).status == 200
        assert (await site.ask("/metrics", {"Host": "scraped.by.any.name"})).status == 200
        assert (await site.send(b"GET /api/v1/node HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.0 200 ")


def test_where_there_are_users_any_name_will_do(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path, USERS) as site:
            host = {"Host": "monitoring.example"}
            assert (await site.ask("/api/v1/node", host)).status == 401
            right = host | {"Authorization": basic("prometheus", PASSWORD)}
            assert (await site.ask("/api/v1/node", right)).status == 200

    asyncio.run(test())
