"""Certificates for tests of TLS: an authority of the test's own, and what it vouches for."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

NOW = datetime.now(timezone.utc).replace(microsecond=0)


class Pair:
    """A certificate and its key."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.certificate = certificate
        self.key = key
        self.certificate_pem = certificate.public_bytes(serialization.Encoding.PEM)
        self.key_pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        self.der = certificate.public_bytes(serialization.Encoding.DER)

    def write(self, folder: Path, name: str = "tls") -> tuple[Path, Path]:
        """Files `tls.crt` and `tls.key` as a Secret of Kubernetes has them."""
        folder.mkdir(parents=True, exist_ok=True)
        files = folder / f"{name}.crt", folder / f"{name}.key"
        files[0].write_bytes(self.certificate_pem)
        files[1].write_bytes(self.key_pem)
        files[1].chmod(0o600)
        return files


class Authority:
    """Signs certificates."""

    def __init__(self, name: str = "Test authority") -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        self._own = Pair(_signed(name, key, name, key, (), is_authority=True), key)
        self._name = name

    @property
    def pem(self) -> bytes:
        """What clients and servers trust."""
        return self._own.certificate_pem

    def pair(
        self, name: str = "gpu-node-17", names: Sequence[str] = ("localhost", "127.0.0.1"), days: float = 30
    ) -> Pair:
        """A certificate for so long, with these alternative names."""
        key = ec.generate_private_key(ec.SECP256R1())
        return Pair(_signed(name, key, self._name, self._own.key, names, days=days), key)

    def client(self, own: Path | None = None) -> ssl.SSLContext:
        """What a client that trusts this authority connects with; `own`: a folder with its certificate."""
        context = ssl.create_default_context(cadata=self.pem.decode())
        if own is not None:
            context.load_cert_chain(own / "tls.crt", own / "tls.key")
        return context


def _signed(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    names: Sequence[str],
    *,
    days: float = 30,
    is_authority: bool = False,
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(_called(name))
        .issuer_name(_called(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(days=365))
        .not_valid_after(NOW + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )
    if is_authority:
        builder = builder.add_extension(
            x509.KeyUsage(
                digital_signature=False,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_alternative, names))), False)
    return builder.sign(issuer_key, hashes.SHA256())


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    if "@" in name:
        return x509.RFC822Name(name)
    return x509.UniformResourceIdentifier(name) if "://" in name else x509.DNSName(name)
