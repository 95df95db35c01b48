"""(seed, count, day) -> retry-decision events of a made-up company, in the order of their time.

An event comes as (timestamp in ms, prompt hash, payload). A retry follows its attempt after the
time-out and the wait, so that the attempts of many operations interleave. Ids and hashes are
random: they compress badly, as real ones do. Nothing is held but the retries still to come.
"""

import datetime
import heapq
import json
import random

DAY_MS = 86_400_000
# Events per second of their own time; it sets how many requests lie within the dedupe horizon.
RATE = 300
# (service, provider, model, max_tokens, typical input, share of the operations)
SERVICES = [
    ("support-chat", "openai", "gpt-4o-mini", 512, 1_800, 45),
    ("product-search", "gemini", "gemini-2.5-flash", 256, 900, 25),
    ("contract-review", "anthropic", "claude-sonnet-4-5", 4_096, 24_000, 20),
    ("night-eval", "openai", "acme-tuned-preview", 1_024, 3_000, 10),
]
WEIGHTS = [service[-1] for service in SERVICES]
TENANTS = ["acme", "globex", "initech", "umbrella", "hooli"]
# How an attempt ends, and of a hundred how many do.
SUCCESS = {"decision": "success"}
TIMEOUT = {"error_type": "ReadTimeout", "phase": "read"}
LIMITED = {"error_type": "rate_limit_error", "status_code": 429}
BROKEN = {"error_type": "api_error", "status_code": 500}
CUT = {"error_type": "connection_reset", "phase": "stream"}
ENDS, END_WEIGHTS = [SUCCESS, TIMEOUT, LIMITED, BROKEN, CUT], [88, 5, 4, 2, 1]
RETRIES = 2


def window(count, day, now_ms):
    """(first, last) timestamp. `open`: up to now, within today (UTC); `closed`: three days ago."""
    midnight = now_ms - now_ms % DAY_MS
    span_ms = count * 1_000 // RATE
    if day == "closed":
        return midnight - 3 * DAY_MS, midnight - 3 * DAY_MS + min(span_ms, DAY_MS - 1)
    return max(midnight, now_ms - span_ms), now_ms


def text(ts_ms):
    at = datetime.datetime.fromtimestamp(ts_ms / 1_000, datetime.timezone.utc)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def operation(rng):
    """What all attempts of an operation share."""
    service, provider, model, max_tokens, typical, _ = rng.choices(SERVICES, WEIGHTS)[0]
    return {"request_id": f"req_{rng.getrandbits(96):024x}", "model": model,
            "prompt_hash": f"sha256:{rng.randbytes(32).hex()}", "max_tokens": max_tokens, "service": service,
            "tenant": rng.choice(TENANTS), "provider": provider,
            "input_tokens": typical // 2 + rng.randrange(typical)}


def attempt(rng, shared, number, ts_ms):
    """(event, ms until the next attempt's end, or None after an ending decision)."""
    end = rng.choices(ENDS, END_WEIGHTS)[0]
    event = shared | {"attempt": number, "ts": text(ts_ms)} | end
    if end is SUCCESS:
        event |= {"elapsed_ms": rng.randrange(400, 9_000),
                  "cached_input_tokens": rng.choice([0, shared["input_tokens"] // 2]),
                  "output_tokens": rng.randrange(8, shared["max_tokens"]),
                  "server_request_id": f"chatcmpl-{rng.getrandbits(96):024x}"}
        return event, None
    event |= {"elapsed_ms": 30_000 if end is TIMEOUT else rng.randrange(50, 2_000), "read_timeout_ms": 30_000,
              "usage_source": "estimated"}
    if number == RETRIES:
        return event | {"decision": "give_up"}, None
    wait_ms = (1_000 << number) + rng.randrange(1_000)
    return event | {"decision": "retry", "next_retry_ms": wait_ms}, wait_ms + rng.randrange(400, 9_000)


def events(seed, count, first_ms, last_ms):
    """`count` events, evenly over the window; no two are the same."""
    rng, due, made = random.Random(seed), [], 0
    while made < count:
        ts_ms = first_ms + (last_ms - first_ms) * made // count
        if due and due[0][0] <= ts_ms:
            _, _, shared, number = heapq.heappop(due)
        else:
            shared, number = operation(rng), 0
        event, after_ms = attempt(rng, shared, number, ts_ms)
        if after_ms is not None:
            heapq.heappush(due, (ts_ms + after_ms, made, shared, number + 1))
        yield ts_ms, shared["prompt_hash"], json.dumps(event, separators=(",", ":")).encode()
        made += 1
