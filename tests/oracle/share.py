#!/usr/bin/env python3
"""The demo's figures, computed a second time from the generator's own log, in decimals only.

    share.py TRUTH.jsonl --prices PRICES.json [--base SERVICE=1]... [--compare REPORT.json]

Shares nothing with the pipeline but its inputs: the events as produced (`truth.jsonl`, one object
a line: {"event": {...}, "kind": "event" | "duplicate" | "malformed"}) and the price table in
LiteLLM's form. The tables below are written by hand after the definitions of class, billing and
money. Prints JSON, money as text. --compare takes what `retrytoll report retry_cost_share --by
service --format json` printed and exits 1 where a figure differs.

What is assumed:
- Only lines of kind "event" count: a duplicate is one event, a malformed one is a dead letter.
- The window is all of event time, every layer is counted, nothing is a hedge or logged twice, and a
  request is one operation. Where it is unknown whether an attempt was billed, expected = p_billed x
  its own tokens, else a sibling's (the delivered attempt's, else the nearest by start with the
  provider's usage), all input at the plain rate, else the ceiling.
- A failure has an error_type, an error status, a finish_reason or a decision other than success.
  Status decides before error_type, but names the sharper class where one status has two (429 and
  quota, 503 and overloaded, 400 and content). An error in phase stream is `stream` at any status.
- A failure without a status, in words not known here, is classed by its phase.
- Prices: key `provider/model`, else `model`, exactly. A rate that tokens need and the entry lacks
  makes the attempt unpriced; cache rates included. The formula takes the plain input rate.
- A price that varies by range lists (`tiered_pricing`) is refused: no event of the demo needs it.
"""

import argparse
import collections
import datetime
import json
import re
import sys
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

ZERO, ONE = Decimal(0), Decimal(1)

# class: (state, p_billed) where neither usage nor the caller's cost says more.
DEFAULT = {
    "connect": ("unbilled", "0"),
    "write": ("unknown", "0.1"),
    "read": ("unknown", "0.9"),
    "stream": ("unknown", "0.9"),
    "rate_limit": ("unbilled", "0"),
    "quota": ("unbilled", "0"),
    "overloaded": ("unbilled", "0"),
    "server": ("unknown", "0.2"),
    "client": ("unbilled", "0"),
    "content": ("unknown", "0.5"),
    "truncated": ("billed", "1"),
    "invalid_output": ("billed", "1"),
    "cancelled": ("unknown", "0.9"),
    "none": ("billed", "1"),
    "unknown": ("unknown", "0.5"),
}

STATUS = {408: "read", 499: "read", 424: "read", 504: "read", 429: "rate_limit", 402: "quota",
          529: "overloaded", 500: "server", 502: "server", 503: "server", 400: "client", 401: "client",
          403: "client", 404: "client", 405: "client", 409: "client", 413: "client", 422: "client"}

# What an error_type means by the words in it, first match first.
WORDS = [
    (r"insufficient_?quota|out_?of_?credit|billing_?hard_?limit|spend(ing)?_?limit|budget", "quota"),
    (r"rate_?limit|too_?many_?requests|throttl", "rate_limit"),
    (r"overload", "overloaded"),
    (r"content_?(policy|filter)|refusal|safety|moderation|policy_?(block|violation)", "content"),
    (r"invalid_?(output|json|response)|parse|json_?decode|schema|validation|empty", "invalid_output"),
    (r"truncat|max_?tokens_?reached|^length$", "truncated"),
    (r"bad_?request|invalid_?request|auth|permission|forbidden|not_?found|context_?(window|length)|unprocessable", "client"),
    (r"internal|server_?error|unavailable|bad_?gateway", "server"),
    (r"cancel", "cancelled"),
]
BROKEN = r"time(d_?)?_?out|timeout|(write|read)_error|connect|disconnect|dns|name_?resolution|refused|reset|tls|ssl|broken_?pipe|protocol_?error|eof|network|unreachable|pool"
BY_PHASE = {"connect": "connect", "pool": "connect", "dns": "connect", "tls": "connect", "write": "write",
            "read": "read", "total": "read", "stream": "stream"}

OPENROUTER_STOPS = {"openai", "azure", "anthropic", "fireworks", "together", "deepinfra", "cohere", "x-ai",
                    "xai", "deepseek", "novita"}
# (provider, status): (state, p_billed). Azure's 400 is unknown; half is this script's reading.
STATUS_POLICY = {
    ("gemini", 400): ("unbilled", "0"), ("gemini", 500): ("unbilled", "0"),
    ("novita", 499): ("billed", "1"), ("novita", 500): ("unbilled", "0"),
    ("novita", 503): ("unbilled", "0"), ("novita", 504): ("unbilled", "0"),
    ("azure", 400): ("unknown", "0.5"), ("azure", 429): ("unbilled", "0"),
}
FREE_MODES = {"provisioned", "free", "self_hosted"}


def whole(value):
    """A count, or None where there is none: negative, fractional or not a number."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = Decimal(str(value))
    except ArithmeticError:
        return None
    return int(number) if number.is_finite() and number == number.to_integral_value() and number >= 0 else None


def snake(text):
    """ReadTimeout and read-timeout become read_timeout."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text or "").lower()).strip("_")


def classify(event):
    """How the attempt ended: one of DEFAULT's keys."""
    decision, finish = event.get("decision"), event.get("finish_reason")
    error, phase = snake(event.get("error_type")), snake(event.get("phase"))
    status = whole(event.get("status_code"))
    failed = bool(error) and error != "none" or (status or 0) >= 400
    if decision == "cancelled" or re.search("cancel", error):
        return "cancelled"
    if failed and phase == "stream":
        return "stream"
    if re.search(BROKEN, error) and not re.search("rate_?limit|overload", error):
        if phase in BY_PHASE:
            return BY_PHASE[phase]
        for word, found in (("pool", "connect"), ("write", "write"), ("time", "read"), ("stream", "stream")):
            if word in error and not (word == "time" and "connect" in error):
                return found
        before_sending = re.search("connect_|connect$|^connect|dns|name|refused|tls|ssl|unreachable", error)
        return "connect" if before_sending and "disconnect" not in error else "read"
    worded = next((found for pattern, found in WORDS if re.search(pattern, error)), None)
    if (status or 0) >= 400:
        found = STATUS.get(status, worded or "unknown")
        sharper = {("rate_limit", "quota"), ("server", "overloaded"), ("client", "content")}
        return worded if (found, worded) in sharper and status != 500 and status != 502 else found
    if failed:
        return worded or BY_PHASE.get(phase, "unknown")
    if finish in ("length", "max_tokens"):
        return "truncated"
    if finish in ("content_filter", "refusal"):
        return "content"
    if decision == "success":
        return "none"
    return BY_PHASE.get(phase, "unknown")


class Prices:
    """Rates per token of a LiteLLM price file."""

    def __init__(self, path):
        with open(path) as file:
            self.table = json.load(file, parse_float=Decimal, parse_int=Decimal)

    def entry(self, event):
        model = event["model"]
        for key in (f"{event.get('provider')}/{model}", model):
            if key in self.table and key != "sample_spec":
                assert "tiered_pricing" not in self.table[key], f"{key} is priced by ranges: not read here"
                return self.table[key]
        return None

    @staticmethod
    def rate(entry, key, event, total_input):
        """The rate of `key`, at the tier of the whole prompt and the service tier; None: no rate."""
        names = [key]
        tiers = [(int(m[1]) * 1000, k) for k in entry if (m := re.fullmatch(f"{key}_above_(\\d+)k_tokens", k))]
        for above, name in sorted(tiers):
            if total_input > above or (total_input == above and entry.get("litellm_provider") == "xai"):
                names.append(name)
        suffix = {"priority": "_priority", "flex": "_flex"}.get(event.get("service_tier"), "")
        if event.get("billing_mode") == "batch":
            suffix = "_batches"
        candidates = [n + suffix for n in reversed(names)] + list(reversed(names))
        found = next((entry[n] for n in candidates if entry.get(n) is not None), None)
        return None if found is None else Decimal(found)

    def cost(self, event, parts):
        """Sum of tokens x rate over (key, tokens), or None where a rate is missing."""
        if event.get("billing_mode") in FREE_MODES:
            return ZERO
        entry, total = self.entry(event), sum(n for key, n in parts if "output" not in key)
        if entry is None:
            return None
        rates = [(n, self.rate(entry, key, event, total)) for key, n in parts if n]
        return None if any(r is None for _, r in rates) else sum((n * r for n, r in rates), ZERO)

    def of_usage(self, event):
        """The cost of the tokens that the event names."""
        count = lambda name: whole(event.get(name)) or 0
        cached, written, hour = count("cached_input_tokens"), count("cache_write_tokens"), count("cache_write_1h_tokens")
        plain, out, thought = count("input_tokens") - cached - written, count("output_tokens"), 0
        entry = self.entry(event) or {}
        if "output_cost_per_reasoning_token" in entry:
            thought = min(count("reasoning_tokens"), out)
        return self.cost(event, [
            ("input_cost_per_token", max(plain, 0)), ("cache_read_input_token_cost", cached),
            ("cache_creation_input_token_cost", written - min(hour, written)),
            ("cache_creation_input_token_cost_above_1hr", min(hour, written)),
            ("output_cost_per_token", out - thought), ("output_cost_per_reasoning_token", thought)])


def providers(event):
    """(provider, provider behind a router): openrouter/anthropic/claude gives both."""
    path = event["model"].lower().split("/")
    provider = (event.get("provider") or (path[0] if len(path) > 1 else "")).lower()
    if provider == "openrouter":
        path = path[1:] if path[0] == "openrouter" else path
        return provider, path[0] if len(path) > 1 else ""
    return provider, ""


def policy(event, kind):
    """(state, p_billed, stops): the table's answer; `stops` where only what was received is billed."""
    state, p = DEFAULT[kind]
    provider, upstream = providers(event)
    status = whole(event.get("status_code"))
    if provider == "openrouter":
        if kind in ("read", "stream", "cancelled"):
            stops = bool(event.get("stream")) and upstream in OPENROUTER_STOPS
            return ("unknown", ONE, True) if stops else ("unknown", ONE, False)
        if (status or 0) >= 400 or kind in ("server", "invalid_output") and whole(event.get("output_tokens")) == 0:
            return "unbilled", ZERO, False
    if provider == "anthropic" and kind == "content" and status in (None, 200):
        return "billed", ONE, False
    state, p = STATUS_POLICY.get((provider, status), (state, p))
    return state, Decimal(p), False


def caller_cost(event):
    """The caller's own cost in dollars; 0 says something only about a cache hit or a free mode."""
    if event.get("cost") is None:
        return None
    unit = {"cents": Decimal("0.01"), "usd_nano": Decimal("1e-9"), "nano": Decimal("1e-9")}
    cost = Decimal(str(event["cost"])) * unit.get(str(event.get("cost_unit") or "usd").lower(), ONE)
    free = event.get("cache_hit") or event.get("billing_mode") in FREE_MODES
    return cost if cost > 0 or (cost == 0 and free) else None


def bill(event, kind, prices):
    """(state, confirmed, expected, ceiling, has provider usage); None is unpriced or unknown."""
    tokens = [whole(event.get("input_tokens")), whole(event.get("output_tokens"))]
    used = (event.get("usage_source") or "provider") == "provider" and any(tokens)
    own, said = prices.of_usage(event) if used else None, caller_cost(event)
    if event.get("cache_hit"):
        return "unbilled", ZERO, ZERO, ZERO, used
    if used or said is not None:
        cost = own if own is not None else said
        return "billed", cost, cost, cost, used
    state, p, stops = policy(event, kind)
    if state == "unbilled":
        return state, ZERO, ZERO, ZERO, used
    if state == "billed":
        return state, None, None, None, used
    out = whole(event.get("received_output_tokens")) if stops else whole(event.get("max_tokens"))
    if not tokens[0] or out is None:
        return state, ZERO, None, None, used
    out *= 1 if stops else (whole(event.get("n")) or 1)
    ceiling = prices.cost(event, [("input_cost_per_token", tokens[0]), ("output_cost_per_token", out)])
    return state, ZERO, None if ceiling is None else p * ceiling, ceiling, used


def began(event):
    """When the attempt began, seconds since 1970."""
    at = lambda text: datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    return at(event["started_at"]) if event.get("started_at") else at(event["ts"]) - (event.get("elapsed_ms") or 0) / 1000


def estimated(rows, prices):
    """The rows of one operation, with what a sibling tells of those of which it is unknown whether
    they were billed, and each with the basis of its expected cost. No profile applies: one is of the
    closed days before, and the demo has none."""
    tokens = lambda event: (whole(event.get("input_tokens")), whole(event.get("output_tokens")))
    rows = sorted(rows, key=lambda row: began(row[0]))
    used = [row for row in rows if row[7] and not row[0].get("cache_hit")]
    used.sort(key=lambda row: row[0]["decision"] != "success")
    for row in rows:
        event, is_retry, kind, state, confirmed, expected, ceiling, usage = row
        basis = "own" if state == "billed" and confirmed is not None else None
        if state == "unknown":
            _, p, stops = policy(event, kind)
            delivered = used and used[0][0]["decision"] == "success"
            nearest = min(used, key=lambda it: abs(began(it[0]) - began(event)), default=None)
            sibling = (None, None) if nearest is None else tokens((used[0] if delivered else nearest)[0])
            price = lambda read, made: None if None in (read, made) else prices.cost(
                event, [("input_cost_per_token", read), ("output_cost_per_token", made)])
            received = whole(event.get("received_output_tokens"))
            most = whole(event.get("max_tokens"))
            most = None if most is None else most * (whole(event.get("n")) or 1)
            if ceiling is None:
                ceiling = price(sibling[0], most)
            # No tokens of an attempt that failed are unknown ones.
            own = price(tokens(event)[0] or None, received if stops else tokens(event)[1] or None)
            other = price(sibling[0], received if stops else sibling[1])
            guesses = (("own", own), ("sibling", other), ("formula", ceiling))
            basis, guess = next(((name, it) for name, it in guesses if it is not None), (None, None))
            expected = None if guess is None else p * guess
        yield event, is_retry, kind, state, confirmed, expected, ceiling, usage, basis


def operations(rows, prices):
    """All rows, estimated by operation."""
    groups = by(rows, lambda row: (row[0].get("service"), row[0]["request_id"]))
    return [row for group in groups.values() for row in estimated(group, prices)]


def figures(rows):
    """One group's figures from (event, is_retry, kind, state, confirmed, expected, ceiling, used)."""
    def total(retry, i):
        """No rows cost nothing; rows of which no cost is known have an unknown one, never zero."""
        asked = [row[i] for row in rows if row[1] == retry]
        known = [amount for amount in asked if amount is not None]
        return sum(known, ZERO) if known or not asked else None

    r, o = ([total(retry, i) for i in (4, 5, 6)] for retry in (True, False))
    ratio = lambda a, b: a / (a + b) if None not in (a, b) and a + b else None
    judged = [row for row in rows if row[2] in ("none", "truncated", "invalid_output") and not row[0].get("cache_hit")]
    covered = sum(1 for row in judged if row[7])
    coverage = Decimal(covered) / len(judged) if judged else None
    return {
        "attempts": len(rows),
        "retries": sum(1 for row in rows if row[1]),
        "first_attempts": sum(1 for row in rows if not row[1]),
        "retry_confirmed": r[0], "retry_expected": r[1], "retry_ceiling": r[2],
        "other_confirmed": o[0], "other_expected": o[1], "other_ceiling": o[2],
        "share": ratio(r[1], o[1]), "share_low": ratio(r[0], o[2]), "share_high": ratio(r[2], o[0]),
        "without_money": sum(1 for row in rows if row[5] is None),
        "coverage": coverage,
        "withheld": None in (r[1], o[1]) or coverage is None or coverage < Decimal("0.8"),
    }


def read(path, prices, bases):
    """The counted rows of a truth file, in its order."""
    with open(path) as lines:
        for line in lines:
            truth = json.loads(line, parse_float=Decimal)
            if truth["kind"] == "event":
                event = truth["event"]
                kind = classify(event)
                base = bases.get(event.get("service"), 0)
                yield (event, whole(event["attempt"]) > base, kind, *bill(event, kind, prices))


def by(rows, key):
    groups = collections.defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return {name: groups[name] for name in sorted(groups, key=str)}


def report(rows):
    """Everything that the demo shows."""
    classes = lambda chosen: {k: {"count": len(g), "expected": sum((r[5] for r in g if r[5] is not None), ZERO)}
                              for k, g in by(chosen, lambda r: r[2]).items()}
    return {
        "total": figures(rows),
        "by_service": {k: figures(g) for k, g in by(rows, lambda r: r[0].get("service")).items()},
        "attempts_by_class": classes(rows),
        "retries_by_class": classes([r for r in rows if r[1]]),
    }


# The report's field: ours. A field that a report lacks is an error, not a pass.
FIELDS = {
    "attempts": "attempts",
    "retries": "retries",
    "first_attempts": "first_attempts",
    "retry_confirmed_usd": "retry_confirmed",
    "retry_expected_usd": "retry_expected",
    "retry_ceiling_usd": "retry_ceiling",
    "other_confirmed_usd": "other_confirmed",
    "other_expected_usd": "other_expected",
    "other_ceiling_usd": "other_ceiling",
    "share_pct": "share",
    "share_low_pct": "share_low",
    "share_high_pct": "share_high",
    "coverage_pct": "coverage",
}
RATIOS = {"share", "share_low", "share_high", "coverage"}


def equal(theirs, ours, ratio):
    """Sums are equal to the last digit; ratios as far as the report shows digits."""
    if theirs is None or ours is None:
        return theirs is None and ours is None
    theirs = Decimal(str(theirs))
    if ratio:
        return theirs == (Decimal(ours) * 100).quantize(theirs, rounding=ROUND_HALF_EVEN)
    return theirs == ours


def compare(path, ours):
    """Sentences, one per difference, between a report's rows and `by_service`."""
    with open(path) as file:
        rows = json.load(file, parse_float=Decimal)
    rows = rows["rows"] if isinstance(rows, dict) else rows
    theirs = {row["key"]: row for row in rows}
    wrong = [f"service {s!r} is only in {where}" for where, a, b in
             (("the report", theirs, ours), ("the truth", ours, theirs)) for s in a if s not in b]
    for service in theirs.keys() & ours.keys():
        for field, name in FIELDS.items():
            if field not in theirs[service]:
                wrong.append(f"{service}: the report has no field {field}")
                continue
            seen, right = theirs[service][field], ours[service][name]
            if ours[service]["withheld"] and name in RATIOS - {"coverage"}:
                right = None
            if not equal(seen, right, name in RATIOS):
                wrong.append(f"{service}: {field} is {seen}, should be {right}")
    return sorted(wrong)


def plain(value):
    """Decimals as text without an exponent."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    return format(value, "f") if isinstance(value, Decimal) else value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("truth")
    parser.add_argument("--prices", required=True)
    parser.add_argument("--base", action="append", default=[], metavar="SERVICE=N")
    parser.add_argument("--compare", metavar="REPORT.json")
    parser.add_argument("--until", metavar="TS", default="~", help="exclusive, in the form of the events' own ts")
    args = parser.parse_args()
    bases = {s: int(n) for s, n in (b.split("=") for b in args.base)}
    with localcontext() as context:
        context.prec = 60  # sums and products here have under 40 digits: exact
        prices = Prices(args.prices)
        rows = operations(read(args.truth, prices, bases), prices)
        # Times of one form compare as text.
        result = report([row for row in rows if row[0]["ts"] < args.until])
        wrong = compare(args.compare, result["by_service"]) if args.compare else []
        print(json.dumps(plain(result), indent=2))
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
