"""The web configuration file: the toolkit's format, and errors that name the place and tell no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterwatt.config import web
from clusterwatt.config.problems import ConfigError
from clusterwatt.config.values import duration_seconds

HASH = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"  # of the toolkit's documentation

# All that the documentation of the toolkit lists and that can be done here.
EVERYTHING = f"""
tls_server_config:
  cert_file: server.crt
  key_file: /etc/tls/server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.crt
  client_allowed_sans: [prometheus.example.org, 10.0.0.5]
  min_version: TLS12
  max_version: TLS13
  cipher_suites:
    - TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
    - TLS_AES_128_GCM_SHA256
  prefer_server_cipher_suites: true
  curve_preferences: [CurveP256]
http_server_config:
  http2: true
  headers:
    Content-Security-Policy: "default-src 'self'"
    X-Frame-Options: deny
    X-Content-Type-Options: nosniff
    X-XSS-Protection: 0
    Strict-Transport-Security: max-age=31536000
basic_auth_users:
  alice: {HASH}
  bob: "{HASH}"
rate_limit:
  interval: "1s"
  burst: 20
"""
PAIR = "tls_server_config:\n  cert_file: a\n  key_file: b\n"


def read(folder: Path, text: str) -> web.Web:
    (folder / "web.yml").write_text(text)
    return web.read(folder / "web.yml").content


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        read(folder, text)
    return [str(problem).replace(f"{folder}/", "") for problem in raised.value.problems]


def test_everything_of_the_documentation_is_understood(tmp_path: Path) -> None:
    found = read(tmp_path, EVERYTHING)
    tls = found.tls_server_config
    assert tls is not None
    assert tls.files == (str(tmp_path / "server.crt"), "/etc/tls/server.key", str(tmp_path / "ca.crt"))
    assert found.basic_auth_users == {"alice": HASH, "bob": HASH}
    assert found.rate_limit.interval_seconds == 1.0
    assert found.http_server_config.headers["X-XSS-Protection"] == "0"


def test_the_defaults_are_those_of_the_documentation(tmp_path: Path) -> None:
    tls = read(tmp_path, PAIR).tls_server_config
    assert tls is not None
    assert (tls.client_auth_type, tls.min_version, tls.max_version) == ("NoClientCert", "TLS12", "TLS13")
    assert tls.prefer_server_cipher_suites
    assert read(tmp_path, "basic_auth_users: {}").tls_server_config is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tls_server_conf: {}", "web.yml:1:1: tls_server_conf: unknown; did you mean tls_server_config?"),
        (PAIR + "  cert_fil: c", "web.yml:4:3: tls_server_config.cert_fil: unknown; did you mean cert_file?"),
        (PAIR + "  key_file: c", "web.yml:4:3: tls_server_config.key_file: given twice: keep one"),
        ("tls_server_config: {cert_file: a}", "web.yml:1:1: tls_server_config.key_file: missing: without it"),
        (PAIR + "  min_version: TLS11", "web.yml:4:3: tls_server_config.min_version: TLS11 is broken"),
        (PAIR + "  max_version: TLS14", 'web.yml:4:3: tls_server_config.max_version: unknown: "TLS14"'),
        (PAIR + "  min_version: TLS13\n  max_version: TLS12", "no version is left"),
        (PAIR + "  client_auth_type: RequireAnyClientCert", "which Python's ssl does not; expected Require"),
        (PAIR + "  client_auth_type: Requir", 'tls_server_config.client_auth_type: unknown: "Requir"'),
        (PAIR + "  client_auth_type: RequireAndVerifyClientCert", "needs client_ca_file"),
        (PAIR + "  client_ca_file: ca", "client_ca_file is set, so expected RequireAndVerifyClientCert"),
        (PAIR + "  client_allowed_sans: [a]", "needs client_auth_type: RequireAndVerifyClientCert"),
        (PAIR + "  curve_preferences: [X25519, CurveP256]", "Python's ssl takes one curve"),
        (PAIR + "  curve_preferences: [P256]", "did you mean CurveP256?"),
        (PAIR + "  cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]", "tls_server_config.cipher_suites[0]: unknown"),
        (PAIR + "  cipher_suites: [TLS_AES_128_GCM_SHA256]", "set min_version: TLS13"),
        ("http_server_config: {headers: {X-Powered-By: me}}", "this header cannot be set; known here: Cont"),
        ("http_server_config: {headers: {X-Frame-Options: all}}", "expected deny or sameorigin"),
        (
            "rate_limit: {interval: 1}",
            "rate_limit.interval: expected a time such as 1s, 250ms or 1m30s, got 1",
        ),
        ("rate_limit: {interval: 1s}", "rate_limit.burst: missing: with 0"),
        ("", "web.yml: the file is empty"),  # half written, perhaps: it must not let everybody in
    ],
)
def test_g43_a_mistake_is_one_line_with_its_place_and_remedy(text: str, said: str, tmp_path: Path) -> None:
    (line,) = problems(tmp_path, text)
    assert said in line


SECRETS = ("EXAMPLE-NOT-REAL", "EXAMPLE2")


@pytest.mark.parametrize(
    "text",
    [
        "basic_auth_users: {alice: EXAMPLE-NOT-REAL}",
        "basic_auth_users: {alice: 'EXAMPLE-NOT-REAL\n\n\n'}",
        "basic_auth_users: {alice: !EXAMPLE-NOT-REAL x}",
        "basic_auth_users: {alice: [EXAMPLE-NOT-REAL]}",
        "basic_auth_users: EXAMPLE-NOT-REAL",
        "basic_auth_users: {alice:EXAMPLE-NOT-REAL}",
        "basic_auth_users:\n  alice: *EXAMPLE-NOT-REAL",
        "basic_auth_users:\n  alice: %EXAMPLE-NOT-REAL",
        "basic_auth_users:\n  alice: EXAMPLE-NOT-REAL: EXAMPLE2",
        "basic_auth_users:\n  alice: !EXAMPLE!NOT x\n",
        f"basic_auth_users: {{alice: {HASH}, 'alice:EXAMPLE-NOT-REAL': {HASH}}}",
        f"basic_auth_users: {{alice: {HASH[:-1]}}}",
        f"basic_auth_users: {{alice: {HASH.replace('$10$', '$31$')}}}",
        "tls_server_config:\n  key: |\n    -----BEGIN PRIVATE KEY-----\n    EXAMPLE-NOT-REAL\n",
        "tls_server_config: {key: EXAMPLE-NOT-REAL, cert_file: a, key_file: b}",
    ],
)
def test_no_message_tells_a_secret(text: str, tmp_path: Path) -> None:
    for line in problems(tmp_path, text):
        assert "web.yml:" in line
        assert not [secret for secret in (*SECRETS, HASH[7:20]) if secret in line], line
        assert "\n" not in line


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("1s", 1), ("250ms", 0.25), ("1m30s", 90), ("1.5h", 5400), (".5s", 0.5)]
)
def test_durations_are_those_of_go(text: str, seconds: float) -> None:
    assert duration_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "1", "-1s", "1 s", "1d", "s", "1e3s"])
def test_what_go_takes_for_no_duration_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="unit"):
        duration_seconds(text)


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    """Of a wrong name, a wrong type, a wrong value, what is missing, and what does not go together."""
    text = (
        "tls_server_config:\n"
        "  cert_fil: web.crt\n"
        "  min_version: TLS14\n"
        "  cipher_suites: [TLS_ECDHE_RSA]\n"
        "http_server_config: {headers: {X-Powered-By: me}}\n"
        "rate_limit: {interval: 1}\n"
        "basic_auth_users: {ann: geheim}\n"
    )
    told = [line.split(": ")[:2] for line in problems(tmp_path, text)]
    assert told == [
        ["web.yml:1:1", "tls_server_config.key_file"],
        ["web.yml:2:3", "tls_server_config.cert_fil"],
        ["web.yml:3:3", "tls_server_config.min_version"],
        ["web.yml:4:19", "tls_server_config.cipher_suites[0]"],
        ["web.yml:5:32", "http_server_config.headers.X-Powered-By"],
        ["web.yml:6:14", "rate_limit.interval"],
        ["web.yml:7:20", "basic_auth_users.ann"],
    ]
