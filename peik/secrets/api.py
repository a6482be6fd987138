"""Secrets over the API: how those in the store are kept, and sealing them anew."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from peik.web.access import Caller
from peik.web.operations import operation

if TYPE_CHECKING:
    from peik.accounts.service import AccountService
    from peik.secrets.service import Custodian, SealedCounts, SecretsStanding


class SecretsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    has_key: Annotated[bool, msgspec.Meta(description="Whether PEIK_SECRET_KEY is set here.")]
    plain: int
    sealed: Annotated[int, msgspec.Meta(description="With the first key.")]
    older: Annotated[int, msgspec.Meta(description="With another key that is here.")]
    foreign: Annotated[int, msgspec.Meta(description="With a key that is not here.")]
    is_scrubbed: Annotated[bool, msgspec.Meta(description="Nothing of texts that were replaced is left in the file.")]
    advice: Annotated[str | None, msgspec.Meta(description="The next step; null: all is well.")]

    @classmethod
    def of(cls, standing: "SecretsStanding") -> "SecretsAnswer":
        return cls(**msgspec.structs.asdict(standing), advice=standing.advice)


class SecretsSettledAnswer(msgspec.Struct, frozen=True, kw_only=True):
    sealed: Annotated[int, msgspec.Meta(description="That were plain.")]
    renewed: Annotated[int, msgspec.Meta(description="That were sealed with an older key.")]
    left: Annotated[str | None, msgspec.Meta(description="What is left of the old texts in the store's file.")]
    accounts: Annotated[
        dict[str, Any] | None, msgspec.Meta(description="The same for keys of accounts; null: there are none.")
    ] = None

    @classmethod
    def of(cls, settled: "SealedCounts", accounts: dict[str, Any] | None = None) -> "SecretsSettledAnswer":
        return cls(sealed=settled.sealed, renewed=settled.renewed, left=settled.left, accounts=accounts)


class SecretApi:
    def __init__(self, custodian: "Custodian", sessions: "AccountService | None") -> None:
        self._custodian = custodian
        self._sessions = sessions

    @operation("GET", "/v1/secrets", name="getSecrets", tag="secrets", scope="admin", is_for_all=True, problems=(503,))
    async def get_secrets(self, caller: Caller) -> SecretsAnswer:
        """How many secrets lie in the store, plain or sealed, and with which of the keys. None of them is shown."""
        return SecretsAnswer.of(await self._custodian.standing())

    @operation(
        "POST",
        "/v1/secrets/rotate",
        name="rotateSecrets",
        tag="secrets",
        scope="admin",
        is_for_all=True,
        problems=(409, 422, 503),
    )
    async def rotate(self, caller: Caller) -> SecretsSettledAnswer:
        """Seal everything with the first key of PEIK_SECRET_KEY, keys of accounts, too.

        That is what is plain, and what older keys have sealed. May be repeated, and goes on where it was interrupted."""
        done = await self._custodian.rotate()
        accounts = None if self._sessions is None else msgspec.to_builtins(await self._sessions.reseal())
        return SecretsSettledAnswer.of(done, accounts)
