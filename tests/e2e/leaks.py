"""Prompts, keys and passwords, planted wherever they could come from: none is in a log, the lake, a dead letter or an
alert; only what is configured as `full` holds them, and that alone."""

import json
import secrets
import time

import duckdb

from harness import broker, cases
from harness.sink import Sink
from harness.world import QUICK, World, words


class Planted:
    """Texts that must be nowhere, by what they are. Letters and digits alone, so that no format escapes them."""

    def __init__(self):
        word = lambda length: "".join(secrets.choice("abcdefghjkmnpqrstuvwxyz23456789") for _ in range(length))
        self.prompt = f"quokka{word(12)}"
        self.passwords = [f"wombat{word(12)}" for _ in range(4)]
        self.keys = {
            "openai": f"sk-proj-{word(40)}", "anthropic": f"sk-ant-api03-{word(40)}", "openrouter": f"sk-or-v1-{word(40)}",
            "google": f"AIza{word(35)}", "aws": f"AKIA{word(16).upper()}", "groq": f"gsk_{word(40)}", "xai": f"xai-{word(40)}",
            "hugging face": f"hf_{word(34)}", "replicate": f"r8_{word(37)}", "perplexity": f"pplx-{word(40)}",
            "nvidia": f"nvapi-{word(40)}", "langsmith": f"lsv2_pt_{word(40)}", "github": f"ghp_{word(36)}",
            "slack": f"xoxb-{word(40)}", "jwt": f"eyJ{word(30)}.eyJ{word(30)}.{word(30)}"}
        # A token without a mark of its own, behind the name of a scheme.
        self.token = f"numbat{word(30)}"

    def all(self):
        return [self.prompt, *self.passwords, self.token, *self.keys.values()]

    def found_in(self, data):
        """Which of them these bytes hold, in any case."""
        held = data.lower()
        return [it for it in self.all() if it.lower().encode() in held]


def good_events(p):
    """Events whose known fields hold keys and whose unknown ones hold prompts; each is a row."""
    key = list(p.keys.values())
    base = {"attempt": 0, "model": "gpt-4o", "decision": "success", "input_tokens": 10, "output_tokens": 5,
            "prompt": p.prompt, "messages": [{"role": "user", "content": f"say {p.prompt}"}],
            "headers": {"authorization": f"Bearer {p.token}", "x-api-key": key[0]},
            "response": {"choices": [{"message": {"content": p.prompt}}]}, "error": {"message": f"bad key {key[1]}"}}
    made = []

    def add(**fields):
        made.append(base | {"request_id": f"r-{len(made)}", "ts": int(time.time() * 1000) - 60_000, "service": f"shop-{len(made) % 3}"} | fields)

    for it in p.keys.values():
        for field in ("api_key_id", "user_hash", "tenant", "server_request_id", "idempotency_key", "conversation_id"):
            add(**{field: it})
        add(reason=f"Incorrect API key provided: {it}. You can find yours online.", decision="give_up", status_code=401)
        add(error_type=f"POST https://api.example.com/v1/chat?key={it} failed", decision="give_up")
        add(labels={"key": it, "why": f"key {it} is no more", "x": 1})
        add(client_request_id=f"{{\"x-api-key\": \"{it}\"}}")
        add(request_id=it)
    add(api_key_id=f"Bearer {p.token}", project=f"Authorization: Bearer {p.token}", team=f"basic {p.token}")
    add(region=f"https://user:{p.passwords[0]}@proxy.example.com:3128/v1", error_type=f"ProxyError: http://u:{p.passwords[0]}@h/ refused")
    add(labels={"proxy": f"socks5://user:{p.passwords[0]}@10.0.0.1", "auth": f"Bearer {p.token}"})
    # A text where a hash was meant becomes its hash.
    add(prompt_hash=p.prompt, wire_prompt_hash=f"say {p.prompt}", system_hash=f"you know {p.prompt}")
    # What fails is told in alerts and samples: retries of the same.
    for number in range(60):
        add(request_id=f"again-{number // 2}", attempt=number % 2, decision="retry", error_type="timeout", phase="read", tenant=key[number % 9],
            reason=f"timed out with {key[2]}", max_tokens=100)
    return [json.dumps(it).encode() for it in made]


def bad_records(p):
    """Records that are no events, of every kind; each is a dead letter."""
    whole = {"request_id": "bad", "attempt": 0, "model": "gpt-4o", "decision": "success", "prompt": p.prompt}
    key = p.keys["openai"]
    text = lambda **fields: json.dumps(whole | fields).encode()
    without = lambda name, **fields: json.dumps({k: v for k, v in (whole | fields).items() if k != name}).encode()
    long = f"{p.prompt} " * 30
    return [
        text()[:-1], text()[:-5], b'{"prompt": "' + p.prompt.encode(), p.prompt.encode(),
        b"Authorization: Bearer " + p.token.encode(), f"{{'prompt': '{p.prompt}', 'key': '{key}'}}".encode(),
        json.dumps([p.prompt, key]).encode(), json.dumps(p.prompt).encode(), json.dumps([whole]).encode(),
        without("model"), without("decision", messages=[long], reason=long), without("request_id", headers={"k": key}),
        without("attempt", api_key_id=key, labels={p.prompt: key}, error_type=f"bad key: {key}"),
        text(attempt=p.prompt), text(attempt=key), text(model={"prompt": p.prompt}), text(model=long * 9, reason=long),
        text(ts=p.prompt), text(input_tokens=f"{key}"), text(labels={"a": {"prompt": p.prompt}}),
        b'{"request_id":"a","request_id":"b","prompt":"' + p.prompt.encode() + b'"}',
        b'{"request_id":"\xff","prompt":"' + p.prompt.encode() + b'"}', b"\xff\xfe" + p.prompt.encode(),
        text() + b" " + p.prompt.encode(), b'{"' + p.prompt.encode() + b'":' + b"[" * 100,
        b'{"request_id":"x","attempt":0,"prompt":"' + p.prompt.encode() + b'\n"}',
        b'{"url":"https://u:' + p.passwords[0].encode() + b'@h/",',
    ]


def cells(path):
    """Every value of a Parquet file as text and as bytes, as another engine reads it."""
    db = duckdb.connect()
    columns = db.execute("SELECT * FROM read_parquet(?, hive_partitioning = true)", [str(path)])
    for row in columns.fetchall():
        for value in row:
            yield value if isinstance(value, bytes) else str(value).encode()


def clean(w, p, but=()):
    """Nothing that the program wrote holds a planted text, but the files named."""
    looked = 0
    for path in sorted(w.folder.rglob("*")):
        if not path.is_file() or path.name.startswith("in-") or path.name in but:
            continue
        looked += 1
        found = p.found_in(path.read_bytes())
        if path.suffix == ".parquet":
            found += p.found_in(b"\n".join(cells(path)))
        assert not found, f"{path.relative_to(w.folder)} holds {found}: {quoted(path.read_bytes(), found)}"
    assert looked > 20, f"only {looked} files were looked at"


def quoted(data, found):
    at = data.lower().find(found[0].lower().encode())
    return data[max(at - 150, 0):at + 80]


def clean_topics(p, *topics):
    for topic in topics:
        messages = broker.messages(topic)
        assert messages, f"nothing came to {topic}"
        for message in messages:
            found = p.found_in((message.key() or b"") + b"\n" + (message.value() or b""))
            assert not found, f"{topic} holds {found}: {quoted(message.value(), found)}"


def ask_everything(w, lake):
    """Every way to look at a lake, with the finest log."""
    flags = ["--lake", lake, "--log", "trace"]
    for name in ("retry_cost_share", "repeated_billing", "redundant_cost", "retries", "operations", "resends", "identical_prompts",
                 "unpriced", "usage_coverage", "cancelled"):
        w.start("report", name, *flags, "--since", "7d").ends(0)
    w.start("report", *flags).ends(0)
    for table in ("attempts", "attempts_raw", "operations", "rollup", "alerts"):
        for form in ("table", "json", "csv"):
            w.start("sql", f"SELECT * FROM {table}", *flags, "--format", form).ends(0)
    w.start("sql", "SELECT sum(reason), nothing FROM attempts", *flags).ends(2)
    w.start("sql", "SELECT CAST(error_type AS INT) FROM attempts", *flags).ends(1)
    w.start("alerts", *flags).ends(0)


def files(w):
    """Ingest, lint, reports, SQL and its errors, alerts, of files; dead letters go to a file."""
    p = Planted()
    good, bad = good_events(p), bad_records(p)
    source = w.folder / "in-events.jsonl"
    source.write_bytes(b"\n".join(good + [it for it in bad if b"\n" not in it]) + b"\n")
    letters = w.folder / "dead-letters.jsonl"
    sets = ["--set", f"dead_letters.file={letters}", "--set", "alerts.retries_per_hour=1", "--log", "trace"]
    w.start("ingest", source, "--lake", w.lake, "--alerts", "-", *sets).ends(0)
    w.start("lint", source, "--log", "trace", "--format", "json").ends(0)
    w.start("lint", source, "--log", "trace").ends(0)
    ask_everything(w, w.lake)
    told = [json.loads(line) for line in letters.read_text().splitlines()]
    assert len(told) > 20 and w.count() >= len(good), (len(told), w.count())
    clean(w, p)
    # What is kept is the hash, and the flag tells that it was replaced.
    kept = w.query("SELECT count(*) FROM attempts WHERE api_key_id LIKE 'secret:sha256:%'")[0][0]
    assert kept == len(p.keys) + 1, kept


def full_dead_letters(w):
    """Configured as full, dead letters hold the records as they came, and nothing else does."""
    p = Planted()
    bad = [it for it in bad_records(p) if b"\n" not in it]
    source = w.folder / "in-events.jsonl"
    source.write_bytes(b"\n".join(good_events(p) + bad) + b"\n")
    sets = ["--set", "dead_letters.content=full", "--set", f"dead_letters.file={w.folder / 'full.jsonl'}", "--set",
            "alerts.retries_per_hour=1", "--log", "trace"]
    w.start("ingest", source, "--lake", w.lake, "--alerts", "-", *sets).ends(0)
    ask_everything(w, w.lake)
    clean(w, p, but=["full.jsonl"])
    assert p.prompt in (w.folder / "full.jsonl").read_text()


def topics(w):
    """A topic read by `run`, its dead letters and alerts, and what is sent on to a webhook and PagerDuty."""
    if cases.skip("secrets on topics"):
        return
    p = Planted()
    topic = w.topic(2)
    w.beside(topic, "alerts")
    w.beside(topic, "breaker")
    broker.produce(topic, [(n % 2, it) for n, it in enumerate(good_events(p) + bad_records(p))])
    (w.folder / "in-password").write_text(p.passwords[1])
    file = w.folder / "in-retrytoll.toml"
    # A password that no listener asks for is a mistake, so it is a property's here.
    file.write_text('[kafka.properties]\n"ssl.keystore.password_file" = "in-password"\n')
    rules = {"alerts.retries_per_hour": 1, "alerts.retries_per_minute": 1, "jobs.tick": "10s"}
    sets = words(QUICK | rules | {"kafka.group": f"{topic}-group"})
    env = {"RETRYTOLL_PAGERDUTY_ROUTING_KEY": p.passwords[2]}
    kafka = ["--config", file, "--bootstrap", broker.bootstrap(), "--topic", topic]
    w.start("run", *kafka, "--lake", w.lake, "--until-end", "--log", "trace", *sets, env=env).ends(0, 120)
    w.start("lint", *kafka, "--log", "trace", env=env).ends(0)
    w.start("check", *kafka, "--lake", w.lake, "--log", "trace", env=env).ends(0)
    w.start("check", *kafka, "--show", env=env).ends(0)
    refusing = lambda body: (500, {})
    sinks = [Sink(200), Sink(202, plan=refusing)]
    followers = [
        w.start("alerts", *kafka, "--follow", "--to", "webhook", "--url", sinks[0].url(f"/hook?token={p.passwords[3]}"),
                "--since", "7d", "--log", "trace"),
        w.start("alerts", *kafka, "--follow", "--to", "pagerduty", "--url", sinks[1].url(), "--since", "7d", "--log", "trace", env=env)]
    cases.until("alerts are posted", lambda: all(sink.came for sink in sinks), 40)
    for follower in followers:
        follower.stop(20)
    assert w.count() >= len(good_events(p)), w.count()
    clean(w, p)
    clean_topics(p, f"{topic}.dead-letters", f"{topic}.alerts")
    for _, _, _, raw in sinks[0].came:
        assert not p.found_in(raw), raw
    # PagerDuty itself is given its key, and nothing else.
    for _, _, _, raw in sinks[1].came:
        assert p.found_in(raw) == [p.passwords[2]], raw


def typed_where_others_can_read_it(w):
    """A secret in the file or on the command line is refused, in its place or under a misspelt name, and not repeated."""
    p = Planted()
    secret, file = p.passwords[0], w.folder / "in-retrytoll.toml"
    for text in (f'[kafka]\nsasl_password = "{secret}"\n', f'[kafka]\nsasl_pasword = "{secret}"\n', f'[kafka]\nsasl_password = "{secret}\n',
                 f'[kafka.properties]\n"sasl.password" = "{secret}"\n', f'[kafka.properties]\n"sasl.pasword" = "{secret}"\n',
                 f'[kafka.properties]\n"ssl.key.pem" = "{secret}"\n', f'[kafka.properties]\n"sasl.jaas.config" = "{secret}"\n',
                 f'[pagerduty]\nrouting_key = "{secret}"\n', f'[pagerduty]\nroutingkey = "{secret}"\n',
                 f'[lake]\npath = "s3://key:{secret}@bucket/lake"\n', f'[alerts]\nrunbook_url = "https://u:{secret}@h/"\n',
                 f'[kafka]\ntopic = "{p.keys["openai"]} x"\n'):
        file.write_text(text)
        for command in (["check"], ["check", "--show"], ["run"], ["ingest", file]):
            w.start(*command, "--config", file, "--log", "trace").ends(2)
    for key in ("kafka.sasl_password", "kafka.ssl_key_password", "pagerduty.routing_key", "kafka.sasl_pasword"):
        told = w.start("check", "--set", f"{key}={secret}").ends(2).out.read_text()
        assert key == "kafka.sasl_pasword" or f"RETRYTOLL_{key.replace('.', '_').upper()}" in told, told
    w.start("check", env={"RETRYTOLL_KAFKA_SASL_PASWORD": secret}).ends(2)
    for name, text in [("prices", f'{{"gpt-4o": {{"key": "{secret}" "input'), ("policy", f'[[row]]\nprovider = "{secret}\n')]:
        (w.folder / f"in-{name}").write_text(text)
        w.start("ingest", file, "--lake", w.lake, "--set", f"{name}.file=in-{name}").ends(2)
    clean(w, p)


CASES = [files, full_dead_letters, topics, typed_where_others_can_read_it]

if __name__ == "__main__":
    cases.main(World, CASES)
