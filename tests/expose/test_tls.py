"""TLS, users and headers of a web configuration file, with real handshakes on the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import psutil
import pytest
from cryptography import x509

from clusterwatt.clock import SystemClock
from clusterwatt.config.model import Http
from clusterwatt.config.problems import ConfigError
from clusterwatt.expose import tls, web_file
from clusterwatt.expose.web_file import WebFile
from clusterwatt.readings.agent import WebFileState
from clusterwatt.readings.gpu import GpuUse
from clusterwatt.readings.network import Network
from tests.expose.certificates import NOW, Authority, Pair
from tests.expose.sites import RunningSite, running, snapshot
from tests.expose.test_auth import PASSWORD, basic, hashed
from tests.expose.test_gate import REQUEST, TASKS_CAP, closed, slow_clients, still_open

USE = GpuUse("0", "GPU-a", 0.5)
LOOK_S = 0.05
TLS = "tls_server_config:\n  cert_file: {0}/tls.crt\n  key_file: {0}/tls.key\n"
CLIENTS = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: clients.crt\n"
USERS = f"basic_auth_users:\n  prometheus: {hashed(PASSWORD)}\n"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def written(folder: Path, text: str) -> WebFile:
    (folder / "web.yml").write_text(text)
    return WebFile(str(folder / "web.yml"), SystemClock(), LOOK_S)


@contextlib.asynccontextmanager
async def secured(folder: Path, text: str, http: Http | None = None) -> AsyncIterator[RunningSite]:
    async with running(web_file=written(folder, text), http=http) as site:
        site.site.publish(snapshot(1, USE))
        yield site


async def shown(site: RunningSite, authority: Authority) -> bytes:
    """The certificate that a new handshake shows."""
    _, writer = await site.connect(authority.client())
    der: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()
    return der


async def past_the_handshake(
    client: socket.socket, trust: ssl.SSLContext, said: bytes
) -> tuple[ssl.SSLObject, ssl.MemoryBIO]:
    """Shake hands and say something; without asyncio's TLS, which takes much memory."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    shaking = trust.wrap_bio(incoming, outgoing, server_hostname="localhost")
    loop = asyncio.get_running_loop()
    while True:
        try:
            shaking.do_handshake()
            shaking.write(said)
            await loop.sock_sendall(client, outgoing.read())
        except ssl.SSLWantReadError:
            await loop.sock_sendall(client, outgoing.read())
            received = await asyncio.wait_for(loop.sock_recv(client, 16_384), 5)
            if not received:
                raise ConnectionResetError("closed during the handshake") from None
            incoming.write(received)
        else:
            return shaking, incoming


async def turned_away(site: RunningSite, trust: ssl.SSLContext) -> bool:
    """Whether a client gets no answer: in TLS 1.3 it learns so only after its own half of the handshake."""
    (client,) = await slow_clients(site, 1)
    try:
        shaken, incoming = await past_the_handshake(client, trust, REQUEST)
        while received := await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 16_384), 5):
            incoming.write(received)
            with contextlib.suppress(ssl.SSLWantReadError):
                return not shaken.read(16_384)
    except (ssl.SSLError, ConnectionError):
        return True
    finally:
        client.close()
    return True


def state(site: RunningSite) -> WebFileState:
    (found,) = [reading for reading in site.site.readings() if isinstance(reading, WebFileState)]
    return found


async def until_true(ask: object, within_s: float = 5.0) -> None:
    end_s = time.monotonic() + within_s
    assert callable(ask)
    while not (await found if asyncio.iscoroutine(found := ask()) else found):
        assert time.monotonic() < end_s
        await asyncio.sleep(0.02)


def mounted(folder: Path, pair: Pair, version: str) -> None:
    """Put a pair in force as the kubelet does with a Secret: one symbolic link, swapped."""
    pair.write(folder / version)
    link = folder / "..data"
    (folder / "..data_tmp").symlink_to(version)
    (folder / "..data_tmp").replace(link)
    for name in ("tls.crt", "tls.key"):
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(f"..data/{name}")


def test_g36_a_swapped_certificate_is_served_and_open_connections_live_on(
    authority: Authority, tmp_path: Path
) -> None:
    first, second = authority.pair(days=1), authority.pair(days=90)

    async def test() -> None:
        mounted(tmp_path, first, "..1")
        async with secured(tmp_path, TLS.format(tmp_path)) as site:
            assert await shown(site, authority) == first.der
            assert state(site) == WebFileState(first.certificate.not_valid_after_utc.timestamp(), 0.0)
            reader, writer = await site.connect(authority.client())
            writer.write(REQUEST)
            await reader.readuntil(b"ok\n")
            mounted(tmp_path, second, "..2")

            async def renewed() -> bool:
                return await shown(site, authority) == second.der

            await until_true(renewed)
            assert state(site) == WebFileState(second.certificate.not_valid_after_utc.timestamp(), 0.0)
            writer.write(REQUEST)
            await reader.readuntil(b"ok\n")
            writer.close()

    asyncio.run(test())


def test_g36_a_pair_that_does_not_match_leaves_the_old_one_in_force_and_counts(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = authority.pair(), authority.pair()

    async def test() -> None:
        certificate, key = first.write(tmp_path)
        async with secured(tmp_path, TLS.format(tmp_path)) as site:
            certificate.write_bytes(second.certificate_pem)
            await until_true(lambda: state(site).reload_errors >= 2)
            assert await shown(site, authority) == first.der
            key.write_bytes(second.key_pem)

            async def renewed() -> bool:
                return await shown(site, authority) == second.der

            await until_true(renewed)
            errors = state(site).reload_errors
            await asyncio.sleep(3 * LOOK_S)
            assert state(site).reload_errors == errors

    asyncio.run(test())
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "web.yml:3:3: tls_server_config.key_file:" in said
    assert "tls.key: not the key of" in said
    assert "stays in force" in said


def test_a_looking_interval_of_the_agent_is_well_within_a_minute() -> None:
    assert web_file.LOOK_EVERY_S <= 10


def test_the_web_file_itself_is_read_again_and_a_broken_one_opens_no_door(
    authority: Authority, tmp_path: Path
) -> None:
    authority.pair().write(tmp_path)
    text = TLS.format(tmp_path) + USERS

    async def test() -> None:
        async with secured(tmp_path, text) as site:
            trust = authority.client()
            right = {"Authorization": basic("prometheus", PASSWORD)}
            other = {"Authorization": basic("prometheus", "new one")}
            assert (await site.ask("/metrics", right, tls=trust)).status == 200
            for broken in ("", "basic_auth_users: {}", text + "more: 1", text.replace("$2b$04", "$2b$99")):
                before = state(site).reload_errors
                (tmp_path / "web.yml").write_text(broken)
                await until_true(lambda before=before: state(site).reload_errors > before)
                assert (await site.ask("/metrics", tls=trust)).status == 401
            (tmp_path / "web.yml").unlink()
            before = state(site).reload_errors
            await until_true(lambda: state(site).reload_errors > before)
            assert (await site.ask("/metrics", right, tls=trust)).status == 200
            new = TLS.format(tmp_path) + f"basic_auth_users:\n  prometheus: {hashed('new one')}\n"
            (tmp_path / "web.yml").write_text(new)

            async def changed() -> bool:
                return (await site.ask("/metrics", other, tls=trust)).status == 200

            await until_true(changed)
            assert (await site.ask("/metrics", right, tls=trust)).status == 401

    asyncio.run(test())


def test_a_file_that_is_half_written_opens_no_door(tmp_path: Path) -> None:
    async def test() -> None:
        file = written(tmp_path, USERS)
        try:
            (tmp_path / "web.yml").write_text("rate_limit:\n  burst: 3\n")
            await file.look()
            assert file.passwords is not None
            (tmp_path / "web.yml").write_text("rate_limit:\n  burst: 3\n" + USERS + "  other: " + hashed("b"))
            await file.look()
            await file.look()
            assert file.passwords is not None
            assert set(file.passwords.users) == {"prometheus", "other"}
            (tmp_path / "web.yml").write_text("{}")
            await file.look()
            assert file.passwords is not None
            await file.look()
            assert file.passwords is None
        finally:
            await file.stop()

    asyncio.run(test())


def test_a_page_of_megabytes_and_many_requests_on_one_connection(
    authority: Authority, tmp_path: Path
) -> None:
    authority.pair().write(tmp_path)

    async def test() -> None:
        async with secured(tmp_path, TLS.format(tmp_path)) as site:
            site.site.publish(
                snapshot(2, *(Network(f"e{n}" * 300, "physical", receive_bytes=1.0) for n in range(4000)))
            )
            connector = aiohttp.TCPConnector(limit=1, ssl=authority.client())
            async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as client:
                for headers in ({}, {"Accept-Encoding": "gzip"}, {}):
                    async with client.get(f"{site.address.url}/metrics", headers=headers) as answer:
                        assert answer.status == 200
                        assert len(await answer.read()) == int(answer.headers["Content-Length"])
                async with client.post(f"{site.address.url}/metrics", data=b"x" * 100_000) as answer:
                    assert answer.status == 405

    asyncio.run(test())


def test_pipelined_requests_and_a_goodbye(authority: Authority, tmp_path: Path) -> None:
    authority.pair().write(tmp_path)

    async def test() -> None:
        async with secured(tmp_path, TLS.format(tmp_path)) as site:
            reader, writer = await site.connect(authority.client())
            writer.write(REQUEST + REQUEST + REQUEST[:20])
            for _ in range(2):
                await reader.readuntil(b"ok\n")
            writer.write(REQUEST[20:].replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            assert (await closed(reader)).endswith(b"ok\n")  # and no ragged end, which ssl would tell of
            writer.close()

    asyncio.run(test())


@pytest.mark.parametrize(
    ("sans", "name", "welcome"),
    [
        ("", "prometheus.example.org", True),
        ("prometheus.example.org", "prometheus.example.org", True),
        ("prometheus.example.org", "other.example.org", False),
        ("192.0.2.5", "192.0.2.5", True),
        ("'2001:db8::5'", "2001:db8::5", True),
        ("spiffe://example.org/p", "spiffe://example.org/p", True),
        ("ops@example.org", "ops@example.org", True),
        ("ops@example.org", "", False),
    ],
)
def test_a_client_shows_a_certificate_with_a_name_that_is_allowed(
    sans: str, name: str, welcome: bool, authority: Authority, tmp_path: Path
) -> None:
    authority.pair().write(tmp_path)
    clients = Authority("Clients")
    (tmp_path / "clients.crt").write_bytes(clients.pem)
    clients.pair("prometheus", [name] if name else []).write(tmp_path / "client")
    text = TLS.format(tmp_path) + CLIENTS + (f"  client_allowed_sans: [{sans}]\n" if sans else "")

    async def test() -> None:
        async with secured(tmp_path, text) as site:
            known = authority.client(tmp_path / "client")
            if welcome:
                assert (await site.ask("/metrics", tls=known)).status == 200
            else:
                assert await turned_away(site, known)

    asyncio.run(test())


AES = "[TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]"
OTHER_WAY_ROUND = {"ciphers": "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384"}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_without_a_certificate_or_with_another_authoritys_nobody_gets_in(
    version: ssl.TLSVersion, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority.pair().write(tmp_path)
    (tmp_path / "clients.crt").write_bytes(Authority("Clients").pem)
    authority.pair("not from there").write(tmp_path / "client")

    async def test() -> None:
        async with secured(tmp_path, TLS.format(tmp_path) + CLIENTS) as site:
            for client in (authority.client(), authority.client(tmp_path / "client")):
                client.maximum_version = version
                assert await turned_away(site, client)
            assert site.site._gate is not None
            assert not site.site._gate._served

    asyncio.run(test())
    said = [record.getMessage() for record in caplog.records]
    assert any("PEER_DID_NOT_RETURN_A_CERTIFICATE" in line for line in said)
    assert any("127.0.0.1" in line for line in said)


def test_a_certificate_that_may_be_shown_need_not(authority: Authority, tmp_path: Path) -> None:
    authority.pair().write(tmp_path)
    (tmp_path / "clients.crt").write_bytes(Authority("Clients").pem)
    text = TLS.format(tmp_path) + CLIENTS.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven")

    async def test() -> None:
        async with secured(tmp_path, text) as site:
            assert (await site.ask("/metrics", tls=authority.client())).status == 200

    asyncio.run(test())


@pytest.mark.parametrize(
    ("settings", "client_has", "agreed"),
    [
        ("", {}, ("TLSv1.3", None)),
        ("", {"maximum_version": ssl.TLSVersion.TLSv1_2}, ("TLSv1.2", None)),
        ("  max_version: TLS12\n", {}, ("TLSv1.2", None)),
        ("  min_version: TLS13\n", {"maximum_version": ssl.TLSVersion.TLSv1_2}, None),
        (
            "  max_version: TLS12\n  cipher_suites: [TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]\n",
            {},
            ("TLSv1.2", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ),
        (
            f"  max_version: TLS12\n  cipher_suites: {AES}\n",
            OTHER_WAY_ROUND,
            ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ),
        (
            f"  max_version: TLS12\n  prefer_server_cipher_suites: false\n  cipher_suites: {AES}\n",
            OTHER_WAY_ROUND,
            ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ),
        ("  curve_preferences: [CurveP384]\n", {"curve": "prime256v1"}, None),
        ("  curve_preferences: [CurveP384]\n", {"curve": "secp384r1"}, ("TLSv1.3", None)),
    ],
)
def test_versions_suites_and_curves_are_as_they_are_set(
    settings: str,
    client_has: dict[str, object],
    agreed: tuple[str, str | None] | None,
    authority: Authority,
    tmp_path: Path,
) -> None:
    authority.pair().write(tmp_path)
    client = authority.client()
    client.set_alpn_protocols(["h2", "http/1.1"])
    if "maximum_version" in client_has:
        client.maximum_version = ssl.TLSVersion.TLSv1_2
    if "ciphers" in client_has:
        client.set_ciphers(str(client_has["ciphers"]))
    if "curve" in client_has:
        client.set_ecdh_curve(str(client_has["curve"]))

    async def test() -> None:
        async with secured(tmp_path, TLS.format(tmp_path) + settings) as site:
            if agreed is None:
                assert await turned_away(site, client)
                return
            assert not await turned_away(site, client)
            _, writer = await site.connect(client)
            version, suite = agreed
            assert writer.get_extra_info("ssl_object").version() == version
            assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
            if suite is not None:
                assert writer.get_extra_info("cipher")[0] == suite
            writer.close()
            await writer.wait_closed()

    asyncio.run(test())


def test_who_sends_more_than_is_read_can_read_the_answer(authority: Authority, tmp_path: Path) -> None:
    authority.pair().write(tmp_path)
    head = b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 2_000_000 + b"\r\n\r\n"

    def talk(address: tuple[str, int]) -> bytes:
        with (
            socket.create_connection(address, timeout=20) as raw,
            authority.client().wrap_socket(raw, server_hostname=address[0]) as client,
        ):
            client.sendall(head)
            return client.recv(4096)

    async def test() -> None:
        async with secured(tmp_path, TLS.format(tmp_path)) as site:
            answer = await asyncio.to_thread(talk, (site.address.host, site.address.port))
            assert answer.startswith(b"HTTP/1.1 431 ")

    asyncio.run(test())


def test_who_speaks_plain_http_or_nonsense_to_tls_is_told_or_let_go_of(
    authority: Authority, tmp_path: Path
) -> None:
    authority.pair().write(tmp_path)

    async def test() -> None:
        async with secured(tmp_path, TLS.format(tmp_path)) as site:
            assert b"https://" in await site.send(REQUEST)
            answer = await site.send(os.urandom(4000).replace(b"\x16", b""))
            assert b"https" not in answer
            assert (await site.ask("/healthz", tls=authority.client())).status == 200

    asyncio.run(test())


@pytest.mark.parametrize(
    ("users", "path", "headers", "status", "body"),
    [
        (True, "/metrics", {}, 401, b"unauthorized\n"),
        (True, "/dcgm/metrics", {}, 401, b"unauthorized\n"),
        (True, "/node/metrics", {}, 401, b"unauthorized\n"),
        (True, "/", {}, 401, b"unauthorized\n"),
        (True, "/page.js", {}, 401, b"unauthorized\n"),
        (True, "/api/v1/node", {}, 401, b"unauthorized\n"),
        (True, "/nothing", {}, 401, b"unauthorized\n"),
        (True, "/healthz/../metrics", {}, 401, b"unauthorized\n"),
        (True, "/healthz/", {}, 401, b"unauthorized\n"),
        (True, "/metrics?x=/healthz", {}, 401, b"unauthorized\n"),
        (True, "/metrics", {"Authorization": basic("prometheus", "wrong")}, 401, b"unauthorized\n"),
        (True, "/metrics", {"Authorization": basic("nobody", PASSWORD)}, 401, b"unauthorized\n"),
        (True, "/metrics", {"Authorization": basic("prometheus", PASSWORD)}, 200, b"GPU-a"),
        (True, "/nothing", {"Authorization": basic("prometheus", PASSWORD)}, 404, b"not found\n"),
        (True, "/healthz", {}, 200, b"ok\n"),
        (True, "/readyz", {}, 503, b"service unavailable\n"),
        (False, "/metrics", {}, 200, b"GPU-a"),
        (False, "/readyz", {}, 503, b"7 of 8 GPUs are visible\n"),
    ],
)
def test_nothing_but_the_probes_is_told_to_who_has_no_password(
    users: bool, path: str, headers: dict[str, str], status: int, body: bytes, tmp_path: Path
) -> None:
    async def test() -> None:
        async with secured(tmp_path, USERS if users else "basic_auth_users: {}") as site:
            await site.site.page()
            site.told.ready = (False, "7 of 8 GPUs are visible")
            for method in ("GET", "HEAD"):
                answer = await site.ask(path, headers, method)
                assert answer.status == status
                assert answer.headers["Server"] == "clusterwatt"
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert ("WWW-Authenticate" in answer.headers) == (status == 401)
                if method == "GET":
                    assert body in answer.body
            for method in ("POST", "DELETE", "OPTIONS", "PUT"):
                assert (await site.ask(path, method=method)).status == (401 if users else 405)

    asyncio.run(test())


def test_reports_of_training_are_behind_the_password_too(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path, USERS) as site:
            assert (await site.ask("/api/v1/training", method="POST")).status == 401
            right = {"Authorization": basic("prometheus", PASSWORD)}
            assert (await site.ask("/api/v1/training", right, "POST")).status == 404  # not switched on

    asyncio.run(test())


def test_headers_of_the_file_stand_on_every_answer(tmp_path: Path) -> None:
    text = (
        "http_server_config:\n  headers:\n    Strict-Transport-Security: max-age=600\n"
        "    X-Frame-Options: sameorigin\n    Content-Security-Policy: ''\n"
    )

    async def test() -> None:
        async with secured(tmp_path, text) as site:
            for path in ("/", "/metrics", "/nothing", "/healthz"):
                headers = (await site.ask(path)).headers
                assert headers["Strict-Transport-Security"] == "max-age=600"
                assert headers["X-Frame-Options"] == "sameorigin"
                assert "default-src 'none'" in headers["Content-Security-Policy"]

    asyncio.run(test())


def test_the_rate_of_requests_is_limited_but_not_that_of_probes(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path, "rate_limit: {interval: 1h, burst: 2}") as site:
            statuses = [(await site.ask("/metrics")).status for _ in range(4)]
            assert statuses == [200, 200, 429, 429]
            assert (await site.ask("/metrics")).headers["Retry-After"] == "1"
            assert (await site.ask("/healthz")).status == 200

    asyncio.run(test())


def failed(folder: Path, text: str) -> str:
    (folder / "web.yml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        web_file.check(str(folder / "web.yml"))
    (problem,) = raised.value.problems
    return str(problem).replace(f"{folder}/", "")


def test_files_that_cannot_be_served_are_one_line_at_the_start(authority: Authority, tmp_path: Path) -> None:
    text = TLS.format(".")
    assert failed(tmp_path, text) == (
        "web.yml:2:3: tls_server_config.cert_file: tls.crt: cannot be read: No such file or directory"
    )
    certificate, key = authority.pair().write(tmp_path)
    key.write_text("EXAMPLE-NOT-REAL")
    assert failed(tmp_path, text).startswith(
        "web.yml:3:3: tls_server_config.key_file: tls.key: no key in PEM form"
    )
    certificate.write_text("-----BEGIN CERTIFICATE-----\nRVhBTVBMRQ==\n-----END CERTIFICATE-----\n")
    assert failed(tmp_path, text) == (
        "web.yml:2:3: tls_server_config.cert_file: tls.crt: no certificate in PEM form"
    )
    authority.pair().write(tmp_path)
    (tmp_path / "clients.crt").write_text("nothing")
    assert failed(tmp_path, text + CLIENTS) == (
        "web.yml:5:3: tls_server_config.client_ca_file: clients.crt: no certificates in PEM form"
    )
    web_file.check("")


def test_an_encrypted_key_is_refused_and_nobody_is_asked(authority: Authority, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    pair = authority.pair()
    _, key = pair.write(tmp_path)
    key.write_bytes(
        pair.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"EXAMPLE2"),
        )
    )
    assert "write it without a password" in failed(tmp_path, TLS.format("."))


def test_without_the_extra_users_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "bcrypt", None)
    assert failed(tmp_path, USERS) == (
        "web.yml:1:1: basic_auth_users: needs the package bcrypt: pip install 'clusterwatt[auth]'"
    )


@pytest.mark.parametrize("days", [-1, 1, 10_000, 20_000])  # before and after 2050 dates are written otherwise
def test_the_end_of_a_certificate_is_read_from_it(days: float, authority: Authority, tmp_path: Path) -> None:
    pair = authority.pair(days=days)
    certificate, _ = pair.write(tmp_path)
    certificate.write_bytes(b"Bag Attributes\n" + pair.certificate_pem + authority.pem)
    end = tls.expiry_timestamp_seconds(str(certificate))
    assert end == x509.load_pem_x509_certificate(pair.certificate_pem).not_valid_after_utc.timestamp()
    assert end == pytest.approx(NOW.timestamp() + days * 86_400)


HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)


@pytest.mark.parametrize("sends", ["nothing", "bytes of a hello", "a handshake and bytes of a request"])
def test_g27_slow_clients_block_nobody_during_the_handshake(
    sends: str, authority: Authority, tmp_path: Path
) -> None:
    """200 connections that never get through the handshake, or past it, while others scrape."""
    authority.pair().write(tmp_path)
    head_s = 1.5

    async def test() -> None:
        http = Http(listen="127.0.0.1:0", header_timeout_seconds=head_s)
        async with secured(tmp_path, TLS.format(tmp_path), http) as site:
            trust = authority.client()
            assert (await site.ask("/metrics", tls=trust)).status == 200
            gc.collect()
            process = psutil.Process()
            memory, threads = process.memory_info().rss, threading.active_count()
            slow: list[socket.socket] = []
            for _ in range(200):
                slow += await slow_clients(site, 1)
                if sends == "a handshake and bytes of a request":
                    await past_the_handshake(slow[-1], trust, REQUEST[:9])
            opened_s = time.monotonic()
            most_tasks = 0
            sent = 0
            while slow and sent < 100:
                for client in tuple(slow):
                    if not still_open(client, HELLO[sent : sent + 1] if sends == "bytes of a hello" else b""):
                        slow.remove(client)
                sent += 1
                started_s = time.monotonic()
                assert (await site.ask("/metrics", tls=trust)).status == 200
                assert time.monotonic() - started_s < 1.0
                most_tasks = max(most_tasks, len(asyncio.all_tasks()))
                if time.monotonic() - opened_s < head_s / 2:
                    assert process.memory_info().rss - memory < 20 * 2**20  # the clients' part in it
                await asyncio.sleep(0.05)
            assert not slow
            assert time.monotonic() - opened_s < 3 * head_s
            assert most_tasks <= TASKS_CAP
            assert threading.active_count() <= threads

    asyncio.run(test())


def test_a_bug_in_looking_for_changes_is_not_silent(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority.pair().write(tmp_path)

    async def test() -> None:
        async with secured(tmp_path, TLS.format(tmp_path)) as site:
            monkeypatch.setattr(web_file, "_changed", lambda *_: 1 / 0)
            await until_true(lambda: "changes are not seen any more" in caplog.text)
            assert (await site.ask("/healthz", tls=authority.client())).status == 200

    asyncio.run(test())
