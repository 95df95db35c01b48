"""TLS and SASL on a real broker: rows, dead letters and alerts by every way in; what is wrong is said, and no secret.

Starts a broker of its own with secure listeners."""

import copy
import json
import pathlib
import secrets
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from harness import broker, cases, events
from harness.world import QUICK, World, words

OWN = pathlib.Path(tempfile.mkdtemp(prefix="retrytoll-secure-"))
TLS = OWN / "tls"
# A wrong connection is told within this, check's and run's own waits (5 and 10 s) and their start together.
ENDS_WITHIN = 30


def at(listener):
    if listener == "plain":
        return broker.bootstrap()
    return f"127.0.0.1:{(TLS / f'{listener}.port').read_text().strip()}"


def password():
    return (TLS / "password").read_text()


def ssl(**more):
    return {"security_protocol": "ssl", "ssl_ca_file": TLS / "ca.pem"} | more


def client(**more):
    """The client's certificate, whose key has a password."""
    return ssl(ssl_cert_file=TLS / "client.pem", ssl_key_file=TLS / "client.key") | more


def login(mechanism, **more):
    return {"security_protocol": "sasl_ssl", "ssl_ca_file": TLS / "ca.pem", "sasl_mechanism": mechanism,
            "sasl_username": "retrytoll"} | more


def start(w, command, topic, listener, settings, env=None, flags=(), **more):
    given = {f"kafka.{key}": value for key, value in settings.items()} | more
    return w.start(command, "--bootstrap", at(listener), "--topic", topic, "--lake", w.lake, *flags,
                   *words(given), env=env)


def at_once(work, items):
    """Some at a time: most of it is waiting."""
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, *item) for item in items]:
            done.result()


def no_secret_in(w, *more):
    """No output and no table holds a password, or one of `more`."""
    hidden = [word.encode() for word in (password(), (TLS / "key-password").read_text(), *more)]
    files = [path for path in w.folder.rglob("*") if path.is_file() and path.suffix in (".err", ".out", ".json", ".parquet")]
    for path in files:
        held = path.read_bytes()
        assert not [word for word in hidden if word in held], f"{path} holds a secret"


# (name, listener, settings, environment)
def ways():
    by_env = {"RETRYTOLL_KAFKA_SASL_PASSWORD": password()}
    by_file = {"sasl_password_file": TLS / "password"}
    return [
        ("TLS", "ssl", ssl(), {}),
        ("client certificate, key password by file", "mtls", client(ssl_key_password_file=TLS / "key-password"), {}),
        ("client certificate, key password by environment", "mtls", client(),
         {"RETRYTOLL_KAFKA_SSL_KEY_PASSWORD": (TLS / "key-password").read_text()}),
        ("SCRAM-SHA-512 by file", "sasl_ssl", login("SCRAM-SHA-512", **by_file), {}),
        ("SCRAM-SHA-256 by environment", "sasl_ssl", login("SCRAM-SHA-256"), by_env),
        ("PLAIN by file", "sasl_ssl", login("PLAIN", **by_file), {}),
    ]


def every_way_in(w):
    """Check says that all is well; rows, dead letters and an alert come through, logged at the finest level."""
    def come_in(number, name, listener, settings, env, made):
        # Each has a lake of its own: a source that nobody reads any more would hold back the alerts of the next.
        own = copy.copy(w)
        own.lake = w.folder / f"lake-{number}"
        topic = own.topic(2)
        own.beside(topic, "alerts")
        own.beside(topic, "breaker")
        # A little ago, so that a tick of the alert rules lies behind them.
        broker.produce(topic, [(*record, int(time.time() * 1000) - 5_000) for record in made])
        checked = start(own, "check", topic, listener, settings, env).ends(0, ENDS_WITHIN)
        assert "wrong" not in checked.out.read_text(), checked.out.read_text()
        more = QUICK | {"kafka.group": f"{topic}-group", "alerts.retries_per_hour": 1, "jobs.tick": "1s"}
        start(own, "run", topic, listener, settings, env, ["--until-end", "--log", "trace"], **more).ends(0, 120)
        own.check(topic)
        told = [json.loads(message.value()) for message in broker.messages(f"{topic}.alerts")]
        rules = {event["data"]["dedup_key"].split("/")[0] for event in told}
        assert "retry_budget" in rules, f"{name}: {rules}"
        start(own, "check", topic, listener, settings, env, ["--show"]).ends(0, ENDS_WITHIN)
    at_once(come_in, [(number, *way, events.mixture(w.rng, 200, 2, way[0].replace(" ", "-")))
                      for number, way in enumerate(ways())])
    no_secret_in(w)


# (name, listener, settings, the exit code of `run`, words of what is wrong, words of what to do)
def mistakes(wrong):
    untrusted, mend_trust = "the broker's certificate can't be trusted", "kafka.ssl_ca_file"
    refused, mend_client = "the broker refuses this client's certificate", "kafka.ssl_cert_file"
    key, mend_key = "kafka.ssl_key_file can't be read as a key", "kafka.ssl_key_password_file"
    logins = [(f"wrong password by {it}", "sasl_ssl", login(it, sasl_password_file=wrong), 1,
               "Authentication failed", "RETRYTOLL_KAFKA_SASL_PASSWORD") for it in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")]
    return [
        ("another authority", "ssl", ssl(ssl_ca_file=TLS / "another-ca.pem"), 1, untrusted, mend_trust),
        ("no authority", "ssl", {"security_protocol": "ssl"}, 1, untrusted, mend_trust),
        ("a certificate that has ended", "expired", ssl(), 1, untrusted, "still valid"),
        ("another host's certificate", "stranger", ssl(), 1, untrusted, "made out to the host in kafka.bootstrap"),
        ("plain text to TLS", "ssl", {}, 1, "Disconnected", "kafka.security_protocol to what the listener talks: ssl or sasl_ssl"),
        ("TLS to plain text", "plain", ssl(), 1, "does not talk TLS", "kafka.security_protocol"),
        ("no login", "sasl_ssl", ssl(), 1, "Disconnected", "sasl_ssl where it wants a login"),
        ("no client certificate", "mtls", ssl(), 1, refused, mend_client),
        *logins,
        ("no such user", "sasl_ssl", login("SCRAM-SHA-512", sasl_username="nobody", sasl_password_file=TLS / "password"), 1,
         "Authentication failed", "kafka.sasl_username"),
        ("the key's password is wrong", "mtls", client(ssl_key_password_file=wrong), 2, key, mend_key),
        ("the key's password is missing", "mtls", client(), 2, key, mend_key),
        ("no certificate in the file", "ssl", ssl(ssl_ca_file=wrong), 2, "kafka.ssl_ca_file holds no certificate", "in PEM"),
    ]


def what_is_wrong_is_said(w):
    """Check and run both end, say what is wrong and which key to look at, and never the secret."""
    topic = w.topic(1)
    secret = secrets.token_urlsafe(24)
    wrong = w.folder / "wrong"
    wrong.write_text(secret)

    def is_said(name, listener, settings, code, what, mend):
        checked = start(w, "check", topic, listener, settings).ends(1, ENDS_WITHIN).out.read_text()
        ran = start(w, "run", topic, listener, settings, None, ["--log", "debug"]).ends(code, ENDS_WITHIN).text()
        error = ran[("\n" + ran).rindex("\nerror: "):]
        for text in (checked, error):
            assert what in text and mend in text, f"{name}: {text}"
    at_once(is_said, mistakes(wrong))
    no_secret_in(w, secret)


CASES = [every_way_in, what_is_wrong_is_said]

if __name__ == "__main__":
    # KAFKA_BOOTSTRAP is its plain listener, for the test itself.
    if broker.start_own(OWN, "--secure"):
        cases.main(World, CASES)
    print("SKIPPED (no Kafka: scripts/kafka could not start one, see above): TLS and SASL")
    sys.exit(0)
