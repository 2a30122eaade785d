"""TLS 1.3, and the channel binding of RFC 9266 that logins need.

The ssl module of Python does not export keying material. It writes the exporter's secret to a key
log, and RFC 8446, 7.5, says what follows from that secret. The log is a file in memory, of one
handshake alone, and is gone behind it.
"""

import contextlib
import hashlib
import hmac
import os
import ssl
import struct
import tempfile
from typing import Iterator, Optional


class Tls:
    """How to reach a server through TLS.

    `ca`: a file with the certificates to trust (PEM); None takes those of the system.
    `server_name`: the name in the server's certificate, if not the host of its address.
    `certificate` and `key`: files, for servers that ask for a certificate.
    """

    def __init__(self, ca: Optional[str] = None, server_name: Optional[str] = None,
                 certificate: Optional[str] = None, key: Optional[str] = None):
        self.ca = ca
        self.server_name = server_name
        self.certificate = certificate
        self.key = key
        self._plain: Optional[ssl.SSLContext] = None

    def context(self) -> ssl.SSLContext:
        """A context of its own."""
        context = ssl.create_default_context(cafile=self.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.keylog_filename = None
        if self.certificate:
            context.load_cert_chain(self.certificate, self.key)
        return context

    def shared(self) -> ssl.SSLContext:
        """The context of connections that need no binding."""
        if self._plain is None:
            self._plain = self.context()
        return self._plain


class Binding:
    """Takes the binding of one handshake: `context` for it, then `read` of what it made."""

    def __init__(self, tls: Tls, context: ssl.SSLContext, path: str):
        self.context = context
        self._path = path

    def read(self, connection) -> bytes:
        """The 32 bytes, when the handshake of `connection` (with `cipher()`) is over."""
        self.context.keylog_filename = None
        with open(self._path, "rb") as log:
            for line in log:
                words = line.split()
                if len(words) == 3 and words[0] == b"EXPORTER_SECRET":
                    secret = bytes.fromhex(words[2].decode())
                    return exported(secret, connection.cipher()[0])
        raise ssl.SSLError("this build of OpenSSL tells no exporter secret, which logins need")


@contextlib.contextmanager
def binding_of(tls: Tls) -> Iterator[Binding]:
    """A context for one handshake, whose key log lies in memory where the system has such files."""
    context = tls.context()
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        log = os.memfd_create("keys")
        path = f"/proc/self/fd/{log}"
    else:
        log, path = tempfile.mkstemp()
    try:
        context.keylog_filename = path
        yield Binding(tls, context, path)
    finally:
        context.keylog_filename = None
        os.close(log)
        if not path.startswith("/proc/"):
            os.unlink(path)


def exported(secret: bytes, cipher: str) -> bytes:
    """The 32 bytes that RFC 9266 binds to, from the exporter's secret of a connection."""
    hashing = hashlib.sha384 if cipher.endswith("SHA384") else hashlib.sha256
    empty = hashing(b"").digest()
    derived = _expand(hashing, secret, b"EXPORTER-Channel-Binding", empty, hashing().digest_size)
    return _expand(hashing, derived, b"exporter", empty, 32)


def _expand(hashing, secret: bytes, label: bytes, context: bytes, length: int) -> bytes:
    """HKDF-Expand-Label of RFC 8446; one round gives as much as is needed here."""
    label = b"tls13 " + label
    info = struct.pack(">HB", length, len(label)) + label + bytes([len(context)]) + context
    return hmac.new(secret, info + b"\x01", hashing).digest()[:length]
