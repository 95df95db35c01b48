#!/usr/bin/env python3
"""Computes schemas/prompt-hash.vectors.json by the definition in crates/core/src/prompt.rs.

It shares no code with retrytoll: json, hashlib, hmac and decimal of the standard library only.

    python3 tests/oracle/prompt_hash.py           compare the file with what it should be
    python3 tests/oracle/prompt_hash.py --write   write it anew
    python3 tests/oracle/prompt_hash.py --hash    print the hash of the body on stdin
"""

import hashlib
import hmac
import json
import pathlib
import sys
from decimal import Decimal

VECTORS = pathlib.Path(__file__).parents[2] / "schemas" / "prompt-hash.vectors.json"


class Number(str):
    """A number as typed."""


def unique(pairs):
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)), f"a member stands twice: {names}"
    return dict(pairs)


def parse(text):
    return json.loads(text, parse_int=Number, parse_float=Number, object_pairs_hook=unique)


def number(text):
    sign, digits, exponent = Decimal(text).as_tuple()
    digits = "".join(map(str, digits)).lstrip("0")
    exponent += len(digits) - len(digits.rstrip("0"))
    digits = digits.rstrip("0")
    if not digits:
        return "0"
    k, n = len(digits), len(digits) + exponent
    if k <= n <= 21:
        body = digits + "0" * (n - k)
    elif 0 < n <= 21:
        body = digits[:n] + "." + digits[n:]
    elif -6 < n <= 0:
        body = "0." + "0" * -n + digits
    else:
        mantissa = digits if k == 1 else digits[0] + "." + digits[1:]
        body = f"{mantissa}e{'+' if n > 0 else '-'}{abs(n - 1)}"
    return "-" * sign + body


def canonical(value):
    if isinstance(value, Number):
        return number(value)
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return "{" + ",".join(canonical(name) + ":" + canonical(value[name]) for name in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def content(value):
    match value:
        case [{"type": "text" | "input_text", "text": str(text)} as block] if len(block) == 2:
            return text
    return value


def present(value):
    return {name: member for name, member in value.items() if member is not None}


def form(text, with_params):
    body = present(parse(text))
    parts = [("V", "retrytoll.prompt.v1")]
    for name in ("system", "instructions"):
        if name in body:
            parts.append(("s", canonical(content(body[name]))))
            break
    messages = body.get("messages", body.get("input"))
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    messages = [present(message) for message in messages]
    while messages and set(messages[0]) == {"role", "content"} and messages[0]["role"] in ("system", "developer"):
        parts.append(("s", canonical(content(messages.pop(0)["content"]))))
    for message in messages:
        if "content" in message:
            message["content"] = content(message["content"])
        parts.append(("m", canonical(message)))
    for tool in body.get("tools", []) + body.get("functions", []):
        parts.append(("t", canonical(tool)))
    formats = [
        body.get("response_format"),
        body.get("output_format"),
        body.get("text", {}).get("format"),
        body.get("output_config", {}).get("format"),
    ]
    parts += [("f", canonical(each)) for each in formats if each is not None]
    if with_params:
        limits = [body[name] for name in ("max_tokens", "max_completion_tokens", "max_output_tokens") if name in body]
        given = [("o", body.get("model")), ("e", body.get("temperature")), ("x", (limits or [None])[0])]
        parts += [(tag, canonical(value)) for tag, value in given if value is not None]
    encoded = [(tag, text.encode("utf-8")) for tag, text in parts]
    return b"".join(tag.encode() + len(data).to_bytes(8, "big") + data for tag, data in encoded)


def hash_of(data, key):
    if key is None:
        return "sha256:" + hashlib.sha256(data).hexdigest()
    return "hmac-sha256:" + hmac.new(key.encode(), data, hashlib.sha256).hexdigest()


USER = '{"role":"user","content":"hello"}'
FULL = (
    '{"model":"gpt-4o-mini","temperature":0.70,"max_tokens":512,"top_p":1,"stream":true,"system":"be brief",'
    '"messages":[%s],"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object",'
    '"properties":{"city":{"type":"string","minLength":1.0}},"required":["city"]}}}],'
    '"response_format":{"type":"json_schema","json_schema":{"name":"r","schema":{"maximum":1e2}}}}' % USER
)
CASES = [
    ("one user message", '{"messages":[%s]}' % USER, False, None),
    ("white space and order do not matter", '{ "messages" : [ { "content" : "hello",\n "role" : "user" } ] }', False, None),
    ("abc, x", '{"system":"abc","messages":[{"role":"user","content":"x"}]}', False, None),
    ("ab, cx", '{"system":"ab","messages":[{"role":"user","content":"cx"}]}', False, None),
    ("system as a message", '{"messages":[{"role":"system","content":"abc"},{"role":"user","content":"x"}]}', False, None),
    ("developer as blocks", '{"messages":[{"role":"developer","content":[{"type":"text","text":"abc"}]},{"role":"user","content":"x"}]}', False, None),
    ("two system texts", '{"system":"a","messages":[{"role":"system","content":"b"},{"role":"user","content":"x"}]}', False, None),
    ("a named system message is a message", '{"messages":[{"role":"system","name":"n","content":"a"},{"role":"user","content":"x"}]}', False, None),
    ("a late system message is a message", '{"messages":[{"role":"user","content":"x"},{"role":"system","content":"a"}]}', False, None),
    ("only a system message", '{"messages":[{"role":"system","content":"a"}]}', False, None),
    ("cache control stays", '{"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}],"messages":[%s]}' % USER, False, None),
    ("two blocks stay", '{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]}]}', False, None),
    ("tool calls without content", '{"messages":[{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"4"}]}', False, None),
    ("responses, a string", '{"instructions":"abc","input":"x"}', False, None),
    ("responses, blocks and a format", '{"input":[{"role":"user","content":[{"type":"input_text","text":"x"}]}],"text":{"format":{"type":"json_object"},"verbosity":"low"}}', False, None),
    ("all that counts", FULL, False, None),
    ("all that counts, with parameters", FULL, True, None),
    ("all that counts, keyed", FULL, False, "a secret key"),
    ("all that counts, with parameters and keyed", FULL, True, "a secret key of more than the sixty-four bytes of a SHA-256 block, so it is hashed"),
    ("the other limit", '{"model":"o9","max_completion_tokens":9,"messages":[%s]}' % USER, True, None),
    ("legacy functions", '{"functions":[{"name":"f"}],"messages":[%s]}' % USER, False, None),
    ("escapes", r'{"messages":[{"role":"user","content":"\u0041\/\\\"\b\f\n\r\t\u0000\u001F\u007f\u00e9\ud83d\ude00"}]}', False, None),
    ("raw text equals escaped", '{"messages":[{"role":"user","content":"A\u00e9\U0001f600"}]}', False, None),
    ("names sort by UTF-16", r'{"messages":[%s],"tools":[{"\ufb33":1,"\ud83d\ude00":2,"\u20ac":3,"1":4,"":5}]}' % USER, False, None),
    ("numbers", '{"messages":[%s],"tools":[[0,-0,0.0,1.0,10e-1,-1.50,1E+2,1e20,1e21,123456789012345678901234567890,0.000001,1e-7,12.5e-8,0.30000000000000004,1e-300]]}' % USER, False, None),
    ("literals", '{"messages":[%s],"tools":[[true,false,null,[],{}]]}' % USER, False, None),
]


def vectors():
    for name, body, with_params, key in CASES:
        data = form(body, with_params)
        yield {
            "name": name,
            "body": body,
            "with_params": with_params,
            "key": key,
            "form_hex": data.hex(),
            "hash": hash_of(data, key),
        }


def main(args):
    if args == ["--hash"]:
        print(hash_of(form(sys.stdin.read(), False), None))
        return 0
    text = json.dumps(list(vectors()), indent=1) + "\n"
    if args == ["--write"]:
        VECTORS.write_text(text)
        return 0
    if VECTORS.read_text() != text:
        print(f"{VECTORS} differs from what this script computes; run it with --write", file=sys.stderr)
        return 1
    print(f"{len(CASES)} vectors agree")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
