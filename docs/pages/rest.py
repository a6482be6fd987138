"""Every call of REST, from the tables that the doors answer by."""

from collections.abc import Iterator

from docs.pages.markdown import code, table
from peik.app import rest
from peik.app.apis import API_CLASSES
from peik.app.rest import OPERATIONS
from peik.web.operations import operations_of


def rest_parts() -> Iterator[str]:
    yield (
        "Every call, from the table that Peik itself answers by. A running Peik has all of it with bodies, answers and examples "
        "at `/docs`, and as OpenAPI 3.1 at `/openapi.json`. Each wants a key (`Authorization: Bearer …` or `X-Api-Key`) but "
        "`/health` and `/ready`. Problems are RFC 9457 JSON with a stable `code`; lists page by `cursor`; ids are strings. "
        "What `Idempotency-Key` counts as a repeat: [letters](../letters.md#repeats)."
    )
    makers = [one for one in vars(rest).values() if isinstance(one, type) and hasattr(one, "table")]
    # A table of routes knows nothing of what its routes will ask: it can be read of one that was never built.
    routes = [
        (verb, path, endpoint.__doc__ or "", name, tag)
        for maker in makers
        for verb, path, endpoint, name, tag in maker.table(maker.__new__(maker))  # type: ignore[call-overload]
    ]
    routes += [(one.verb, one.path, one.text, one.name, one.tag) for api in API_CLASSES for one in operations_of(api)]
    for tag in sorted({tag for *_, tag in routes}):
        rows = [_call(*route) for route in routes if route[4] == tag]
        yield f"## {tag[0].upper()}{tag[1:]}"
        yield table(("call", "what it does", "parameters"), rows)


def _call(verb: str, path: str, text: str, operation_id: str, _: str) -> tuple[str, str, str]:
    operation = OPERATIONS[operation_id]
    asked = [code(str(one["name"])) for one in operation.parameters if one["in"] != "path"]
    fields = [] if operation.body is None else [code(name) for name in operation.body.__struct_fields__]  # type: ignore[attr-defined]
    parts = [*([" ".join(asked)] if asked else []), *(["body: " + " ".join(fields)] if fields else [])]
    says = " ".join(text.split("\n\n")[0].split())
    return code(f"{verb} {path}"), says.replace("|", "\\|"), "; ".join(parts)
