"""Alerts of a topic or a lake -> `retrytoll alerts` -> PagerDuty, Alertmanager, a webhook, a line: each
transition once, whoever dies, and what is refused or late stops no other."""

import datetime
import hashlib
import json
import pathlib
import time
from collections import Counter

import jsonschema

import kafka_alerts
from harness import broker, cases
from harness.sink import Sink, free_port
from harness.world import World

ROOT = pathlib.Path(__file__).parents[2]
ROUTING_KEY = "0123456789abcdef0123456789abcdef"


def schema(path):
    return jsonschema.Draft202012Validator(json.loads((ROOT / path).read_text()))


ALERT, EVENT = schema("schemas/alert.v1.json"), schema("tests/sinks/cloudevents.v1.json")
PAGERDUTY, ALERTMANAGER = schema("tests/sinks/pagerduty.v2.json"), schema("tests/sinks/alertmanager.v2.json")


def instant(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# Event time: a while ago, and a minute on with each transition of an alert.
BEGAN = int(time.time()) - 3600


def alert(entity, number=1):
    """The event of the alert's transition: odd numbers fire."""
    key = f"retry_share/{entity}"
    ident = hashlib.sha256(f"{key}\n{number}".encode()).hexdigest()
    fires, at = number % 2 == 1, instant(BEGAN + 60 * number)
    data = {
        "dedup_key": key, "id": ident, "transition": number, "rule": "retry_share", "entity": entity,
        "entity_kind": "service", "state": "firing" if fires else "resolved", "severity": "critical",
        "starts_at": at if fires else instant(BEGAN + 60 * (number - 1)), "ends_at": None if fires else at,
        "ends_reason": None if fires else "recovered", "at": at, "stale": False,
        "summary": f"share of {entity}, number {number}", "owner": None, "runbook_url": None,
        "usd_per_hour": {"confirmed": "6", "expected": "6.505", "ceiling": None}}
    ALERT.validate(data)
    event = {"specversion": "1.0", "id": ident, "source": "/retrytoll/g", "type": "dev.retrytoll.alert.v1",
             "subject": entity, "time": at, "data": data}
    EVENT.validate(event)
    return json.dumps(event).encode()


def alert_topic(w, partitions=1):
    topic = w.topic(1)
    w.beside(topic, "alerts", partitions)
    return topic


def tell(topic, *alerts, partition=0):
    broker.produce(f"{topic}.alerts", [(partition, alert(*it)) for it in alerts])


def start(w, *args, **env):
    return w.start("alerts", *args, env={"NO_PROXY": "127.0.0.1"} | env)


def follow(w, topic, *args, **env):
    return start(w, "--follow", "--bootstrap", broker.bootstrap(), "--topic", topic, "--set",
                 f"kafka.group={topic}-group", "--set", "kafka.session_timeout=6s", *args, **env)


def settled(topic, service):
    """Waits until all that was told is dealt with, and the broker knows."""
    group = f"{topic}-group.alerts.{service}"
    cases.until("no lag", lambda: broker.lag(f"{topic}.alerts", group) == 0, 40)


def paged(sink):
    """(event_action, entity) of what PagerDuty accepted; each is as its schema says."""
    bodies = sink.bodies()
    for body in bodies:
        PAGERDUTY.validate(body)
        assert body["routing_key"] == ROUTING_KEY, body
    return Counter((body["event_action"], body["dedup_key"].split("/")[1]) for body in bodies)


def pages_once_over_restarts(w):
    """PagerDuty answers 429, 500, 400: what can be taken later is, what is refused stops no other and is tried
    when it is told again; kill -9 and SIGTERM repeat nothing, though the topic does, out of order too."""
    topic = alert_topic(w)
    answers = {"a": [(429, {"Retry-After": 1}), (500, {})], "b": [(400, {})]}

    def plan(body):
        left = answers.get(body["dedup_key"].split("/")[1])
        return left.pop(0) if left else None

    sink = Sink(202, plan=plan)
    args = (topic, "--to", "pagerduty", "--url", sink.url("/v2/enqueue"))
    key = {"RETRYTOLL_PAGERDUTY_ROUTING_KEY": ROUTING_KEY}
    tell(topic, ["a"], ["b"], ["c"])
    toll = follow(w, *args, **key)
    due = Counter({("trigger", "a"): 1, ("trigger", "c"): 1})
    cases.until("a and c are paged", lambda: toll.is_up() and paged(sink) == due, 40)
    assert [len(sink.answered(status)) for status in (429, 500, 400)] == [1, 1, 1], sink.came
    refused = toll.told("alert refused")
    assert len(refused) == 1 and refused[0]["dedup_key"] == "retry_share/b", refused
    assert refused[0]["level"] == "ERROR" and "told 400" in refused[0]["why"], refused
    assert len(toll.told("alert not sent yet")) == 2, toll.text()

    # As each minute; the last one is told after all others, so they were looked at before it.
    tell(topic, ["a"], ["b"], ["c"], ["last-1"])
    due += Counter({("trigger", "b"): 1, ("trigger", "last-1"): 1})
    cases.until("b is paged", lambda: toll.is_up() and paged(sink) == due, 40)
    settled(topic, "pagerduty")
    assert len(toll.lines()) == 4 and "FIRING    critical  share of a, number 1" in toll.lines()[0] + toll.lines()[1]
    toll.kill()

    tell(topic, ["a"], ["b"], ["a", 2], ["c"], ["last-2"])
    toll = follow(w, *args, **key)
    due += Counter({("resolve", "a"): 1, ("trigger", "last-2"): 1})
    cases.until("a is resolved", lambda: toll.is_up() and paged(sink) == due, 60)
    settled(topic, "pagerduty")
    toll.stop(20)

    broker.produce(f"{topic}.alerts", [(0, b"no alert"), (0, None)])
    tell(topic, ["a", 1], ["a", 2], ["b"], ["a", 3], ["last-3"])
    toll = follow(w, *args, **key)
    due += Counter({("trigger", "a"): 1, ("trigger", "last-3"): 1})
    cases.until("a is paged anew", lambda: toll.is_up() and paged(sink) == due, 60)
    settled(topic, "pagerduty")
    assert paged(sink) == due and len(toll.told("no alert, passed over")) == 2, toll.text()
    toll.stop(20)
    assert all(ROUTING_KEY not in it.text() for it in w.processes)
    sink.close()


def a_webhook_gets_each_event_as_it_is(w):
    """The receiver is down at first. Two senders share the partitions; one is killed, the other goes on."""
    topic = alert_topic(w, 2)
    gone = Sink(204, free_port())
    gone.close()
    args = (topic, "--to", "webhook", "--url", gone.url("/hook?x=secret"))
    names = [f"s{n}" for n in range(6)]
    for partition in (0, 1):
        tell(topic, *([name] for name in names[partition::2]), partition=partition)
    tolls = [follow(w, *args)]
    cases.until("it is tried", lambda: tolls[0].is_up() and tolls[0].told("alert not sent yet"), 40)
    sink = Sink(204, gone.port)
    got = lambda: Counter(raw for _, _, raw in sink.answered())
    due = Counter(alert(name) for name in names)
    cases.until("all are told", lambda: tolls[0].is_up() and got() == due, 60)
    settled(topic, "webhook")
    tolls.append(follow(w, *args, "--log", "info"))
    cases.until("both have a partition", lambda: tolls[1].is_up() and len(tolls[1].owned()) == 1, 40)
    for partition in (0, 1):
        tell(topic, *([name] for name in names[partition::2]), [f"new-{partition}"], partition=partition)
    due += Counter([alert("new-0"), alert("new-1")])
    cases.until("the new ones", lambda: got() == due, 40)
    settled(topic, "webhook")
    tolls[0].kill()
    for partition in (0, 1):
        tell(topic, [f"new-{partition}"], *([name, 2] for name in names[partition::2]), partition=partition)
    due += Counter(alert(name, 2) for name in names)
    cases.until("their ends", lambda: tolls[1].is_up() and got() == due, 60)
    settled(topic, "webhook")
    assert got() == due, got() - due
    for path, headers, raw in sink.answered():
        assert path == "/hook?x=secret" and headers["content-type"] == "application/cloudevents+json", (path, headers)
        EVENT.validate(json.loads(raw))
    tolls[1].stop(20)
    # What stands in an address is no one's business.
    assert all("secret" not in it.text() for it in w.processes)
    sink.close()


def alertmanager_is_told_again_and_again(w):
    """What fires is sent each interval, by our own timer; after its end no more, also if the topic is late."""
    topic = alert_topic(w)
    fails = [(503, {})]
    sink = Sink(200, plan=lambda _: fails.pop() if fails else None)
    args = (topic, "--to", "alertmanager", "--url", sink.url("/am/"), "--every", "1s")

    def sent(entity):
        """Of this service: whether it fires by what was sent, in order."""
        found = []
        for body in sink.bodies():
            ALERTMANAGER.validate(body)
            (one,) = body
            labels, ends = one["labels"], datetime.datetime.fromisoformat(one["endsAt"])
            assert labels == {"alertname": "RetryShare", "severity": "critical", "source": "/retrytoll/g",
                              "service": labels["service"]}, labels
            if labels["service"] == entity:
                # An end in the past is in the past of all that was sent.
                found.append(ends.timestamp() > BEGAN + 3600)
        return found

    def fires(toll, times):
        before = len(sent("a"))
        cases.until("it is told again", lambda: toll.is_up() and len(sent("a")) >= before + times, 60)
        assert all(sent("a")), sent("a")

    tell(topic, ["a"])
    toll = follow(w, *args)
    fires(toll, 3)
    assert len(sink.answered(503)) == 1
    toll.stop(20)
    # The place is kept: what fires is known when the topic tells it again, as it does each minute.
    toll = follow(w, *args)
    tell(topic, ["a"])
    fires(toll, 2)
    tell(topic, ["a", 2], ["a", 1], ["last"])
    cases.until("the end", lambda: toll.is_up() and sent("a")[-1:] == [False] and len(sent("last")) >= 2, 40)
    assert sent("a").count(False) == 1 and sent("a")[-1] is False, sent("a")
    assert {path for path, _, _ in sink.answered()} == {"/am/api/v2/alerts"}
    # One line for each transition, not for each send.
    assert len(toll.lines()) == 2, toll.lines()
    toll.stop(20)
    sink.close()


def a_reader_sees_each_transition_once(w):
    """`alerts --follow` prints what was told since, and what is told from now on, each transition in a line."""
    topic = alert_topic(w)
    tell(topic, ["a"], ["a"], ["b"], ["a"])
    text, events_ = follow(w, topic), follow(w, topic, "--format", "json")
    for toll in (text, events_):
        cases.until("two lines", lambda: toll.is_up() and len(toll.lines()) == 2, 40)
    tell(topic, ["b"], ["a"], ["a", 2], ["last"])
    for toll in (text, events_):
        cases.until("four lines", lambda: toll.is_up() and len(toll.lines()) == 4, 40)
    at = [instant(BEGAN + 60 * n) for n in (1, 2)]
    fired = "FIRING    critical  share of {}, number 1; last hour $6.50 redundant"
    assert text.lines() == [
        f"{at[0]}  {fired.format('a')}", f"{at[0]}  {fired.format('b')}",
        f"{at[1]}  RESOLVED  critical  share of a, number 2", f"{at[0]}  {fired.format('last')}"], text.lines()
    told = [alert("a"), alert("b"), alert("a", 2), alert("last")]
    assert [json.loads(line) for line in events_.lines()] == [json.loads(it) for it in told]
    for toll in (text, events_):
        toll.stop(20)


def from_events_to_a_page(w):
    """events -> `run` -> alert -> a page; both are killed, and the alert is told again: no second page; its end
    resolves it. The list says so."""
    topic = kafka_alerts.topic_with_alerts(w)
    sink = Sink(202)
    args = (topic, "--to", "pagerduty", "--url", sink.url())
    secret = w.folder / "key"
    secret.write_text(f"{ROUTING_KEY}\n")
    pager = follow(w, *args, "--routing-key-file", secret)
    run = w.run(topic, **kafka_alerts.TICKS)
    broker.produce(topic, kafka_alerts.operations(220, 25, "first"))
    service = kafka_alerts.SERVICE
    due = Counter({("trigger", service): 1})
    cases.until("a page", lambda: pager.is_up() and run.is_up() and paged(sink) == due, 90)
    settled(topic, "pagerduty")
    run.kill()
    pager.kill()
    before = len(kafka_alerts.told(topic))
    run = w.run(topic, **kafka_alerts.TICKS)
    pager = follow(w, *args, "--routing-key-file", secret)
    cases.until("told again", lambda: run.is_up() and len(kafka_alerts.told(topic)) > before, 60)
    settled(topic, "pagerduty")
    assert paged(sink) == due, paged(sink)
    broker.produce(topic, kafka_alerts.operations(400, 0, "second"))
    due += Counter({("resolve", service): 1})
    cases.until("its end", lambda: pager.is_up() and run.is_up() and paged(sink) == due, 90)
    settled(topic, "pagerduty")
    assert paged(sink) == due, paged(sink)
    (row,) = listed(w)
    assert (row["state"], row["why"], row["entity"]) == ("resolved", "recovered", service), row
    for toll in (run, pager):
        toll.stop(20)
    sink.close()


def listed(w):
    """The list, as JSON."""
    toll = start(w, "--lake", w.lake, "--format", "json").ends()
    return json.loads("\n".join(toll.lines()))


def ingest(w, name, *operations):
    """A lake of these, and the alerts that were told of it."""
    path, told = w.folder / name, w.folder / f"{name}.alerts"
    path.write_bytes(b"".join(payload + b"\n" for _, payload in kafka_alerts.operations(*operations)))
    off = kafka_alerts.TICKS["alerts__off"]
    w.start("ingest", path, "--alerts", told, "--lake", w.lake, "--set", "jobs.tick=1s",
            "--set", f"alerts.off={off}").ends(0, 120)
    return told.read_text().splitlines()


def a_lake_is_listed_and_sent(w):
    """Without a topic: the list; what stands now is sent once, and it is said what was refused."""
    start(w, "--lake", w.folder / "nowhere").ends(1)
    assert not (w.folder / "nowhere").exists()
    (told,) = ingest(w, "first.jsonl", 220, 25, "first")
    (row,) = listed(w)
    assert (row["state"], row["severity"], row["rule"], row["entity"], row["ended"], row["why"]) == (
        "firing", "error", "retry_share", kafka_alerts.SERVICE, None, None), row
    assert row["usd_per_hour"] == "25" and row["summary"] == json.loads(told)["data"]["summary"], row

    sink = Sink(202)
    once = ("--lake", w.lake, "--to")
    for _ in range(2):
        start(w, *once, "webhook", "--url", sink.url()).ends()
    assert Counter(raw.decode() for _, _, raw in sink.answered()) == Counter({told: 2}), sink.came
    answers = [(400, {}), (429, {"Retry-After": 1})]
    sink.plan = lambda _: answers.pop(0) if answers else None
    page = (*once, "pagerduty", "--url", sink.url())
    key = {"RETRYTOLL_PAGERDUTY_ROUTING_KEY": ROUTING_KEY}
    refused = start(w, *page, **key).ends(1)
    assert "1 of 1 alerts were not taken" in refused.text(), refused.text()
    sink.came.clear()
    start(w, *page, **key).ends()
    assert paged(sink) == Counter({("trigger", kafka_alerts.SERVICE): 1}) and len(sink.answered(429)) == 1
    sink.came.clear()
    missing = start(w, *page).ends(2)
    assert "RETRYTOLL_PAGERDUTY_ROUTING_KEY" in missing.text() and not sink.came, missing.text()
    sink.close()


def a_lake_is_followed(w):
    """Without a topic the lake is followed: its alert, then its end, each once."""
    sink = Sink(200)
    ingest(w, "first.jsonl", 220, 25, "first")
    ingested = time.time()
    follower = start(w, "--follow", "--to", "webhook", "--url", sink.url(), "--lake", w.lake)
    reader = start(w, "--follow", "--lake", w.lake)
    states = lambda: [body["data"]["state"] for body in sink.bodies()]
    cases.until("it fires", lambda: follower.is_up() and reader.is_up() and states() and reader.lines(), 40)
    # A tick later.
    cases.until("two seconds", lambda: time.time() > ingested + 2, 10)
    ingest(w, "second.jsonl", 400, 0, "second")
    cases.until("its end", lambda: follower.is_up() and len(states()) == 2 and len(reader.lines()) == 2, 40)
    assert states() == ["firing", "resolved"], states()
    assert [line.split()[1] for line in reader.lines()] == ["FIRING", "RESOLVED"], reader.lines()
    for toll in (follower, reader):
        toll.stop(20)
    (row,) = listed(w)
    assert row["state"] == "resolved", row
    sink.close()


LOCAL = [a_lake_is_listed_and_sent, a_lake_is_followed]
OF_A_TOPIC = [pages_once_over_restarts, a_webhook_gets_each_event_as_it_is, alertmanager_is_told_again_and_again,
              a_reader_sees_each_transition_once, from_events_to_a_page]

if __name__ == "__main__":
    cases.main(World, LOCAL if cases.skip("alerts of a topic, sent") else LOCAL + OF_A_TOPIC)
