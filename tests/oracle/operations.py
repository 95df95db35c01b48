#!/usr/bin/env python3
"""The demo's operations, computed a second time from the events as produced, in decimals only.

    operations.py TRUTH.jsonl --prices PRICES.json [--compare FOLDER]

What an operation, a role, repeated billing, a rescue and a resend are is written here by hand after
their definitions (tests/README.md says where); what one attempt is and costs comes from share.py.
alerts.py says which alerts must have been told. --compare takes a folder with what the program said,
`REPORT.json` as named in `reports`, and exits 1 with a sentence for each figure that differs.

What is assumed, and checked where it is not so: a request is one operation, which begins with number 0,
and only its last attempt ends it. One prompt's operations do not overlap. Every service logs successes.
"""

import argparse
import collections
import datetime
import json
import pathlib
import sys
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import alerts  # noqa: E402
import share  # noqa: E402

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
GOES_ON = {"retry", "retry_limited", "fallback"}
LOST = {"failed", "timed_out", "abandoned"}
SECOND = 1_000_000
AGAIN, CHAIN = 15 * 60 * SECOND, 3_600 * SECOND


def micros(text):
    """Microseconds since 1970, exactly."""
    at = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (at - EPOCH) // datetime.timedelta(microseconds=1)


def total(amounts):
    """What is known, summed; unknown where there is something and nothing of it is known."""
    amounts = list(amounts)
    known = [it for it in amounts if it is not None]
    return sum(known, Decimal(0)) if known else None


def none_is_zero(amounts):
    """No attempts cost nothing; those of which no cost is known have an unknown one."""
    amounts = list(amounts)
    return total(amounts) if amounts else Decimal(0)


class Attempt:
    """One event, and what share.py says of it alone."""

    def __init__(self, row, prices):
        self.event, _, self.kind, self.state, self.confirmed, self.expected, self.ceiling, self.usage, self.basis = row
        self.row = row
        event = self.event
        self.began, self.ended = micros(event["started_at"]), micros(event["ts"])
        self.service, self.model, self.decision = event["service"], event["model"], event["decision"]
        self.p = share.policy(event, self.kind)[1]
        self.cached = bool(event.get("cache_hit"))
        self.unpriced = self.state != "unbilled" and prices.entry(event) is None
        self.role, self.hedge, self.place = None, False, None

    @property
    def is_retry(self):
        """After a first one, and no hedge: what retry figures count."""
        return self.place > 0 and not self.hedge

    @property
    def redundant(self):
        return self.role == "repeat" or self.role == "undelivered" and self.operation.count > 1


class Operation:
    """The attempts of one request, in their order."""

    def __init__(self, attempts):
        self.attempts = sorted(attempts, key=lambda it: it.began)
        self.count, self.first, last = len(attempts), self.attempts[0], self.attempts[-1]
        self.service, self.request_id = self.first.service, self.first.event["request_id"]
        numbers = [it.event["attempt"] for it in self.attempts]
        assert numbers == list(range(self.count)), f"{self.request_id} has the attempts {numbers}"
        goes_on = [it.decision in GOES_ON for it in self.attempts]
        assert all(goes_on[:-1]), f"{self.request_id} goes on after its end"
        self.began = min(it.began for it in attempts)
        self.ended = max(it.ended for it in attempts)
        self.delivered = min((it for it in attempts if it.decision == "success"), key=lambda it: it.ended, default=None)
        self.outcome = (
            "delivered" if self.delivered else
            "abandoned" if goes_on[-1] else
            "cancelled" if last.decision == "cancelled" else
            "timed_out" if any(it.kind in ("read", "stream") for it in attempts) else "failed")
        overlaps = [False] + [hedged(*pair) for pair in zip(self.attempts, self.attempts[1:])] + [False]
        for place, it in enumerate(self.attempts):
            it.operation, it.place, it.hedge = self, place, overlaps[place]
            it.role = (
                "cached" if it.cached else
                "delivered" if it is self.delivered else
                "cancelled" if it.kind == "cancelled" else
                "hedge" if overlaps[place] or overlaps[place + 1] else
                "repeat" if self.delivered else "undelivered")
        self.confirmed, self.expected, self.ceiling = (
            total(getattr(it, name) for it in attempts) for name in ("confirmed", "expected", "ceiling"))
        redundant = [it for it in self.attempts if it.redundant]
        self.redundant_confirmed = none_is_zero(it.confirmed for it in redundant)
        self.redundant_expected = none_is_zero(it.expected for it in redundant)
        self.cost_unknown = sum(it.expected is None for it in attempts)
        counted = [it for it in attempts if it.role not in ("hedge", "cancelled") and not it.hedge]
        self.billed = sum(it.state == "billed" for it in counted)
        self.likely = sum(it.state == "unknown" and it.p >= Decimal("0.5") for it in counted)
        self.repeated = ("confirmed" if self.billed >= 2 else
                         "likely" if self.billed + self.likely >= 2 else None)


def hedged(before, after):
    """The next one was sent while the one before was still under way."""
    elapsed = before.ended - before.began
    overlap = before.ended - after.began
    return overlap > 250_000 and overlap * 20 > elapsed


def read(truth, prices):
    """All operations of a truth file, by their start."""
    rows = share.operations(share.read(truth, prices, {}), prices)
    requests = share.by(rows, lambda row: (row[0]["service"], row[0]["request_id"]))
    found = [Operation([Attempt(row, prices) for row in group]) for group in requests.values()]
    logs_success = {it.service for it in found if it.delivered}
    assert all(it.service in logs_success for it in found), "a service logs no success: not read here"
    return sorted(found, key=lambda it: (it.began, it.request_id))


def grouped(items, key):
    groups = collections.defaultdict(list)
    for it in items:
        groups[key(it)].append(it)
    return groups


def percent(part, whole):
    return Decimal(100 * part) / whole if whole else None


def repeated_billing(operations):
    """By service."""
    out = {}
    for service, group in grouped(operations, lambda it: it.service).items():
        of = lambda word: [it for it in group if it.repeated == word]
        confirmed, likely = of("confirmed"), of("likely")
        both = confirmed + likely
        out[service] = {
            "confirmed_operations": len(confirmed),
            "confirmed_redundant_usd": none_is_zero(it.redundant_confirmed for it in confirmed),
            "confirmed_redundant_expected_usd": none_is_zero(it.redundant_expected for it in confirmed),
            "likely_operations": len(likely),
            "likely_redundant_confirmed_usd": none_is_zero(it.redundant_confirmed for it in likely),
            "likely_redundant_expected_usd": none_is_zero(it.redundant_expected for it in likely),
            "operations": len(group),
            "billed_attempts": sum(it.billed for it in both),
            "likely_billed_attempts": sum(it.likely for it in both),
            "cost_unknown": sum(it.cost_unknown > 0 for it in both),
        }
    return out


def evidence(operation):
    """Per attempt: place, class, whether billed and by what it is known, the cost."""
    out = []
    for it in operation.attempts:
        known_by = "caller" if it.cached else "usage" if it.usage else "policy"
        chance = [f"p={plain(it.p)}", it.basis] if it.state == "unknown" else [known_by]
        cost = "cost unknown" if it.expected is None else f"${plain(it.expected)}"
        excuse = f"({it.role})" if it.role in ("hedge", "cancelled") else None
        out.append(" ".join(filter(None, [str(it.place), it.kind, it.state, *chance, cost, excuse])))
    return "; ".join(out)


def ids(operation):
    """Per attempt: the id that the provider knows it by, else the caller's own."""
    of = lambda event: event.get("server_request_id") or event.get("client_request_id") or "-"
    return "; ".join(f"{it.place} {of(it.event)}" for it in operation.attempts)


def rescue(operations, key):
    """By key, class of the first failure and number of the retry: those of which anything was tried,
    and of a class that nobody retries a first one that was not."""
    failed = [it for it in operations
              if it.first.decision not in ("success", "cancelled") and it.first.kind != "cancelled"]
    out = {}
    for (name, kind), group in grouped(failed, key).items():
        tries = collections.defaultdict(list)
        for operation in group:
            retries = [it for it in operation.attempts if it.is_retry]
            for n, it in enumerate(retries, 1):
                tries[min(n, 4)].append((it, it is operation.delivered, it.model != operation.first.model))
        for n, tried in sorted(tries.items()) or [(1, [])]:
            same = [delivers for _, delivers, other in tried if not other]
            other = [delivers for _, delivers, other in tried if other]
            part = percent(sum(same), len(group))
            enough = len(group) >= 30 and same
            out[name, kind, str(n) if n < 4 else "4+"] = {
                "first_failures": len(group),
                "tried": len(same),
                "rescued": sum(same),
                "rescue_share_pct": part,
                "mark": "one more pays" if enough and part > 10 else "the boundary" if enough and part < 3 else None,
                "rescue_rate_pct": percent(sum(same), len(same)),
                "fallback_tried": len(other),
                "fallback_rescued": sum(other),
                "fallback_share_pct": percent(sum(other), len(group)),
                "retry_expected_usd": none_is_zero(it.expected for it, *_ in tried),
                "retries_cost_unknown": sum(it.expected is None for it, *_ in tried),
            }
    return out


def resends(operations):
    """Chains, by the request_id of their first operation."""
    senders = grouped(
        (it for it in operations if it.first.event["scenario"] not in ("probe", "eval") and it.outcome != "cancelled"),
        lambda it: (it.service, it.first.event["tenant"], it.first.event["prompt_hash"]))
    out = {}
    for (service, tenant, prompt), group in senders.items():
        chain = []
        for before, it in zip([None] + group, group):
            assert before is None or before.ended <= it.began, f"{prompt}: operations overlap: not read here"
            again = before is not None and before.outcome in LOST and it.began <= before.ended + AGAIN
            if chain and not (again and it.began < chain[0].began + CHAIN):
                out.update(finding(service, tenant, prompt, chain))
                chain = []
            if again or it.outcome in LOST:
                chain.append(it)
        out.update(finding(service, tenant, prompt, chain))
    return out


def finding(service, tenant, prompt, chain):
    """What the report says of a chain; one operation is none."""
    if len(chain) < 2:
        return {}
    first, last = chain[0], chain[-1]
    expected = total(it.expected for it in chain)
    later = total(it.expected for it in chain[1:])
    ids = [it.request_id for it in chain]
    return {ids[0]: {
        "key": service, "sender": f"tenant {tenant}", "chains": 1, "operations": len(chain), "resends": len(chain) - 1,
        "attempts": sum(it.count for it in chain), "span_ms": (last.ended - first.began) // 1_000,
        "expected_usd": expected, "again_expected_usd": later,
        "confirmed_usd": total(it.confirmed for it in chain), "ceiling_usd": total(it.ceiling for it in chain),
        "cost_unknown": sum(it.cost_unknown for it in chain), "last_outcome": last.outcome,
        "last_request_id": ids[-1], "predecessors": ", ".join(ids[:-1][:10]) + (" ..." if len(ids) > 11 else ""),
        "prompt_hash": prompt,
    }}


def toll(operations):
    """The headline; shares as share.py has them."""
    attempts = [it for operation in operations for it in operation.attempts]
    redundant = [it for it in attempts if it.redundant]
    expected, spend = none_is_zero(it.expected for it in redundant), total(it.expected for it in attempts)
    shares = share.figures([it.row for it in attempts])
    billed, delivered = sum(it.state == "billed" for it in attempts), sum(it.role == "delivered" for it in attempts)
    wire = sum(not it.cached for it in attempts)
    retried = sum(any(it.is_retry for it in operation.attempts) for operation in operations)
    return {"toll": {
        "toll_expected_usd": expected, "toll_confirmed_usd": none_is_zero(it.confirmed for it in redundant),
        "toll_share_pct": 100 * expected / spend, "retry_share_pct": 100 * shares["share"],
        "spend_expected_usd": spend, "spend_confirmed_usd": total(it.confirmed for it in attempts),
        "retry_expected_usd": shares["retry_expected"], "retry_confirmed_usd": shares["retry_confirmed"],
        "retry_rate_pct": percent(retried, len(operations)),
        "amplification": Decimal(billed) / delivered, "wire_amplification": Decimal(wire) / delivered,
        "operations": len(operations), "operations_retried": retried, "open_operations": 0,
        "repeated_confirmed_operations": sum(it.repeated == "confirmed" for it in operations),
        "repeated_likely_operations": sum(it.repeated == "likely" for it in operations),
        "attempts": len(attempts), "wire_attempts": wire, "cache_hits": len(attempts) - wire,
        "billed_attempts": billed, "delivered": delivered, "hedges": sum(it.hedge for it in attempts),
        "retries": sum(it.is_retry for it in attempts), "redundant_attempts": len(redundant),
        "redundant_cost_unknown": sum(it.expected is None for it in redundant),
        "cost_unknown": sum(it.expected is None for it in attempts), "unpriced": sum(it.unpriced for it in attempts),
        "coverage_pct": 100 * shares["coverage"],
    }}


def reports(operations):
    """What the program must have said: {name: {key: {field: value}}}."""
    attempts = [it for operation in operations for it in operation.attempts]
    return {
        "attempts": {f"{it.event['request_id']} {it.event['attempt']}": {
            "op_place": it.place, "op_attempts": it.operation.count, "outcome": it.operation.outcome, "role": it.role,
            "is_retry": it.place > 0, "is_hedge": it.hedge, "error_class": it.kind, "billing": it.state,
            "redundant": it.redundant, "cost_confirmed": it.confirmed, "cost_expected": it.expected,
            "cost_ceiling": it.ceiling, "expected_basis": it.basis,
        } for it in attempts},
        "operations": {it.request_id: {
            "service": it.service, "outcome": it.outcome, "attempts": it.count,
            "retries": it.count - 1, "hedges": sum(a.hedge for a in it.attempts),
            "delivered_by": it.delivered.place if it.delivered else None,
            "first_class": it.first.kind, "last_class": it.attempts[-1].kind,
            "repeated_billing": it.repeated, "confirmed_usd": it.confirmed, "expected_usd": it.expected,
            "ceiling_usd": it.ceiling, "redundant_confirmed_usd": it.redundant_confirmed,
            "redundant_expected_usd": it.redundant_expected, "cost_unknown": it.cost_unknown,
        } for it in operations},
        "toll": toll(operations),
        "repeated_billing": repeated_billing(operations),
        "repeated_operations": {it.request_id: {
            "confirmed_operations": int(it.repeated == "confirmed"), "likely_operations": int(it.repeated == "likely"),
            "evidence": evidence(it), "ids": ids(it),
        } for it in operations if it.repeated},
        "rescue_by_class": {f"{kind} {n}": row for (_, kind, n), row in rescue(
            operations, lambda it: (it.first.kind, it.first.kind)).items()},
        "rescue_by_service": {f"{name} {kind} {n}": row for (name, kind, n), row in rescue(
            operations, lambda it: (it.service, it.first.kind)).items()},
        "rescue": {n: row for (*_, n), row in rescue(operations, lambda it: ("all", None)).items()},
        "resends": resends(operations),
        "alerts": alerts.told(operations),
    }


# How a row of the program's answer is named there.
NAMES = {
    "attempts": lambda row: f"{row['request_id']} {row['attempt']}",
    "operations": lambda row: row["request_id"],
    "toll": lambda row: "toll",
    "repeated_billing": lambda row: row["key"],
    "repeated_operations": lambda row: row["request_id"],
    "rescue_by_class": lambda row: f"{row['key']} {row['retry']}",
    "rescue_by_service": lambda row: f"{row['key']} {row['first_class']} {row['retry']}",
    "rescue": lambda row: row["retry"],
    "resends": lambda row: row["first_request_id"],
    "alerts": alerts.name,
}


def plain(value):
    """A decimal as text, without an exponent and needless zeros."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def is_equal(field, seen, right):
    """Sums to the last digit; what is divided, as far as the program shows digits."""
    if seen is None or right is None or not isinstance(right, Decimal):
        return seen == right
    seen = Decimal(seen)
    if field.endswith("_pct") or field.endswith("amplification"):
        return seen == right.quantize(seen, rounding=ROUND_HALF_EVEN)
    return seen == right


def differences(name, rows, right):
    """Sentences, one for each figure of the program that is another here."""
    rows = rows["rows"] if isinstance(rows, dict) else rows
    seen = {NAMES[name](row): row for row in rows}
    wrong = [f"{name}: {len(rows)} rows, of {len(seen)} names"] if len(rows) != len(seen) else []
    wrong += [f"{name}: {key} is not in the truth" for key in seen.keys() - right.keys()]
    wrong += [f"{name}: {key} is not told" for key in right.keys() - seen.keys()]
    for key in sorted(seen.keys() & right.keys()):
        for field, value in right[key].items():
            if field not in seen[key]:
                wrong.append(f"{name}: {key} has no field {field}")
            elif not is_equal(field, seen[key][field], value):
                value = plain(value) if isinstance(value, Decimal) else value
                wrong.append(f"{name}: {field} of {key} is {seen[key][field]}, should be {value}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("truth")
    parser.add_argument("--prices", required=True)
    parser.add_argument("--compare", metavar="FOLDER", type=pathlib.Path)
    args = parser.parse_args()
    with localcontext() as context:
        context.prec = 60  # sums and products here have under 40 digits: exact
        operations = read(args.truth, share.Prices(args.prices))
        right = reports(operations)
        if args.compare is None:
            shown = {name: rows for name, rows in right.items() if name not in ("attempts", "operations")}
            print(json.dumps(shown, indent=2, default=plain))
            return 0
        wrong = [sentence for name, rows in right.items() for sentence in
                 differences(name, json.loads((args.compare / f"{name}.json").read_text()), rows)]
    for sentence in wrong[:50]:
        print(sentence, file=sys.stderr)
    compared = ", ".join(f"{len(rows)} {name}" for name, rows in right.items())
    print(f"compared {compared}: {len(wrong)} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
