"""A topic -> `retrytoll run` -> alerts: one id per transition on the alert topic, whoever is killed."""

import datetime
import hashlib
import json
import os
import pathlib
import subprocess
import time
from decimal import Decimal

import jsonschema

from harness import broker, cases, events
from harness.world import World

SCHEMA = jsonschema.Draft202012Validator(
    json.loads((pathlib.Path(__file__).parents[2] / "schemas/alert.v1.json").read_text()))
SERVICE = "shop"
KEY = f"retry_share/{SERVICE}"
# Quick: a tick a second in place of a minute; and one rule alone.
TICKS = {"jobs__tick": "1s", "alerts__owner": "team-shop",
         "alerts__off": "retry_storm,doomed_outage,pipeline,repeated_billing,usage_coverage,unpriced"}


def transition_id(number):
    return hashlib.sha256(f"{KEY}\n{number}".encode()).hexdigest()


def operations(count, refused, prefix):
    """`count` operations a little ago, each answered for 1 dollar; the first `refused` of them at the
    second try only, after an answer that was of no use and cost as much. Partitions take turns."""
    now = int(time.time() * 1000) - 5_000
    records = []
    for number in range(count):
        it = {"request_id": f"{prefix}-{number}", "model": "gpt-4o", "service": SERVICE, "ts": now}
        answer = {"decision": "success", "input_tokens": 0, "output_tokens": 100_000}
        unusable = answer | {"decision": "retry", "status_code": 200, "error_type": "JSONDecodeError"}
        tries = [unusable, answer] if number < refused else [answer]
        records += [(number % 2, events.payload(it | {"attempt": n} | each)) for n, each in enumerate(tries)]
    return records


def topic_with_alerts(w):
    topic = w.topic(2)
    w.beside(topic, "alerts")
    return topic


def told(topic):
    """The events on the alert topic, in order; each is as its schema says, under the key of its alert.
    Heartbeats are left out."""
    found = []
    for message in broker.messages(f"{topic}.alerts"):
        event = json.loads(message.value())
        if event["type"] == "dev.retrytoll.heartbeat.v1":
            continue
        SCHEMA.validate(event["data"])
        assert message.key().decode() == event["data"]["dedup_key"] == KEY, (message.key(), event)
        assert event["id"] == event["data"]["id"] == transition_id(event["data"]["transition"]), event
        found.append(event)
    return found


def states(topic):
    """(id, state) of every transition that was told, once each."""
    return {(event["id"], event["data"]["state"]) for event in told(topic)}


def outbox(w):
    """(transition, revision, state, ends_reason) of every row of the table `alerts`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RETRYTOLL_")}
    out = subprocess.run(
        [os.environ["RETRYTOLL_BIN"], "sql", "--lake", w.lake, "--format", "json",
         "SELECT transition, revision, state, ends_reason FROM alerts ORDER BY 1, 2"],
        check=True, capture_output=True, text=True, env=clean).stdout
    return [(r["transition"], r["revision"], r["state"], r["ends_reason"]) for r in json.loads(out)]


def leader_claims(w):
    """How often the leader's place was taken."""
    numbers = [0]
    for entry in sorted((w.lake / "alerts/_delta_log").glob("*.json")):
        for line in map(json.loads, entry.read_text().splitlines()):
            if line.get("txn", {}).get("appId") == "retrytoll/leader":
                numbers.append(line["txn"]["version"])
    return max(numbers)


def leader(tolls):
    """The instance that owns partition 0, when one alone does."""
    found = [t for t in tolls if t.is_up() and 0 in t.owned()]
    return found[0] if len(found) == 1 else None


FIRED = (transition_id(1), "firing")
RESOLVED = (transition_id(2), "resolved")


def fires_and_resolves_through_crashes(w):
    """Two instances: the alert fires once; the leader is killed, then both are, and each time it is told
    again under its id and no other; then it resolves, and both stop in time."""
    topic = topic_with_alerts(w)
    tolls = [w.run(topic, **TICKS) for _ in range(2)]
    cases.until("each instance owns a partition", lambda: all(len(t.owned()) == 1 for t in tolls if t.is_up()), 40)
    # 220 operations, 25 of them answered twice: of 245 dollars 25 are retries', and 25 redundant.
    broker.produce(topic, operations(220, 25, "first"))
    cases.until("an alert", lambda: told(topic), 40)
    data = told(topic)[0]["data"]
    assert (data["state"], data["severity"], data["entity"], data["owner"]) == (
        "firing", "error", SERVICE, "team-shop"), data
    figures = {bound["figure"]: Decimal(bound["value"]) for bound in data["bounds"]}
    assert figures["operations"] == 220 and figures["redundant_expected_usd"] == 25, figures
    assert round(figures["share_pct"], 6) == round(Decimal(2500) / 245, 6), figures
    assert data["stale"] is False and data["top"][0]["retries"] == 25, data

    def told_again(before, seconds):
        cases.until("told again", lambda: len(told(topic)) > before, seconds)
        assert states(topic) == {FIRED}, states(topic)

    killed = cases.until("one leader", lambda: leader(tolls), 20)
    before = len(told(topic))
    killed.kill()
    tolls.remove(killed)
    told_again(before, 60)
    tolls.append(w.run(topic, **TICKS))
    cases.until("each instance owns a partition", lambda: all(len(t.owned()) == 1 for t in tolls if t.is_up()), 40)
    for toll in tolls:
        toll.kill()
    before = len(told(topic))
    tolls = [w.run(topic, **TICKS) for _ in range(2)]
    told_again(before, 60)

    # 400 more first attempts: 25 of 620 dollars are under 90 % of 5 %.
    broker.produce(topic, operations(400, 0, "second"))
    cases.until("the end of it", lambda: RESOLVED in states(topic), 60)
    assert states(topic) == {FIRED, RESOLVED}, states(topic)
    assert told(topic)[-1]["data"]["ends_reason"] == "recovered"
    for toll in tolls:
        toll.stop(10)
    # Six processes, one leader at a time: each takes the place a few times at most.
    assert leader_claims(w) <= 9, leader_claims(w)
    # Decided once, marked once: a crash came at no send, so nothing was marked twice.
    assert outbox(w) == [(1, 0, "firing", None), (1, 1, "firing", None),
                         (2, 0, "resolved", "recovered"), (2, 1, "resolved", "recovered")], outbox(w)


def a_read_to_the_end_looks_once(w):
    """`run --until-end`: the alert of what it read is told before it ends; a second run decides nothing."""
    topic = topic_with_alerts(w)
    broker.produce(topic, operations(220, 25, "first"))
    for _ in range(2):
        w.read_all(topic, **TICKS)
        assert states(topic) == {FIRED}, states(topic)
    assert outbox(w) == [(1, 0, "firing", None), (1, 1, "firing", None)], outbox(w)


def a_topic_that_is_down_delays_and_loses_nothing(w):
    """The alert topic refuses every record: rows go on, and the alert is told when it takes them again,
    by another process."""
    topic = topic_with_alerts(w)
    # Smaller than any alert, so that each is refused.
    broker.configure(f"{topic}.alerts", "max.message.bytes", "100")
    toll = w.run(topic, **TICKS)
    broker.produce(topic, operations(220, 25, "first"))
    cases.until("a warning", lambda: toll.is_up() and toll.told("alerts; they are tried again"), 60)
    broker.produce(topic, operations(10, 0, "more"))
    w.wait_rows(255)
    toll.stop(10)
    assert not told(topic) and outbox(w) == [(1, 0, "firing", None)], (told(topic), outbox(w))
    broker.configure(f"{topic}.alerts", "max.message.bytes", "1000000")
    toll = w.run(topic, **TICKS)
    cases.until("an alert", lambda: toll.is_up() and told(topic), 60)
    assert states(topic) == {FIRED}, states(topic)
    toll.stop(10)


def a_budget_opens_the_breaker(w):
    """More retries in the clock hour than alerts.retries_per_hour: an alert, and a record that says until
    when; and the instance's heartbeat beside it."""
    topic = topic_with_alerts(w)
    w.beside(topic, "breaker", config={"cleanup.policy": "compact"})
    # Retries of an hour that has just ended would be in no budget any more.
    cases.until("an hour with a minute left", lambda: time.gmtime().tm_min < 59, 70)
    off = TICKS["alerts__off"] + ",retry_share"
    toll = w.run(topic, **TICKS | {"alerts__off": off, "alerts__retries_per_hour": "5"})
    broker.produce(topic, operations(10, 10, "retried"))

    def alerts_and_beats():
        events = [json.loads(message.value()) for message in broker.messages(f"{topic}.alerts")]
        alerts = [it["data"] for it in events if it["type"] == "dev.retrytoll.alert.v1"]
        return alerts, [it["data"] for it in events if it["type"] == "dev.retrytoll.heartbeat.v1"]

    cases.until("an alert", lambda: toll.is_up() and alerts_and_beats()[0], 40)
    alerts, beats = alerts_and_beats()
    SCHEMA.validate(alerts[0])
    assert (alerts[0]["rule"], alerts[0]["entity"], alerts[0]["severity"], alerts[0]["state"]) == (
        "retry_budget", SERVICE, "error", "firing"), alerts[0]
    assert beats and beats[0]["problems"] == [], beats
    record = broker.messages(f"{topic}.breaker")[0]
    control = json.loads(record.value())
    assert record.key().decode() == control["scope"] == SERVICE, (record.key(), control)
    assert control["state"] == "open" and control["budget"] == 5 and 5 < control["used"] <= 10, control
    opened = datetime.datetime.fromisoformat(control["opened_at"])
    until = datetime.datetime.fromisoformat(control["until"])
    assert until.minute == until.second == 0 and opened <= until <= opened + datetime.timedelta(hours=1), control
    toll.stop(10)


CASES = [fires_and_resolves_through_crashes, a_budget_opens_the_breaker, a_read_to_the_end_looks_once,
         a_topic_that_is_down_delays_and_loses_nothing]

if __name__ == "__main__":
    if not cases.skip("alerts of a topic"):
        cases.main(World, CASES)
