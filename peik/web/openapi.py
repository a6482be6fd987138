"""What rows of the OpenAPI document are made of: the small schemas and parameters that operations share."""

import html
import json
from collections.abc import Mapping
from typing import Any

import msgspec

Json = dict[str, Any]

LIMIT_DEFAULT = 50
LIMIT_MAX = 1000
WORD_CHARS_MAX = 200

ID: Json = {"type": "string", "pattern": "^[0-9]{1,18}$"}
TIME: Json = {"type": "string", "format": "date-time"}
TRACE: Json = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$"}


def shape(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


def opened(schema: Any) -> Any:
    """An object of anything says so. JSON Schema means it by default, and those who make typed clients of it take it for an
    object of nothing."""
    if isinstance(schema, list):
        return [opened(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    told = {name: opened(value) for name, value in schema.items()}
    if told.get("type") == "object" and not {"properties", "additionalProperties"} & told.keys():
        told["additionalProperties"] = True
    return told


def in_path(name: str, schema: Json = ID) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def in_query(name: str, schema: Json, text: str) -> Json:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": text}


def in_header(name: str, schema: Json, text: str) -> Json:
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": text}


SECONDS: Json = {"type": "number", "minimum": 0}
LIMIT = in_query(
    "limit", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT}, "How many."
)
BOT = in_query("bot_id", ID, "The bot; may be left out when there is one.")
WORD: Json = {"type": "string", "minLength": 1, "maxLength": WORD_CHARS_MAX}
CURSOR = in_query("cursor", ID, "The next_cursor of the page before.")


class FormRow(msgspec.Struct, frozen=True, kw_only=True):
    """A form in place of a JSON body: the same object in a field, and a file beside it."""

    field: str
    file: str
    text: str  # of the file


LETTER_FORM = FormRow(field="letter", file="document", text="A file, under its parameter's name.")


class OperationRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a client must know of one operation."""

    answers: Mapping[int, str]  # status → schema, or several with a bar between them; "" for no body
    parameters: tuple[Json, ...] = ()
    body: Any = None
    example: object = None
    problems: tuple[int, ...] = ()
    form: FormRow | None = None
    is_body_optional: bool = False
    media_type: str = "application/json"  # of the answers
    other_media_types: tuple[str, ...] = ()  # that they also come in, if it is asked for
    is_open: bool = False  # to everybody, without a key


# `/docs`: the API on one page, made from the OpenAPI document on the server. No script, nothing from other hosts.


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; text-transform: capitalize; }
details { border: 1px solid var(--line); border-radius: .5rem; margin: .5rem 0; padding: .5rem .8rem; }
summary { cursor: pointer; }
code, pre { font: .9em/1.4 ui-monospace, monospace; }
pre { background: var(--soft); border-radius: .5rem; overflow-x: auto; padding: .8rem; }
table { border-collapse: collapse; }
td { border-bottom: 1px solid var(--line); padding: .2rem .8rem .2rem 0; text-align: start; vertical-align: top; }
.verb { display: inline-block; font-weight: 600; min-width: 4.2rem; }
"""


def page(document: dict[str, Any]) -> str:
    groups: dict[str, list[str]] = {}
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            groups.setdefault(operation["tags"][0], []).append(_operation(verb, path, operation))
    parts = [f"<h2>{html.escape(tag)}</h2>{''.join(rows)}" for tag, rows in groups.items()]
    info = document["info"]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Peik API</title><style>{_STYLE}</style><h1>Peik API <small>{html.escape(info['version'])}</small></h1>"
        f"<p>{html.escape(info['description'])}</p>"
        "<p>Send the key as <code>Authorization: Bearer &lt;key&gt;</code>. Errors are problem JSON with a stable "
        '<code>code</code>. The same as data: <a href="/openapi.json">openapi.json</a>.</p>' + "".join(parts)
    )


def _operation(verb: str, path: str, operation: dict[str, Any]) -> str:
    parts = [f"<p>{html.escape(operation['summary'])}</p>"]
    if operation["parameters"]:
        rows = "".join(
            f"<tr><td><code>{html.escape(one['name'])}</code></td><td>{html.escape(one['in'])}</td>"
            f"<td>{html.escape(one.get('description', ''))}</td></tr>"
            for one in operation["parameters"]
        )
        parts.append(f"<table>{rows}</table>")
    example = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
    if example is not None:
        parts.append(f"<pre>{html.escape(json.dumps(example, indent=2, ensure_ascii=False))}</pre>")
    answers = ", ".join(f"{status} {_name(answer)}" for status, answer in operation["responses"].items())
    parts.append(f"<p>Answers: {html.escape(answers)}.</p>")
    title = f'<span class="verb">{verb.upper()}</span> <code>{html.escape(path)}</code>'
    return f'<details id="{operation["operationId"]}"><summary>{title}</summary>{"".join(parts)}</details>'


def _name(answer: dict[str, Any]) -> str:
    for content in answer.get("content", {}).values():
        named = content["schema"].get("anyOf", [content["schema"]])
        return " or ".join(str(one["$ref"]).rsplit("/", 1)[1] for one in named)
    return "nothing"
