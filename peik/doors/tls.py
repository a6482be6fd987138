"""The certificate that Peik speaks HTTPS with. A renewed one is taken up while connections go on; a broken one never is."""

import ssl
from collections.abc import Callable
from pathlib import Path

from peik.config import Config
from peik.errors import StartError

LOOK_S = 30.0

_Stamp = tuple[int, int, int, int]  # times and sizes of both files


class Certificate:
    """Raises StartError if there is none that can be used now; later, trouble is told and the old one stays."""

    def __init__(self, cert: Path, key: Path, *, tell: Callable[[str], None] = lambda what: None) -> None:
        self._cert = cert
        self._key = key
        self._tell = tell
        try:
            self._stamp = self._look()
            self.context = self._loaded()
        except OSError as error:  # ssl.SSLError is one
            raise StartError(
                f"PEIK_TLS_CERT={cert} and PEIK_TLS_KEY={key} cannot be used: {_words(error)}. "
                "Both are PEM files that belong together."
            ) from None

    def refresh(self) -> bool:
        """Whether there was another one, and new connections get it from now on."""
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return False
            # A renewal writes two files, one after the other. What does not belong together is tried apart, and tried
            # again when either file has changed.
            self._stamp = stamp
            self._loaded()
            self.context.load_cert_chain(self._cert, self._key, password=_no_password)
        except OSError as error:
            self._tell(f"the renewed certificate cannot be used, and the old one stays: {_words(error)}")
            return False
        return True

    def _look(self) -> _Stamp:
        cert, key = self._cert.stat(), self._key.stat()
        return cert.st_mtime_ns, cert.st_size, key.st_mtime_ns, key.st_size

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(self._cert, self._key, password=_no_password)
        return context


def certificate_of(config: Config, *, tell: Callable[[str], None]) -> Certificate | None:
    """None: plain HTTP. Raises StartError."""
    if config.tls_cert is None and config.tls_key is None:
        return None
    if config.tls_cert is None or config.tls_key is None:
        raise StartError("PEIK_TLS_CERT and PEIK_TLS_KEY belong together: set both, or none for plain HTTP.")
    return Certificate(config.tls_cert, config.tls_key, tell=tell)


def _no_password() -> str:
    """Else OpenSSL would ask for it at a terminal that nobody sits at."""
    return ""


def _words(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is not a certificate and its key").replace("_", " ").lower()
    return f"{error.strerror or error}"
