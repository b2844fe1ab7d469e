"""What a web configuration file says of TLS, as Python's ssl takes it; when a certificate ends."""

from __future__ import annotations

import binascii
import re
import ssl
from collections.abc import Sequence
from datetime import datetime, timezone

from clusterwatt import plain_file
from clusterwatt.config.document import MAX_FILE_BYTES
from clusterwatt.config.web import CLIENT_AUTH, CURVES, SUITES, TlsServer

VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----\s+(.+?)\s+-----END CERTIFICATE-----", re.DOTALL)

# Of DER (X.690, 8.1), as far as the head of a certificate needs it (RFC 5280, 4.1).
VERSION, UTC_TIME = 0xA0, 0x17


class TlsFault(Exception):
    """Settings or files that TLS cannot be served with: the key to blame, and one line without secrets."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


def context(tls: TlsServer) -> ssl.SSLContext:
    """A context for new handshakes. Reads files. Raises TlsFault."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = VERSIONS[tls.min_version]
    made.maximum_version = VERSIONS[tls.max_version]
    made.options |= ssl.OP_NO_RENEGOTIATION
    if not tls.prefer_server_cipher_suites:
        made.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    suites = [SUITES[suite] for suite in tls.cipher_suites if suite in SUITES]
    if suites:
        try:
            made.set_ciphers(":".join(suites))
        except ssl.SSLError:
            raise TlsFault("cipher_suites", "the OpenSSL of this machine has none of them") from None
    for curve in tls.curve_preferences:
        try:
            made.set_ecdh_curve(CURVES[curve])
        except (ssl.SSLError, ValueError):
            raise TlsFault("curve_preferences", f"{curve}: not with this Python; take CurveP256") from None
    made.set_alpn_protocols(["http/1.1"])
    _load_pair(made, tls)
    must_show = CLIENT_AUTH[tls.client_auth_type]
    if must_show is not None:
        _load_authority(made, tls.client_ca_file)
        made.verify_mode = ssl.CERT_REQUIRED if must_show else ssl.CERT_OPTIONAL
    return made


def expiry_timestamp_seconds(pem_file: str) -> float:
    """When the first certificate of a file ends, in seconds since the epoch. Raises OSError, ValueError."""
    return _not_after(_first_certificate(_content(pem_file)))


def is_allowed(peer: object, allowed: Sequence[str]) -> bool:
    """Whether a client's certificate, as ssl tells it, has one of the alternative names; all pass without."""
    if not allowed:
        return True
    names = peer.get("subjectAltName", ()) if isinstance(peer, dict) else ()
    return any(_plain(kind, name) in allowed for kind, name in names)


def _load_pair(made: ssl.SSLContext, tls: TlsServer) -> None:
    for key in ("cert_file", "key_file"):
        try:
            content = _content(getattr(tls, key))
            if key == "cert_file":
                _not_after(_first_certificate(content))
        except OSError as error:
            raise TlsFault(key, f"{getattr(tls, key)}: cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise TlsFault(key, f"{tls.cert_file}: {error}") from None
    try:
        made.load_cert_chain(tls.cert_file, tls.key_file, password=_no_password)
    except OSError as error:  # ssl.SSLError is one
        reason = getattr(error, "reason", None) or error.strerror or "unknown"
        if reason == "KEY_VALUES_MISMATCH":
            raise TlsFault("key_file", f"{tls.key_file}: not the key of {tls.cert_file}") from None
        raise TlsFault(
            "key_file", f"{tls.key_file}: no key in PEM form, or one too weak ({reason})"
        ) from None
    except ValueError as error:
        raise TlsFault("key_file", f"{tls.key_file}: {error}") from None


def _load_authority(made: ssl.SSLContext, file: str) -> None:
    try:
        plain_file.check(file)
        made.load_verify_locations(file)
    except ssl.SSLError:
        raise TlsFault("client_ca_file", f"{file}: no certificates in PEM form") from None
    except OSError as error:
        raise TlsFault("client_ca_file", f"{file}: cannot be read: {error.strerror}") from None


def _no_password() -> str:
    """OpenSSL would ask the terminal."""
    raise ValueError("encrypted; a service has nobody to ask: write it without a password")


def _content(file: str) -> bytes:
    return plain_file.content(file, MAX_FILE_BYTES)


def _first_certificate(pem: bytes) -> bytes:
    found = CERTIFICATE.search(pem)
    if found is None:
        raise ValueError("no certificate in PEM form")
    return binascii.a2b_base64(found[1])


def _not_after(certificate: bytes) -> float:
    """The end of validity: Certificate, TBSCertificate, then its fifth field without the version."""
    try:
        _, fields, _ = _element(certificate, 0)
        _, fields, _ = _element(fields, 0)
        kind, _, position = _element(fields, 0)
        if kind == VERSION:
            _, _, position = _element(fields, position)  # the serial number
        for _ in range(2):  # algorithm, issuer
            _, _, position = _element(fields, position)
        _, validity, _ = _element(fields, position)
        _, _, position = _element(validity, 0)
        kind, text, _ = _element(validity, position)
        # Two digits of a year mean 1950 to 2049 (RFC 5280, 4.1.2.5.1).
        digits = text.decode("ascii")
        if kind == UTC_TIME:
            digits = ("19" if digits[:2] >= "50" else "20") + digits
        end = datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc)
    except (IndexError, ValueError):
        raise ValueError("no certificate in PEM form") from None
    return end.timestamp()


def _element(der: bytes, position: int) -> tuple[int, bytes, int]:
    """Tag, content and end of the element at a position. Raises IndexError."""
    tag, length = der[position], der[position + 1]
    position += 2
    if length & 0x80:
        octets = length & 0x7F
        length = int.from_bytes(der[position : position + octets], "big")
        position += octets
    end = position + length
    if end > len(der):
        raise IndexError(end)
    return tag, der[position:end], end


def _plain(kind: str, name: str) -> str:
    """A name as it is written in a list: OpenSSL's form of IPv6 addresses is its own."""
    if kind != "IP Address" or ":" not in name:
        return name
    import ipaddress

    return str(ipaddress.ip_address(name.strip()))
