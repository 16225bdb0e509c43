"""Judges one generated turn against a test item; also takes the turn apart as the family's parsers do."""
import json
import re
from fractions import Fraction

CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.S)
ARGUMENT = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.S)


def split(text, thinking):
    """(reasoning, content) of generated text, which starts inside the thinking block when that is on."""
    if not thinking:
        return "", text
    reasoning, closed, content = text.partition("</think>")
    return (reasoning, content) if closed else (text, "")


def number(content):
    found = re.findall(r"#### *\$?(-?[\d,]*\.?\d+)", content)
    return Fraction(found[-1].replace(",", "")) if found else None


def calls(content, tools):
    """[{name, arguments}] with values typed by the offered schema: strings raw, everything else JSON."""
    schemas = {t["function"]["name"]: t["function"]["parameters"]["properties"] for t in tools}
    out = []
    for body in CALL.findall(content):
        name = body.split("<arg_key>")[0].strip()
        arguments = {}
        for key, value in ARGUMENT.findall(body):
            if schemas.get(name, {}).get(key, {}).get("type") == "string":
                arguments[key] = value
            else:
                try:
                    arguments[key] = json.loads(value)
                except ValueError:
                    arguments[key] = value
        out.append(dict(name=name, arguments=arguments))
    return out


def same(a, b):
    """Equal in value and in JSON type, so that 1 is not true."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def right(item, text):
    _, content = split(text, item["thinking"])
    check, answer = item["check"], item["answer"]
    if check == "number":
        return number(content) == Fraction(answer)
    if check == "calls":
        return same(calls(content, item["tools"]), answer)
    if check == "json":
        try:
            return same(json.loads(content), answer)
        except ValueError:
            return False
    return content == answer
