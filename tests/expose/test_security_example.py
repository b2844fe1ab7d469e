"""The web file of deploy/ and what docs/SECURITY.md says of it are true."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import yaml

from clusterwatt.clock import SystemClock
from clusterwatt.config import web
from clusterwatt.config.load import load
from clusterwatt.config.model import Http
from clusterwatt.expose.auth import MAX_CHECKS_OF_CLIENT
from clusterwatt.expose.gate import GateLimits
from clusterwatt.expose.web_file import LOOK_EVERY_S, WebFile
from clusterwatt.readings.gpu import GpuUse
from tests.expose.certificates import Authority
from tests.expose.sites import running, snapshot
from tests.expose.test_auth import basic
from tests.expose.test_tls import turned_away
from tests.machines import REPOSITORY

EXAMPLE = REPOSITORY / "deploy" / "web-config.yaml"
DOCUMENT = (REPOSITORY / "docs" / "SECURITY.md").read_text(encoding="utf-8")


def test_the_example_is_served_and_lets_in_nobody_as_it_stands(tmp_path: Path) -> None:
    authority, clients = Authority(), Authority("Clients")
    authority.pair().write(tmp_path)
    (tmp_path / "clients.crt").write_bytes(clients.pem)
    clients.pair("prometheus").write(tmp_path / "client")
    shutil.copy(EXAMPLE, tmp_path)

    async def test() -> None:
        web_file = WebFile(str(tmp_path / EXAMPLE.name), SystemClock())
        async with running(web_file=web_file) as site:
            site.site.publish(snapshot(1, GpuUse("0", "GPU-a", 0.5)))
            assert await turned_away(site, authority.client())
            known = authority.client(tmp_path / "client")
            for password in ("", "prometheus", "password", "change me"):
                headers = {"Authorization": basic("prometheus", password)}
                assert (await site.ask("/metrics", headers, tls=known)).status == 401

    asyncio.run(test())


def test_what_is_commented_out_in_the_example_is_right_too(tmp_path: Path) -> None:
    shown = re.sub(
        r"^( *)# (?=client_|min_|http_server| +headers:| +Strict|rate_limit| +interval| +burst)",
        r"\1",
        EXAMPLE.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    (tmp_path / "web.yml").write_text(shown)
    found = web.read(tmp_path / "web.yml").content
    assert found.rate_limit.burst == 20
    assert found.http_server_config.headers
    assert found.tls_server_config is not None
    assert found.tls_server_config.client_allowed_sans == ("prometheus.example.org",)


def test_the_settings_of_the_document_can_be_loaded(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n# clusterwatt.yaml\n(.*?)```", DOCUMENT, re.DOTALL)
    (tmp_path / "clusterwatt.yaml").write_text(blocks[0])
    http = load(tmp_path / "clusterwatt.yaml", {}, []).config.http
    assert http.web_config_file.endswith("web-config.yaml")
    (scrape,) = re.findall(r"```yaml\n# prometheus.yml\n(.*?)```", DOCUMENT, re.DOTALL)
    assert yaml.safe_load(scrape)["scrape_configs"][0]["scheme"] == "https"


def test_the_numbers_of_the_document_are_those_of_the_code() -> None:
    limits, http = GateLimits(), Http()
    said = " ".join(DOCUMENT.split())
    assert (LOOK_EVERY_S, http.header_timeout_seconds, limits.max_head_bytes) == (5.0, 10.0, 16_384)
    assert f"At {http.max_connections} connections" in said
    assert f"one address has {http.max_connections_per_client} " in said
    assert f"{limits.max_served} are served at a time" in said
    assert f"Answers have {limits.exchange_s:.0f} seconds" in said
    assert MAX_CHECKS_OF_CLIENT == 4
