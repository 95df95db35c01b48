//! `--to` with its flags and configuration → a service and its address.

use std::path::Path;

use retrytoll_core::notify::{Service, alertmanager, pagerduty};
use url::Url;

use crate::cli::World;
use crate::config::{Config, secret};
use crate::exit::Stop;

/// Whom to send to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub enum To {
    PagerDuty,
    Alertmanager,
    Webhook,
}

/// An `http` or `https` address.
pub fn url(text: &str) -> Result<Url, String> {
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(url),
        _ => Err("give an http or https address, the whole of it".to_owned()),
    }
}

impl To {
    /// As it is typed.
    pub fn word(self) -> &'static str {
        match self {
            Self::PagerDuty => "pagerduty",
            Self::Alertmanager => "alertmanager",
            Self::Webhook => "webhook",
        }
    }

    /// Where requests go. Alertmanager's path is added where only the server is given.
    ///
    /// # Errors
    /// There is no address, and none that is usual.
    pub fn address(self, given: Option<&Url>) -> anyhow::Result<Url> {
        let Some(given) = given else {
            return match self {
                Self::PagerDuty => Ok(Url::parse(pagerduty::URL)?),
                Self::Alertmanager | Self::Webhook => {
                    let message = format!("--to {} has no address", self.word());
                    let hint = "name it with --url, as http://localhost:9093";
                    Err(Stop::usage(message, hint).into())
                }
            };
        };
        let mut url = given.clone();
        let path = format!("/{}", alertmanager::PATH.join("/"));
        if self == Self::Alertmanager
            && !url.path().trim_end_matches('/').ends_with(&path)
            && let Ok(mut segments) = url.path_segments_mut()
        {
            segments.pop_if_empty().extend(alertmanager::PATH);
        }
        Ok(url)
    }

    /// The service; `file` holds PagerDuty's key, before what is configured.
    ///
    /// # Errors
    /// PagerDuty has no key, or a flag is of no use.
    pub fn service(
        self,
        config: &Config,
        file: Option<&Path>,
        every_ms: i64,
        world: &World,
    ) -> anyhow::Result<Service> {
        if self != Self::PagerDuty && file.is_some() {
            let message = "--routing-key-file is PagerDuty's";
            return Err(Stop::usage(message, "remove it, or use --to pagerduty").into());
        }
        Ok(match self {
            Self::PagerDuty => Service::PagerDuty {
                routing_key: routing_key(config, file, world)?,
            },
            Self::Alertmanager => Service::Alertmanager { every_ms },
            Self::Webhook => Service::Webhook,
        })
    }
}

fn routing_key(config: &Config, file: Option<&Path>, world: &World) -> Result<String, Stop> {
    let found = match file {
        None => config.pagerduty_routing_key.clone(),
        Some(path) => {
            let path = world.folder.join(path);
            let read = secret::read(&path).map_err(|problem| {
                let message = format!("--routing-key-file: {} {problem}", path.display());
                Stop::usage(message, "put the key into it, and nothing else")
            });
            Some(read?)
        }
    };
    let Some(key) = found else {
        let hint = "set RETRYTOLL_PAGERDUTY_ROUTING_KEY, or name a file that holds it with \
                    --routing-key-file";
        return Err(Stop::usage("PagerDuty needs a routing key", hint));
    };
    Ok(key.text().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_made_whole() {
        let at = |to: To, text: &str| {
            let given = Url::parse(text).expect("an address");
            to.address(Some(&given)).expect("an address").to_string()
        };
        for (given, expected) in [
            ("http://am:9093", "http://am:9093/api/v2/alerts"),
            ("http://am:9093/", "http://am:9093/api/v2/alerts"),
            ("https://x/team/am", "https://x/team/am/api/v2/alerts"),
            ("https://x/api/v2/alerts", "https://x/api/v2/alerts"),
        ] {
            assert_eq!(at(To::Alertmanager, given), expected);
        }
        assert_eq!(at(To::Webhook, "https://x/hook?a=b"), "https://x/hook?a=b");
        let eu = "https://events.eu.pagerduty.com/v2/enqueue";
        assert_eq!(at(To::PagerDuty, eu), eu);
        let usual = To::PagerDuty.address(None).expect("an address");
        assert_eq!(usual.as_str(), "https://events.pagerduty.com/v2/enqueue");
        assert!(To::Webhook.address(None).is_err());
        assert!(url("localhost:9093").is_err() && url("ftp://x").is_err());
    }
}
