"""Who may do what in a schema of PostgreSQL: read before the schema is dropped, and given again in the transaction that brings it
back. What goes beyond its owner's rights is never given to everybody."""

import secrets
from collections.abc import Sequence
from typing import Any

import asyncpg  # type: ignore[import-untyped,unused-ignore]

# The statements that make privileges what they are now. Owners need none: whoever restores is the owner then.
_GIVEN = """
WITH
things AS (
    SELECT 'SCHEMA' AS kind, format('%I', nspname) AS name, '' AS part, nspowner AS owner, false AS is_definer, nspacl AS acl
    FROM pg_namespace WHERE nspname = $1::text
    UNION ALL
    SELECT CASE relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, format('%I.%I', $1::text, relname), '', relowner, false, relacl
    FROM pg_class WHERE relnamespace = to_regnamespace(quote_ident($1::text)) AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
    UNION ALL
    SELECT 'TABLE', format('%I.%I', $1::text, relname), format(' (%I)', attname), relowner, false, attacl
    FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
    WHERE relnamespace = to_regnamespace(quote_ident($1::text)) AND attacl IS NOT NULL AND NOT attisdropped
    UNION ALL
    SELECT 'ROUTINE', format('%I.%I', $1::text, proname), '', proowner, prosecdef, proacl
    FROM pg_proc WHERE pronamespace = to_regnamespace(quote_ident($1::text))
),
closed AS (
    SELECT format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', name) AS statement
    FROM things
    WHERE kind = 'ROUTINE' AND acl IS NOT NULL AND NOT EXISTS (SELECT FROM aclexplode(acl) WHERE grantee = 0)
),
granted AS (
    SELECT format(
        'GRANT %s ON %s %s TO %s%s',
        string_agg(privilege_type || part, ', ' ORDER BY privilege_type), kind, name,
        coalesce(quote_ident(rolname), 'PUBLIC'), CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
    ) AS statement
    FROM things CROSS JOIN LATERAL aclexplode(acl) LEFT JOIN pg_roles ON pg_roles.oid = grantee
    WHERE grantee <> owner AND NOT (grantee = 0 AND is_definer) AND (grantee = 0 OR rolname IS NOT NULL)
    GROUP BY kind, name, part, rolname, is_grantable
)
SELECT statement FROM closed UNION ALL SELECT statement FROM granted
"""

# Functions that act as their owner were taken from everybody when they were made, which no dump says. And a backup may be of a
# schema that has not everything yet that something is given for.
_RENEW = """
DO ${tag}$
DECLARE
    one text;
BEGIN
    FOR one IN
        SELECT format('REVOKE EXECUTE ON ROUTINE %s FROM PUBLIC', oid::regprocedure)
        FROM pg_catalog.pg_proc WHERE prosecdef AND pronamespace = pg_catalog.to_regnamespace({schema})
    LOOP
        EXECUTE one;
    END LOOP;
    FOREACH one IN ARRAY ARRAY[{statements}]::text[] LOOP
        BEGIN
            EXECUTE one;
        EXCEPTION WHEN undefined_table OR undefined_column OR undefined_function OR ambiguous_function OR undefined_object THEN
            RAISE DEBUG 'peik: % has nothing to act on', one;
        END;
    END LOOP;
END
${tag}$;
"""


async def given(connection: "asyncpg.Connection[Any]", schema: str) -> list[str]:
    return [str(row[0]) for row in await connection.fetch(_GIVEN, schema)]


def renewing(schema: str, statements: Sequence[str]) -> str:
    """As one statement, for the end of the transaction that restores."""
    tag = f"peik_{secrets.token_hex(8)}"
    texts = ", ".join(_quoted(one) for one in statements)
    return _RENEW.format(tag=tag, schema=_quoted(f'"{schema}"'), statements=texts)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
