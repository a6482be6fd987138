"""Certificates for tests: an authority that nobody knows, and what it has signed."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("Authority of a test")
        self._serial = 1000
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        made = self._builder(self._name, self._key).add_extension(constraints, critical=True)
        self.path = folder / "authority.pem"
        self.path.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def certify(self, name: str, *, host: str = "127.0.0.1") -> tuple[Path, Path, int]:
        """The certificate and its key as files of this name, written anew, and the serial number to know it by."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName("peik.test"), x509.IPAddress(ipaddress.ip_address(host))])
        made = self._builder(_name("peik.test"), key).add_extension(names, critical=False)
        cert, secret = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        cert.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return cert, secret, self._serial

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        self._serial += 1
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(self._serial)
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=2))
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
