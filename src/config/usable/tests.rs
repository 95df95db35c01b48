use std::path::Path;

use rdkafka::config::ClientConfig;

use super::super::kafka::Start;
use super::super::raw::{Flag, Sources};
use super::super::{FILE, Mistakes, show, template};
use super::*;

const S: Duration = Duration::from_secs(1);

/// A folder with a configuration file.
struct Fixture(tempfile::TempDir);

impl Fixture {
    fn new(toml: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(FILE), toml).expect("written");
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    }

    fn load(&self, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Config, Mistakes> {
        self.load_raw(env, flags).map(|(config, _)| config)
    }

    fn load_raw(
        &self,
        env: &[(&str, &str)],
        flags: &[(&str, &str)],
    ) -> Result<(Config, RawConfig), Mistakes> {
        let env: Vec<_> = env
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        let flag = |(key, value): &(&str, &str)| Flag {
            typed: "--set".into(),
            key: key.to_string(),
            value: value.to_string(),
        };
        let flags: Vec<_> = flags.iter().map(flag).collect();
        let sources = Sources {
            file: None,
            folder: self.path(),
            env: &env,
            flags: &flags,
        };
        load(&sources)
    }

    /// The mistakes, without the folder's name.
    fn mistakes(&self, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Vec<String> {
        let found = self.load(env, flags).expect_err("there are mistakes").0;
        let folder = format!("{}/", self.path().display());
        found
            .iter()
            .map(|mistake| format!("{mistake} | {}", mistake.hint).replace(&folder, ""))
            .collect()
    }
}

fn load(sources: &Sources<'_>) -> Result<(Config, RawConfig), Mistakes> {
    let (raw, mut mistakes) = RawConfig::read(sources);
    let (config, more) = Config::of(&raw, Need::Lake);
    mistakes.extend(more);
    Mistakes(mistakes).none_or((config, raw))
}

fn assert_defaults(config: &Config, lake: &str) {
    assert_eq!(config.kafka, None);
    assert_eq!(config.lake, lake);
    assert_eq!(config.source, SourceSettings::default());
    assert_eq!(
        (
            &config.source_name,
            &config.prices_file,
            &config.policy_file
        ),
        (&None, &None, &None)
    );
    let flush = Flush {
        interval: 5 * S,
        interval_behind: 60 * S,
        size_bytes: 128_000_000,
        position_interval: 10 * S,
    };
    assert_eq!(config.flush, flush);
    assert_eq!(
        config.dedupe,
        Dedupe {
            horizon: 600 * S,
            replay_max: 2_000_000
        }
    );
    let limits = Limits {
        prefetch_bytes: 48_000_000,
        batches_bytes: 24_000_000,
        encode_bytes: 80_000_000,
        seen_bytes: 64_000_000,
        sql_bytes: 160_000_000,
        rest_bytes: 24_000_000,
        spill_bytes_max: 1_000_000_000,
        sql_time: 300 * S,
    };
    assert_eq!(config.limits, limits);
    assert_eq!(
        config.dead_letters,
        DeadLetters {
            full: false,
            file: None
        }
    );
    let alerts = Alerts {
        off: vec![],
        retries_per_hour: 0,
        retries_per_minute: 0,
        tokens_per_day: 0,
        heartbeat: true,
        silent_after_ms: 12 * 3_600_000,
        owner: None,
        runbook_url: None,
        hide: vec![],
        reproduce_days: 7,
    };
    assert_eq!(config.alerts, alerts);
    assert_eq!(
        config.jobs,
        Jobs {
            sql_dir: None,
            tick: 60 * S,
            time_max: 120 * S,
            rollup_rows: 20_000,
        }
    );
    assert_eq!(
        config.maintain,
        Maintain {
            log_every: 30 * S,
            compact_every: 600 * S,
            vacuum_every: 86_400 * S,
            keep: 396 * 86_400 * S,
        }
    );
    assert_eq!(config.http_listen, None);
}

#[test]
fn the_memory_budget_is_400_mb() {
    let l = Config::of(&RawConfig::default(), Need::Lake).0.limits;
    assert_eq!(l.all_bytes(), 400_000_000);
}

#[test]
fn the_file_that_init_writes_says_the_defaults() {
    let (defaults, mistakes) = Config::of(&RawConfig::default(), Need::Lake);
    assert_eq!(mistakes, []);
    assert_defaults(&defaults, "lake");

    let text = template::text(&RawConfig::default());
    let as_it_is = Fixture::new(&text);
    assert_defaults(&as_it_is.load(&[], &[]).expect("no mistake"), "lake");
    for key in KEYS.iter().filter(|key| key.kind != Kind::Secret) {
        assert!(
            text.contains(&format!("\n#{} = ", key.name)),
            "{} is missing",
            key.dotted()
        );
    }

    // Every key that has a default, set to what stands in the comment.
    let mut section = String::new();
    let mut set = String::new();
    let mut count = 0;
    for line in text.lines() {
        if let Some(open) = line.strip_prefix("#[") {
            section = open.trim_end_matches(']').to_owned();
        } else if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_owned();
            set.push_str(&format!("{line}\n"));
        }
        let Some((name, _)) = line
            .strip_prefix('#')
            .and_then(|rest| rest.split_once(" = "))
        else {
            continue;
        };
        let key = find(&format!("{section}.{name}")).map(|place| &KEYS[place]);
        if key.is_some_and(|key| matches!(key.preset, Preset::Is(_))) {
            set.push_str(&format!("{}\n", &line[1..]));
            count += 1;
        }
    }
    assert_eq!(
        count,
        KEYS.iter()
            .filter(|key| matches!(key.preset, Preset::Is(_)))
            .count()
    );
    let fixture = Fixture::new(&set);
    let lake = fixture.path().join("lake").display().to_string();
    assert_defaults(&fixture.load(&[], &[]).expect("no mistake"), &lake);
}

#[test]
fn every_example_of_the_file_is_allowed() {
    let text = template::text(&RawConfig::default());
    let bare: String = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(key) if !key.starts_with(' ') && !key.is_empty() => format!("{key}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let fixture = Fixture::new(&bare);
    let found = fixture.mistakes(&[], &[]);
    // What may be wrong of an example is only what depends on this machine and on other keys.
    for mistake in &found {
        assert!(
            mistake.contains("can't be read at") || mistake.contains("has no effect, since"),
            "{mistake}"
        );
    }
    assert!(found.len() >= 8, "{found:#?}");
    assert!(bare.contains("\n[source.services.NAME]\nattempt_base = 1\n"));
}

#[test]
fn what_was_typed_at_init_stands_in_the_file() {
    let fixture = Fixture::new("");
    let flags = [
        ("kafka.topic", "calls"),
        ("kafka.bootstrap", "a:1,b:2"),
        ("kafka.properties.client.id", "x\"y"),
        ("source.attempt_base", "1"),
        ("source.services.my.svc.attempt_base", "0"),
        ("alerts.hide", "tenant,model"),
        ("alerts.off", "unpriced"),
        ("alerts.retries_per_hour", "500"),
        ("alerts.heartbeat", "off"),
        ("http.listen", "[::1]:9464"),
    ];
    let (typed, raw) = fixture.load_raw(&[], &flags).expect("no mistake");
    let text = template::text(&raw);
    let read = Fixture::new(&text).load(&[], &[]).expect("no mistake");
    assert_eq!((&read.kafka, &read.source), (&typed.kafka, &typed.source));
    assert_eq!(read.alerts, typed.alerts);
    assert_eq!(read.alerts.hide, ["model", "tenant"]);
    assert_eq!(read.alerts.off, ["unpriced"]);
    assert_eq!(read.alerts.retries_per_hour, 500);
    assert_eq!(read.http_listen, "[::1]:9464".parse().ok());
    assert!(!read.alerts.heartbeat);
}

#[test]
fn flags_go_before_the_environment_and_that_before_the_file() {
    let fixture = Fixture::new(
        "[flush]\ninterval = \"1s\"\ninterval_behind = \"11s\"\nposition_interval = \"21s\"\n",
    );
    let env = [
        ("RETRYTOLL_FLUSH_INTERVAL_BEHIND", "12s"),
        ("RETRYTOLL_FLUSH_POSITION_INTERVAL", "22s"),
        ("RETRYTOLL_FLUSH_SIZE", ""),
        ("RETRYTOLL_LOG", "debug"),
        ("HOME", "/root"),
    ];
    let flags = [("flush.position_interval", "23s")];
    let (config, raw) = fixture.load_raw(&env, &flags).expect("no mistake");
    let Flush {
        interval,
        interval_behind,
        size_bytes,
        position_interval,
    } = config.flush;
    assert_eq!(
        [interval, interval_behind, position_interval],
        [S, 12 * S, 23 * S]
    );
    assert_eq!(size_bytes, 128_000_000, "an empty variable is not set");
    let file = fixture.path().join(FILE).display().to_string();
    for (key, value, origin) in [
        ("flush.interval", "\"1s\"", format!("{file}:2")),
        (
            "flush.interval_behind",
            "\"12s\"",
            "RETRYTOLL_FLUSH_INTERVAL_BEHIND".into(),
        ),
        ("flush.position_interval", "\"23s\"", "--set".into()),
        ("flush.size", "\"128MB\"", "default".into()),
        ("kafka.topic", "(not set)", "default".into()),
    ] {
        let shown = show::show(&raw).into_iter().find(|shown| shown.key == key);
        let expected = show::Shown {
            key: key.into(),
            value: value.into(),
            origin,
        };
        assert_eq!(shown, Some(expected), "{key}");
    }
}

#[test]
fn all_mistakes_are_told_at_once() {
    let fixture = Fixture::new(
        "[kafka]\n\
         topic = \"a topic\"\n\
         dead_leter_topic = \"x\"\n\
         sasl_password = \"hunter2\"\n\
         [flush]\n\
         interval = \"2h\"\n\
         size = 128\n\
         [alerts]\n\
         hide = [\"tennant\"]\n\
         off = \"retry_shares\"\n\
         [source.services.api]\n\
         attempt_base = 2\n\
         [source.decisions]\n\
         again = \"retri\"\n\
         retry = \"give_up\"\n",
    );
    let env = [
        ("RETRYTOLL_KAFKA_TOPIK", "hunter2"),
        ("RETRYTOLL_DEDUPE_HORIZON", "2d"),
    ];
    let flags = [("lake.paht", "x")];
    let expected = [
        "retrytoll.toml:3: kafka.dead_leter_topic is no known key | did you mean kafka.dead_letter_topic?",
        "retrytoll.toml:4: kafka.sasl_password is a secret, and others can read it here | put it into a file of its own and name that in kafka.sasl_password_file, or set RETRYTOLL_KAFKA_SASL_PASSWORD",
        "RETRYTOLL_KAFKA_TOPIK: the variable sets no known key | did you mean RETRYTOLL_KAFKA_TOPIC?",
        "--set: lake.paht is no known key | did you mean lake.path?",
        "retrytoll.toml:2: kafka.topic = \"a topic\" is not a name that Kafka allows for a topic | use only letters, digits, '.', '_' and '-'",
        "retrytoll.toml:6: flush.interval = \"2h\" is above 10m (each flush is a commit, and rows older than this are not yet visible) | write 100ms to 10m",
        "retrytoll.toml:7: flush.size = \"128\" has no unit | write a whole number with a unit, as \"128MB\"",
        "RETRYTOLL_DEDUPE_HORIZON: dedupe.horizon = \"2d\" is above 1d (every event within it takes memory of limits.seen) | write 0s to 1d",
        "retrytoll.toml:10: alerts.off = \"retry_shares\" has a word that is none of retry_storm, doomed_outage, pipeline, retry_share, repeated_billing, retry_budget, token_budget, usage_coverage, unpriced | did you mean \"retry_share\"?",
        "retrytoll.toml:9: alerts.hide = \"tennant\" has a word that is none of service, provider, model, tenant, team, project, environment, error_class | did you mean \"tenant\"?",
        "kafka.bootstrap is not set, and there is nothing to read without it | set it in retrytoll.toml (`retrytoll init` makes one), by RETRYTOLL_KAFKA_BOOTSTRAP, or with --set kafka.bootstrap=…",
        "retrytoll.toml:12: source.services.api.attempt_base = \"2\" is above 1 (callers count from 0 or from 1) | write 0 to 1",
        "retrytoll.toml:14: source.decisions.again = \"retri\" is none of retry, retry_limited, fallback, success, give_up, no_retry, ask_user, budget_exhausted, cancelled | did you mean \"retry\"?",
        "retrytoll.toml:15: source.decisions.retry = \"give_up\" maps a word that is a decision already | remove it; only other words are mapped",
    ];
    let mut found = fixture.mistakes(&env, &flags);
    let mut expected = expected.map(str::to_owned).to_vec();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    let text = fixture
        .load(&env, &flags)
        .expect_err("mistakes")
        .to_string();
    assert!(
        text.starts_with("the configuration has 14 mistakes\n  "),
        "{text}"
    );
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn a_file_that_is_not_toml_says_where() {
    let fixture = Fixture::new("[flush]\ninterval = \"1s\"\nsize = = 3\n");
    let found = fixture.mistakes(&[], &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("retrytoll.toml:3: not TOML: "),
        "{found:?}"
    );

    let sources = Sources {
        file: Some(Path::new("/nowhere/x.toml")),
        folder: fixture.path(),
        env: &[],
        flags: &[],
    };
    let found = load(&sources).expect_err("no such file").to_string();
    assert!(
        found.contains("/nowhere/x.toml: can't be read: "),
        "{found}"
    );
}

#[test]
fn a_topic_brings_its_brokers_and_its_own_topics() {
    let fixture =
        Fixture::new("[kafka]\nbootstrap = \"a:9092\"\ntopic = \"calls\"\nstart = \"latest\"\n");
    let (config, raw) = fixture.load_raw(&[], &[]).expect("no mistake");
    let kafka = config.kafka.expect("a topic is set");
    assert_eq!(kafka.dead_letter_topic, "calls.dead-letters");
    assert_eq!(kafka.alert_topic, "calls.alerts");
    assert_eq!(
        (kafka.group.as_str(), kafka.start),
        ("retrytoll", Start::Latest)
    );
    assert_eq!(
        (kafka.session_timeout, kafka.skip_lost_records),
        (45 * S, false)
    );
    let shown = show::show(&raw);
    assert!(
        shown.iter().any(|line| line.value == "\"calls.alerts\""),
        "{shown:#?}"
    );

    let found = fixture.mistakes(&[], &[("kafka.alert_topic", "calls")]);
    let expected = "--set: kafka.alert_topic = \"calls\" is the topic that is read: what is \
                    written would be read again | name another topic";
    assert_eq!(found, [expected]);
    assert_eq!(
        fixture.mistakes(&[], &[("kafka.bootstrap", " ")]).len(),
        1,
        "told once"
    );

    let (_, mistakes) = Config::of(&RawConfig::default(), Need::Kafka);
    let keys: Vec<&str> = mistakes
        .iter()
        .map(|mistake| mistake.key.as_str())
        .collect();
    assert_eq!(keys, ["kafka.bootstrap", "kafka.topic"]);
}

/// What librdkafka is told of the connection.
fn client(fixture: &Fixture, env: &[(&str, &str)]) -> ClientConfig {
    fixture
        .load(env, &[])
        .expect("no mistake")
        .kafka
        .expect("a topic")
        .client()
}

#[test]
fn a_secret_comes_from_a_file_or_the_environment_and_is_never_shown() {
    let fixture = Fixture::new(
        "[kafka]\nbootstrap = \"a:1\"\ntopic = \"t\"\nsecurity_protocol = \"sasl_ssl\"\n\
         sasl_mechanism = \"SCRAM-SHA-512\"\nsasl_username = \"u\"\n\
         sasl_password_file = \"password\"\n\
         [kafka.properties]\n\"linger.ms\" = 5\nsocket.keepalive.enable = true\n\
         ssl.keystore.password_file = \"password\"\n",
    );
    fixture.write("password", "hunter2\n");
    let config = client(&fixture, &[]);
    for (name, value) in [
        ("bootstrap.servers", "a:1"),
        ("security.protocol", "sasl_ssl"),
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("sasl.username", "u"),
        ("sasl.password", "hunter2"),
        ("linger.ms", "5"),
        ("socket.keepalive.enable", "true"),
        ("ssl.keystore.password", "hunter2"),
    ] {
        assert_eq!(config.get(name), Some(value), "{name}");
    }
    let env = [("RETRYTOLL_KAFKA_SASL_PASSWORD", "hunter3")];
    assert_eq!(client(&fixture, &env).get("sasl.password"), Some("hunter3"));
    let (config, raw) = fixture.load_raw(&env, &[]).expect("no mistake");
    let shown = format!("{:?} {config:?}", show::show(&raw));
    assert!(!shown.contains("hunter"), "{shown}");
    assert!(shown.contains("(set, not shown)"), "{shown}");
}

#[test]
fn security_that_does_not_fit_together_is_a_mistake() {
    let base = "[kafka]\nbootstrap = \"a:1\"\ntopic = \"t\"\n";
    let check = |more: &str, expected: &[&str]| {
        let fixture = Fixture::new(&format!("{base}{more}"));
        fixture.write("pem", "x");
        fixture.write("empty", "\n");
        let keys: Vec<String> = match fixture.load(&[], &[]) {
            Ok(_) => vec![],
            Err(Mistakes(found)) => found.into_iter().map(|mistake| mistake.key).collect(),
        };
        assert_eq!(keys, expected, "{more}");
    };
    check("security_protocol = \"ssl\"\n", &[]);
    check(
        "security_protocol = \"sasl_ssl\"\n",
        &[
            "kafka.sasl_mechanism",
            "kafka.sasl_username",
            "kafka.sasl_password",
        ],
    );
    check("sasl_username = \"u\"\n", &["kafka.sasl_username"]);
    check("ssl_ca_file = \"pem\"\n", &["kafka.ssl_ca_file"]);
    check(
        "security_protocol = \"ssl\"\nssl_cert_file = \"pem\"\n",
        &["kafka.ssl_cert_file"],
    );
    check(
        "security_protocol = \"ssl\"\nssl_ca_file = \"none\"\n",
        &["kafka.ssl_ca_file"],
    );
    check(
        "security_protocol = \"sasl_ssl\"\nsasl_mechanism = \"PLAIN\"\nsasl_username = \"u\"\n\
         sasl_password_file = \"empty\"\n",
        &["kafka.sasl_password_file"],
    );
    check(
        "[kafka.properties]\n\"enable.auto.commit\" = true\n\"group.id\" = \"x\"\n\
         \"no.such.property\" = 1\n\"linger.ms\" = \"soon\"\n\"ssl.key.pem\" = \"hunter2\"\n",
        &[
            "kafka.properties.enable.auto.commit",
            "kafka.properties.group.id",
            "kafka.properties.linger.ms",
            "kafka.properties.no.such.property",
            "kafka.properties.ssl.key.pem",
        ],
    );
}

#[test]
fn flushes_must_not_be_rarer_when_caught_up() {
    let fixture = Fixture::new("[flush]\ninterval = \"2m\"\n");
    let found = fixture.mistakes(&[], &[]);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("retrytoll.toml:2: flush.interval_behind is shorter"),
        "{found:?}"
    );
}
