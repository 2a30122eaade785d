"""HELLO and the login of a connection, without a socket: net/AUTH.md."""

import base64
import hashlib
import hmac
import os
import re
import struct
from typing import Generator, NamedTuple, Optional

from . import _wire
from .errors import Busy, ProtocolError, Refused, Unfit

NEEDS_NONE, SCRAM, SCRAM_BOUND, CERTIFICATE = 1, 2, 4, 8
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 1_000_000
KEY_PREFIX, KEY_SALT = "penstock_key_", b"penstock machine"
_NAME = re.compile(r"^[A-Za-z0-9_.-]{1,96}(/[A-Za-z0-9_.-]{1,96})?$")


class Identity(NamedTuple):
    """Who logs in: the name of a user, or USER/KEY, and the password or the key.

    `may_wait`: an encrypted connection goes on at a server that has no users yet.
    """

    name: str
    secret: str
    may_wait: bool = False

    def __repr__(self) -> str:
        return f"Identity({self.name!r})"


def greet(name: str, identity: Optional[Identity], is_encrypted: bool,
          binding: Optional[bytes]) -> Generator[bytes, _wire.Frame, _wire.ServerHello]:
    """Yields frames to send, takes the answer to each, and returns the HELLO of an open connection.
    """
    answer = yield _wire.frame(_wire.HELLO, 1, _wire.client_hello(name))
    _expect_ok(answer)
    hello = _wire.ServerHello(answer.body)
    if hello.protocol != 1:
        raise ProtocolError(f"the server speaks version {hello.protocol} of the protocol, not 1")
    needs_none = hello.auth_methods & NEEDS_NONE
    if identity is None:
        if needs_none:
            return hello
        if not hello.auth_methods & CERTIFICATE:
            raise Unfit("the server has users: give an identity")
        answer = yield _auth(2, 2, b"-")
        return _opened(answer)[1]
    if needs_none:
        if identity.may_wait and is_encrypted:
            return hello
        raise Unfit("the server has no users, so it does not prove that it is the one it claims "
                    "to be")
    if not hello.auth_methods & (SCRAM_BOUND if is_encrypted else SCRAM):
        raise Unfit("the server does not bind logins to this connection as the client does")
    login = Scram(identity, binding)
    answer = yield _auth(2, 1, login.first().encode())
    challenge = _message(answer, 1)
    answer = yield _auth(3, 1, login.final(challenge.decode("ascii", "replace")).encode())
    message, hello = _opened(answer)
    login.check(message.decode("ascii", "replace"))
    return hello


def _auth(request_id: int, method: int, message: bytes) -> bytes:
    body = struct.pack("<HHI", method, 0, len(message)) + _wire.padded(message)
    return _wire.frame(_wire.AUTH, request_id, body)


def _expect_ok(answer: _wire.Frame) -> None:
    status = _wire.STATUSES.get(answer.level_or_status)
    if status == "OK":
        return
    text = _wire.text_of(answer.body)
    if status == "BUSY":
        raise Busy(text, status)
    if status == "AUTH":
        wait = answer.deadline_or_retry_ms
        raise Unfit(text + (f" (again in {wait} ms)" if wait else ""), status)
    raise Refused(f"{status}: {text}", status)


def _parts(answer: _wire.Frame, stage: int):
    _expect_ok(answer)
    if len(answer.body) < 8:
        raise ProtocolError("an answer to AUTH is cut off")
    told, _, length = struct.unpack_from("<HHI", answer.body)
    end = 8 + (length + 7 & ~7)
    if told != stage or end > len(answer.body):
        raise ProtocolError("an answer to AUTH is out of order or cut off")
    return answer.body[8 : 8 + length], answer.body[end:]


def _message(answer: _wire.Frame, stage: int) -> bytes:
    return _parts(answer, stage)[0]


def _opened(answer: _wire.Frame):
    message, rest = _parts(answer, 2)
    return message, _wire.ServerHello(rest)


class Scram:
    """The messages of one SCRAM-SHA-256 login. `binding`: the 32 bytes of RFC 9266 under TLS."""

    def __init__(self, identity: Identity, binding: Optional[bytes], nonce: Optional[str] = None):
        if not _NAME.match(identity.name):
            raise Unfit(f"no name of a user: {identity.name!r}")
        self._identity = identity
        self._nonce = nonce or base64.b64encode(os.urandom(24)).decode()
        self._gs2 = "n,," if binding is None else "p=tls-exporter,,"
        self._channel = self._gs2.encode() + (binding or b"")
        self._bare = f"n={identity.name},r={self._nonce}"
        self._signature = b""

    def first(self) -> str:
        """The first message."""
        return self._gs2 + self._bare

    def final(self, challenge: str) -> str:
        """The second message, for the server's challenge."""
        match = re.match(r"^r=([!-+\--~]+),s=([A-Za-z0-9+/=]+),i=(\d{1,7})$", challenge)
        if not match or not match[1].startswith(self._nonce) or match[1] == self._nonce:
            raise Unfit("the server's challenge is not one of this login")
        salt, rounds = base64.b64decode(match[2]), int(match[3])
        is_key = self._identity.secret.startswith(KEY_PREFIX)
        if is_key:
            if salt != KEY_SALT or rounds != 1:
                raise Unfit("the server asks for a key with another salt")
        elif not ITERATIONS_MIN <= rounds <= ITERATIONS_MAX:
            raise Unfit(f"the server asks for {rounds} iterations; {ITERATIONS_MIN} to "
                        f"{ITERATIONS_MAX} are accepted")
        salted = hashlib.pbkdf2_hmac("sha256", self._identity.secret.encode(), salt, rounds)
        channel = base64.b64encode(self._channel).decode()
        without_proof = f"c={channel},r={match[1]}"
        signed = f"{self._bare},{challenge},{without_proof}".encode()
        client_key = _hmac(salted, b"Client Key")
        stored = hashlib.sha256(client_key).digest()
        mask = _hmac(stored, signed)
        proof = bytes(a ^ b for a, b in zip(client_key, mask))
        self._signature = _hmac(_hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}"

    def check(self, message: str) -> None:
        """Checks that the server knows the secret too."""
        expected = "v=" + base64.b64encode(self._signature).decode()
        if not hmac.compare_digest(expected.encode(), message.encode("utf-8", "replace")):
            raise Unfit("the server does not prove that it knows the user")


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()
