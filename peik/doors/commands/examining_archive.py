"""What `peik doctor` finds about accounts: the archive, its durability, the key that seals, the application at Telegram."""

import asyncio
import contextlib
from pathlib import Path

import msgspec

from peik.archive.choosing import beside
from peik.building_sessions import archive_named
from peik.config import Config, shown_address
from peik.errors import Problem, StartError
from peik.ops import doctor
from peik.ops.doctor import Finding, Grade
from peik.settings_values import StoreKind

ARCHIVE_S = 15.0


async def of_accounts(config: Config) -> list[Finding]:
    """Nothing, if nothing in the settings asks for accounts."""
    if not config.has_sessions:
        return []
    found = [of_application(config.telegram_api_id is not None, config.telegram_api_hash is not None)]
    if config.telegram_api_id is not None:
        found.append(_of_secret_key(config))
    return found + await _of_archive(config)


def of_application(has_id: bool, has_hash: bool) -> Finding:
    if has_id and has_hash:
        return Finding(name="application", grade=Grade.GREEN, words="There is an application to sign in with.")
    fix = "Set TELEGRAM_API_ID and TELEGRAM_API_HASH, from my.telegram.org."
    if has_id or has_hash:
        words = "Of TELEGRAM_API_ID and TELEGRAM_API_HASH only one is set, so that Peik cannot start."
        return Finding(name="application", grade=Grade.RED, words=words, fix=fix)
    words = "There is no application at Telegram: the archive can be read, and no account can run."
    return Finding(name="application", grade=Grade.YELLOW, words=words, fix=fix)


def _of_secret_key(config: Config) -> Finding:
    path = config.beside(".secret")
    if config.secret_key is not None:
        return _of_set_key(config.secret_key)
    if config.secrets_plain:
        words = "Keys of accounts are stored as plain text, since PEIK_SECRETS_PLAIN allows it."
        return Finding(name="secret key", grade=Grade.YELLOW, words=words, fix="Set PEIK_SECRET_KEY.")
    if config.store_kind is not StoreKind.SQLITE:
        words = f"Keys of accounts are sealed with the key in {path}, which other nodes do not have."
        return Finding(
            name="secret key", grade=Grade.YELLOW, words=words, fix="Set the same PEIK_SECRET_KEY on all nodes."
        )
    words = f"Keys of accounts are sealed with the key in {path}; back it up."
    if not path.exists():
        words = f"The key for accounts is made at the first start, in {path}; back it up then."
    return Finding(name="secret key", grade=Grade.GREEN, words=words)


def _of_set_key(setting: str) -> Finding:
    try:
        from peik.vault import keys_of

        keys = len(keys_of(setting))
    except ImportError:
        words, fix = "Accounts need a package that is not installed.", "pip install 'peik[sessions]'"
        return Finding(name="secret key", grade=Grade.RED, words=words, fix=fix)
    except StartError as error:
        return Finding(name="secret key", grade=Grade.RED, words=str(error), fix="Mend PEIK_SECRET_KEY.")
    older = f", and {keys - 1} older one(s) can be opened" if keys > 1 else ""
    return Finding(
        name="secret key", grade=Grade.GREEN, words=f"Keys of accounts are sealed with PEIK_SECRET_KEY{older}."
    )


async def _of_archive(config: Config) -> list[Finding]:
    try:
        url = config.archive or beside(config.store)
        if (path := _missing_file(url)) is not None:
            words = f"There is no {path} yet; `peik serve` makes it."
            return [Finding(name="archive", grade=Grade.GREEN, words=words)]
        archive = archive_named(config)
        async with asyncio.timeout(ARCHIVE_S):
            await archive.open()
            try:
                sentences = await archive.durability()
            finally:
                with contextlib.suppress(Problem):
                    await archive.close()
    except (StartError, Problem) as error:
        return [_closed(str(error))]
    except TimeoutError:
        return [_closed(f"The archive at {shown_address(url)} does not answer.")]
    opened = Finding(name="archive", grade=Grade.GREEN, words=f"The archive at {shown_address(url)} opens.")
    lasting = [msgspec.structs.replace(one, name="archive durability") for one in doctor.of_durability(sentences)]
    if not sentences:
        lasting = [msgspec.structs.replace(one, words="What was archived outlives a power cut.") for one in lasting]
    return [opened, *lasting]


def _missing_file(url: str) -> Path | None:
    """Of an archive in a file that nobody made yet."""
    scheme, _, rest = url.partition("://")
    path = Path(rest[1:]).absolute()
    return path if scheme == "sqlite" and not path.exists() else None


def _closed(words: str) -> Finding:
    return Finding(name="archive", grade=Grade.RED, words=words, fix="Mend it, or name another one in PEIK_ARCHIVE.")
