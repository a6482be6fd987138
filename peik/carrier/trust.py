"""Whose certificates are believed when Peik calls somebody: the system's authorities, and those of PEIK_CA_FILE besides."""

import ssl
from functools import cache
from pathlib import Path

from peik.errors import StartError


def client_context(ca_file: Path | None) -> ssl.SSLContext:
    """Certificates and names are checked, TLS 1.2 or newer is spoken. Raises StartError if the file cannot be used."""
    if ca_file is None:
        return system_context()
    context = _checked()
    try:
        context.load_verify_locations(ca_file)
    except OSError as error:  # ssl.SSLError is one
        why = error.strerror or "there is no certificate in it"
        raise StartError(f"PEIK_CA_FILE={ca_file} cannot be used: {why}. It holds certificates in PEM.") from None
    return context


@cache
def system_context() -> ssl.SSLContext:
    """One for the whole process: to read the system's authorities takes tens of milliseconds. Nobody changes it."""
    return _checked()


def _checked() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def own_context(cert: Path) -> ssl.SSLContext:
    """For calls to our own server on this machine, under whatever name: exactly the certificate in this file is believed."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cert)
    except OSError as error:
        raise StartError(f"PEIK_TLS_CERT={cert} cannot be read: {error.strerror or 'it is no certificate'}.") from None
    return context
