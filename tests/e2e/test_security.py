"""TLS and users, end to end: Prometheus scrapes with a client certificate, a browser shows the live page."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.browser import tab
from tests.e2e.servers import Server, agent, get, prometheus, query, until
from tests.expose.certificates import Authority
from tests.expose.test_auth import hashed

pytestmark = pytest.mark.e2e

PASSWORD = "EXAMPLE-NOT-REAL"
WITHIN_S = 30.0
GPUS = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of server and client, and the web file."""
    folder = tmp_path_factory.mktemp("tls")
    authority, clients = Authority(), Authority("Clients")
    authority.pair().write(folder)
    clients.pair("prometheus", ["prometheus.example.org"]).write(folder, "client")
    (folder / "ca.crt").write_bytes(authority.pem)
    (folder / "clients.crt").write_bytes(clients.pem)
    (folder / "password").write_text(PASSWORD)
    (folder / "web.yml").write_text(
        "tls_server_config:\n  cert_file: tls.crt\n  key_file: tls.key\n"
        "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: clients.crt\n"
        f"basic_auth_users:\n  prometheus: {hashed(PASSWORD)}\n"
    )
    return folder


@pytest.fixture(scope="module")
def trust(folder: Path) -> ssl.SSLContext:
    """What a test connects with itself."""
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    context.load_cert_chain(folder / "client.crt", folder / "client.key")
    return context


@pytest.fixture(scope="module")
def ours(folder: Path, trust: ssl.SSLContext, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    arguments = ("--simulate", "h100", "--set", f"http.web_config_file={folder / 'web.yml'}")
    with agent(tmp_path_factory.mktemp("agent"), *arguments, tls=trust) as server:
        yield server


def scrape(folder: Path, *, certificate: bool = True, password: bool = True) -> str:
    """Options of a job of Prometheus."""
    lines = ["scheme: https", "tls_config:", f"  ca_file: {folder}/ca.crt"]
    if certificate:
        lines += [f"  cert_file: {folder}/client.crt", f"  key_file: {folder}/client.key"]
    if password:
        lines += ["basic_auth:", "  username: prometheus", f"  password_file: {folder}/password"]
    return "".join(f"    {line}\n" for line in lines)


def test_prometheus_scrapes_with_tls_password_and_client_certificate_and_not_without(
    ours: Server, folder: Path, prometheus_program: Path, tmp_path: Path
) -> None:
    jobs = {
        "good": scrape(folder),
        "without certificate": scrape(folder, certificate=False),
        "without password": scrape(folder, password=False),
    }
    targets = dict.fromkeys(jobs, ours.url)
    with prometheus(prometheus_program, tmp_path, targets, 1, jobs) as store:
        until(lambda: len(query(store, "count_over_time(up[1m]) >= 4", "job")) == 3, WITHIN_S, "four scrapes")
        assert query(store, "min_over_time(up[1m])", "job")["good"] == 1.0
        seen = query(store, "max_over_time(up[1m])", "job")
        assert seen == {"good": 1.0, "without certificate": 0.0, "without password": 0.0}
        assert query(store, "count by (job) (clusterwatt_gpu_up == 1)", "job") == {"good": GPUS}
        (end,) = query(store, "clusterwatt_tls_certificate_expiry_timestamp_seconds - time()").values()
        assert 29 < end / 86_400 < 31
        assert query(store, "clusterwatt_tls_reload_errors_total") == {"": 0.0}
        said = {
            target["labels"]["job"]: target["lastError"]
            for target in json.loads(get(f"{store.url}/api/v1/targets"))["data"]["activeTargets"]
        }
        assert "certificate" in said["without certificate"]
        assert "401" in said["without password"]


@pytest.mark.full
def test_the_live_page_works_behind_a_password_and_tls(
    folder: Path, chromium_program: Path, tmp_path: Path, trust: ssl.SSLContext
) -> None:
    text = (folder / "web.yml").read_text().replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven")
    (folder / "browser.yml").write_text(text)
    arguments = ("--simulate", "h100", "--set", f"http.web_config_file={folder / 'browser.yml'}")

    async def look(server: Server) -> None:
        async with tab(chromium_program, tmp_path) as page:
            await page.send("Security.setIgnoreCertificateErrors", ignore=True)  # Chromium knows no ca.crt
            # With the password in the address, as people keep it in bookmarks.
            await page.send(
                "Page.navigate", url=server.url.replace("://", f"://prometheus:{PASSWORD}@") + "/"
            )
            await page.until("document.querySelectorAll('#gpus tbody tr').length === 8", WITHIN_S)
            await page.ask("window.shownFirst = document.body.innerText; 1")
            await page.until("document.body.innerText !== window.shownFirst", WITHIN_S)
            assert page.errors == []

    with agent(tmp_path, *arguments, tls=trust) as server:
        asyncio.run(look(server))
        assert PASSWORD not in server.log.read_text()
