"""What a webhook message is: its type, its signature by the Standard Webhooks rules, and when to try again. Pure."""

import base64
import enum
import hashlib
import hmac

SECRET_PREFIX = "whsec_"  # noqa: S105  a prefix, not a secret
SECRET_BYTES = 32

_S = 1000
# After the nth failed try. Then every ten hours, for three days in all.
SCHEDULE_MS = (5 * _S, 30 * _S, 120 * _S, 600 * _S, 3600 * _S, 3 * 3600 * _S, 10 * 3600 * _S)
GIVE_UP_MS = 3 * 24 * 3600 * _S


class Verdict(enum.Enum):
    DONE = "done"
    AGAIN = "again"
    STOP = "stop"


def judge(status: int) -> Verdict:
    """What an answer means; 0 is no answer. A redirect is not followed: it could lead where the address may not."""
    if 200 <= status < 300:
        return Verdict.DONE
    return Verdict.STOP if status == 410 else Verdict.AGAIN


def next_wait_ms(*, tries: int, began_at_ms: int, now_ms: int) -> int | None:
    """How long to wait after so many failed tries, or None: it has been tried for three days."""
    wait_ms = SCHEDULE_MS[min(tries, len(SCHEDULE_MS)) - 1]
    return wait_ms if now_ms + wait_ms <= began_at_ms + GIVE_UP_MS else None


def secret_of(entropy: bytes) -> str:
    """A signing secret in the form that receivers' libraries take."""
    return SECRET_PREFIX + base64.b64encode(entropy).decode()


def signed_headers(*, secret: str, message_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """The three headers of Standard Webhooks. The time is that of the try, so that receivers can refuse old ones."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signature = hmac.digest(key, f"{message_id}.{at_s}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }
