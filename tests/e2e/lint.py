"""`retrytoll lint` and the first look of `run`: what is told of events whose mistakes are known, from files
and from a topic."""

import gzip
import json
import os
import subprocess
import time

from confluent_kafka import Consumer

from harness import broker, cases, events
from harness.world import World

# Two hours ago, so that `run` has no days to look back at.
START = int(time.time()) - 7_200


def event(request, attempt, second, **changes):
    """A faultless attempt of five seconds; None takes a member away."""
    it = {"request_id": request, "attempt": attempt, "service": "shop", "model": "gpt-4o-mini", "provider": "openai",
          "prompt_hash": f"hmac-sha256:{7:064}", "max_tokens": 100, "decision": "success", "input_tokens": 10,
          "output_tokens": 5, "started_at": START + second, "ts": START + second + 5, "elapsed_ms": 5_000,
          "timeout_ms": 60_000, "server_request_id": f"s-{request}-{attempt}"}
    return {name: value for name, value in (it | changes).items() if value is not None}


def timed_out(request, attempt, second, **changes):
    return event(request, attempt, second, **({"decision": "retry", "error_type": "ReadTimeout", "phase": "read",
                 "next_retry_ms": 1_000, "input_tokens": None, "output_tokens": None, "server_request_id": None} | changes))


def faultless(count, start=0):
    """So many operations of two attempts."""
    made = []
    for number in range(count):
        at = start + 60 * number
        made += [timed_out(f"good-{start}-{number}", 0, at), event(f"good-{start}-{number}", 1, at + 6)]
    return made


def write(path, made):
    path.write_bytes(b"".join(events.payload(it) + b"\n" for it in made))
    return path


def lint(w, *args, code=0, stdin=b""):
    """(stdout, stderr) of `retrytoll lint`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RETRYTOLL_")}
    ran = subprocess.run([os.environ["RETRYTOLL_BIN"], "lint", *map(str, args)], cwd=w.folder, env=clean, input=stdin,
                         capture_output=True, timeout=120)
    out, err = ran.stdout.decode(), ran.stderr.decode()
    assert ran.returncode == code, f"lint {args} ended with {ran.returncode}, not {code}: {out}{err}"
    return out, err


def answer(w, *args, **rest):
    return json.loads(lint(w, *args, "--format", "json", **rest)[0])


def told(found):
    """[(severity, rule, service, count, of)] in the order of the answer."""
    return [(f["severity"], f["rule"], f["service"], f["count"], f["of"]) for f in found["findings"]]


def clean_and_empty(w):
    """Faultless events, no event at all, and a file that is not there."""
    path = write(w.folder / "calls.jsonl", faultless(3))
    out, _ = lint(w, path.name)
    assert out.startswith("looked at 6 events of 1 service in calls.jsonl\nnothing is wrong with them\n"), out
    table = out.splitlines()[-1].split()
    assert table == ["shop", "6", *["100"] * 9], out
    assert lint(w, path.name, "--fail-over", "warning")[1] == "gate met: errors 0, warnings 0\n"
    (w.folder / "empty.jsonl").write_bytes(b"")
    assert lint(w, "empty.jsonl")[0] == "no events in empty.jsonl: there is nothing to look at\n"
    (w.folder / "blank.jsonl").write_bytes(b"\n\n")
    assert lint(w, "blank.jsonl")[0] == (
        "no events in blank.jsonl (2 records are empty): there is nothing to look at\n")
    assert "cannot read none.jsonl" in lint(w, "none.jsonl", code=1)[1]
    assert "kafka.topic is not set" in lint(w, code=2)[1]
    lint(w, path.name, "--topic", "calls", code=2)
    lint(w, path.name, "--fail-over", "info", code=2)


def mistakes(w):
    """M37, M38, M49 and others: each is told with its place and its mend, plain, gzipped, and from stdin."""
    key = "sk-proj-abcdefghijklmnopqrstuvwx"
    made = faultless(3)
    # Ten operations of a service that counts from 1.
    for number in range(10):
        made += [timed_out(f"one-{number}", 1, 60 * number, service="from-one"),
                 event(f"one-{number}", 2, 60 * number + 6, service="from-one")]
    made += [event("leak", 0, 600, api_key_id=key), event("word", 0, 660, decision="ok"),
             timed_out("guess", 0, 720, input_tokens=900), event("guess", 1, 726),
             event("lost", 0, 780, model=None), timed_out("fails", 0, 840, service="fails", decision="give_up")]
    path = write(w.folder / "calls.jsonl", made)
    whole = path.read_bytes()
    # A last line that is still being written is no mistake.
    path.write_bytes(whole + b'{"request_id":"cut')
    found = answer(w, path.name)
    assert told(found) == [
        ("error", "attempt_base", "from-one", 20, 20),
        ("error", "dead_letter", "shop", 1, None),
        ("error", "secret", "shop", 1, 10),
        ("error", "unknown_decision", "shop", 1, 10),
        ("warning", "no_success", "fails", 1, 1),
        ("warning", "timeout_with_usage", "shop", 1, 10),
    ], told(found)
    first, lost = found["findings"][0], found["findings"][1]
    assert first["mend"].startswith("set attempt_base = 1 under [source.services.from-one]"), first
    assert first["examples"][0] == {"request_id": "one-0", "file": "calls.jsonl", "line": 7}, first
    assert lost["examples"] == [{"request_id": "lost", "file": "calls.jsonl", "line": 31}], lost
    assert found["looked_at"] == {"name": "calls.jsonl", "events": 31, "dead_letters": 1, "nulls": 0, "services": 3,
                                  "requests": 17, "one_request_in": 1}, found["looked_at"]
    (w.folder / "calls.gz").write_bytes(gzip.compress(whole))
    for name, given in [("calls.gz", b""), ("-", whole)]:
        assert told(answer(w, name, stdin=given)) == told(found), name
    out, err = lint(w, path.name, "--fail-over", "error", code=3)
    assert err == "gate not met: errors 4, warnings 2\n", err
    assert key[3:] not in out and "one-0 (calls.jsonl:7)" in out, out
    # The mend mends.
    (w.folder / "retrytoll.toml").write_text(
        '[source.services.from-one]\nattempt_base = 1\n\n[source.decisions]\nok = "success"\n')
    rules = [rule for _, rule, *_ in told(answer(w, path.name))]
    assert rules == ["dead_letter", "secret", "no_success", "timeout_with_usage"], rules
    assert sorted(p.name for p in w.folder.iterdir()) == ["calls.gz", "calls.jsonl", "retrytoll.toml"]


def one_file_or_two(w):
    """An operation that goes on in the next file is whole."""
    made = faultless(4)
    one, two = write(w.folder / "1.jsonl", made[:3]), write(w.folder / "2.jsonl", made[3:])
    found = answer(w, one.name, two.name)
    assert told(found) == [] and found["looked_at"]["name"] == "2 files", found
    assert found["looked_at"]["requests"] == 4, found


def topic_flags(topic):
    return ["--bootstrap", broker.bootstrap(), "--topic", topic]


def groups():
    future = broker.admin().list_consumer_groups(request_timeout=20)
    return {group.group_id for group in future.result(20).valid}


def torn(w):
    """Operations over several partitions, double layers, and the newest of each partition only; no group is
    made and nothing is committed."""
    if cases.skip("lint of a topic"):
        return
    topic = w.topic(3)
    torn_one = [(0, timed_out("torn", 0, 600)), (2, event("torn", 1, 606))]
    layers = [(1, event("both", 0, 700, layer="app", server_request_id="s")),
              (1, event("both", 0, 700, layer="gateway", server_request_id="s"))]
    whole = [(number % 3, it) for number in range(20) for it in faultless(1, 60 * number)]
    records = [(p, events.payload(it)) for p, it in whole + torn_one + layers] + [(0, None), (1, b"{")]
    broker.produce(topic, records)
    before = groups()
    found = answer(w, *topic_flags(topic), "--set", f"kafka.group={topic}-group")
    assert told(found) == [
        ("error", "dead_letter", None, 1, None),
        ("error", "two_layers", "shop", 1, 22),
        ("warning", "torn_operation", "shop", 1, 22),
    ], told(found)
    last = found["findings"][2]
    assert [(e["request_id"], e["partition"]) for e in last["examples"]] == [("torn", 0), ("torn", 2)], last
    assert "prompt_hash" in last["mend"], last
    looked = found["looked_at"]
    assert (looked["events"], looked["nulls"], looked["dead_letters"]) == (44, 1, 1), looked
    assert looked["name"] == f"the newest of {topic} (3 partitions)", looked
    mended = answer(w, *topic_flags(topic), "--set", "source.count_layer=gateway")
    assert "two_layers" not in [rule for _, rule, *_ in told(mended)], told(mended)
    # The newest three of each partition: partition 0 ends in the torn one's first attempt and the null.
    few = answer(w, *topic_flags(topic), "--events", 9)["looked_at"]
    assert few["events"] + few["nulls"] + few["dead_letters"] == 9, few
    assert (few["nulls"], few["dead_letters"]) == (1, 1), few
    # Those of other topics come and go meanwhile.
    made = {name for name in groups() - before if topic in name or not name.startswith("e2e-")}
    assert not made, made
    consumer = Consumer({"bootstrap.servers": broker.bootstrap(), "group.id": f"{topic}-group"})
    committed = consumer.committed([broker.TopicPartition(topic, p) for p in range(3)], timeout=20)
    consumer.close()
    assert all(p.offset < 0 for p in committed), committed
    empty = w.topic(2)
    assert lint(w, *topic_flags(empty))[0].startswith(f"no events in the newest of {empty} (2 partitions)")
    assert "is not there" in lint(w, *topic_flags(f"{topic}-none"), code=1)[1]
    assert not w.lake.exists()


def first_look(w):
    """`run` logs what is wrong with the first events, once, and reads on."""
    if cases.skip("the first look of run"):
        return
    topic = w.topic(2)
    made = [(number % 2, events.payload(it)) for number in range(20) for it in faultless(1, 60 * number)]
    made += [(0, events.payload(timed_out("torn", 0, 3_000))), (1, events.payload(event("torn", 1, 3_006))),
             (0, events.payload(event("word", 0, 3_600, decision="ok")))]
    broker.produce(topic, made)
    ended = w.read_all(topic)
    assert w.count() == len(made)
    looks = ended.told("first look at the events; `retrytoll lint` tells more")
    assert [(e["events"], e["errors"], e["warnings"]) for e in looks] == [(43, 1, 1)], looks
    found = ended.told("finding")
    assert [(e["severity"], e["rule"], e["count"], e["of"]) for e in found] == [
        ("error", "unknown_decision", 1, 43), ("warning", "torn_operation", 1, 21)], found
    assert found[0]["place"] == "partition 0, offset 21" and found[0]["level"] == "WARN", found[0]
    assert "[source.decisions]" in found[0]["mend"], found[0]
    # What was read already is not looked at again.
    assert w.read_all(topic).told("finding") == []


CASES = [clean_and_empty, mistakes, one_file_or_two, torn, first_look]

if __name__ == "__main__":
    cases.main(World, CASES)
