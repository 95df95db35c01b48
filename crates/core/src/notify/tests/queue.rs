//! Transitions told, answers and restarts → each accepted once, in order.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::*;
use crate::alert::{Severity, State};

const GIVE_UP_MS: i64 = 3_600_000;
const LIMITS: QueueLimits = QueueLimits {
    every_ms: None,
    give_up_ms: GIVE_UP_MS,
};
const LATER: Answer = Answer::Later { hold_ms: None };

/// The `number`th transition of an alert: odd ones fire.
fn transition(alert: &str, number: i64) -> Notice {
    Notice {
        id: format!("{alert}{number}"),
        source: "/retrytoll/g".into(),
        dedup_key: format!("rule/{alert}"),
        rule: "rule".into(),
        entity: alert.into(),
        state: match number % 2 {
            1 => State::Firing,
            _ => State::Resolved,
        },
        severity: Severity::Warning,
        starts_at_ms: number * 60_000,
        at_ms: number * 60_000,
        data: serde_json::Map::new(),
        body: String::new(),
    }
}

/// A service, the queue of it, and the position that was committed.
struct Desk {
    queue: Queue,
    now_ms: i64,
    next: i64,
    kept: Position,
    /// Ids, in order.
    accepted: Vec<String>,
}

impl Desk {
    fn new(limits: QueueLimits) -> Self {
        let mut queue = Queue::new(limits);
        queue.begin(0, 0, &Known::default(), true);
        let kept = Position {
            partition: 0,
            next: 0,
            known: String::new(),
        };
        Self {
            queue,
            now_ms: 0,
            next: 0,
            kept,
            accepted: Vec::new(),
        }
    }

    fn tell(&mut self, alert: &str, number: i64) {
        let notice = transition(alert, number);
        self.queue.take(0, self.next, Some(notice), self.now_ms);
        self.next += 1;
    }

    /// Asks once where something is due, and commits.
    fn ask(&mut self, answer: Answer) -> Option<(String, Outcome)> {
        let (place, notice) = self.queue.due(self.now_ms)?;
        let outcome = self.queue.answered(place, answer, self.now_ms, 0).unwrap();
        if let Outcome::Accepted { first } = outcome {
            assert_eq!(first, !self.accepted.contains(&notice.id));
            self.accepted.push(notice.id.clone());
        }
        self.commit();
        Some((notice.id, outcome))
    }

    fn ask_all(&mut self, answer: Answer) -> Vec<String> {
        std::iter::from_fn(|| self.ask(answer).map(|(id, _)| id)).collect()
    }

    fn commit(&mut self) {
        if let Some(kept) = self.queue.moved().pop() {
            assert!(kept.next >= self.kept.next, "a position went back");
            self.kept = kept;
        }
        self.queue.committed();
        assert_eq!(self.queue.moved(), []);
    }

    /// As a new process: `log` is what the topic has, from the beginning.
    fn restart(&mut self, limits: QueueLimits, log: &[(&str, i64)]) {
        self.queue = Queue::new(limits);
        let known = Known::read(&self.kept.known);
        self.queue.begin(0, self.kept.next, &known, true);
        self.next = self.kept.next;
        for (alert, number) in &log[usize::try_from(self.kept.next).unwrap()..] {
            self.tell(alert, *number);
        }
    }
}

#[test]
fn a_transition_goes_once_whatever_is_told_again_and_when() {
    let mut desk = Desk::new(LIMITS);
    desk.tell("a", 1);
    desk.tell("a", 1);
    desk.tell("b", 1);
    assert_eq!(desk.ask_all(Answer::Accepted), ["a1", "b1"]);
    desk.tell("a", 1);
    assert_eq!(desk.ask_all(Answer::Accepted), [""; 0]);
    desk.tell("a", 2);
    // A firing one that is told after its end, as by a leader that came back.
    desk.tell("a", 1);
    desk.tell("a", 2);
    assert_eq!(desk.ask_all(Answer::Accepted), ["a2"]);
    desk.commit();
    assert_eq!(desk.kept.next, 7);
    let log = [("", 0); 7];
    desk.restart(LIMITS, &log);
    desk.tell("a", 2);
    desk.tell("b", 1);
    desk.tell("a", 3);
    assert_eq!(desk.ask_all(Answer::Accepted), ["a3"]);
}

#[test]
fn what_is_not_accepted_waits_behind_its_own_and_holds_the_position() {
    let mut desk = Desk::new(LIMITS);
    desk.tell("a", 1);
    desk.tell("b", 1);
    desk.tell("a", 2);
    // a1 fails: b1 goes on, a2 waits for a1.
    assert_eq!(
        desk.ask(LATER),
        Some(("a1".into(), Outcome::Later { wait_ms: 1_000 }))
    );
    assert_eq!(desk.ask_all(Answer::Accepted), ["b1"]);
    assert_eq!(desk.kept.next, 0);
    desk.now_ms = 999;
    assert_eq!((desk.queue.due_ms(), desk.ask(LATER)), (Some(1_000), None));
    desk.now_ms = 1_000;
    assert_eq!(
        desk.ask(LATER),
        Some(("a1".into(), Outcome::Later { wait_ms: 2_000 }))
    );
    // The next process knows b1.
    desk.restart(LIMITS, &[("a", 1), ("b", 1), ("a", 2)]);
    assert_eq!(desk.ask_all(Answer::Accepted), ["a1", "a2"]);
    assert_eq!(desk.kept.next, 3);
}

#[test]
fn a_refused_one_stops_no_other_and_is_asked_when_it_is_told_again() {
    let mut desk = Desk::new(LIMITS);
    desk.tell("a", 1);
    desk.tell("b", 1);
    assert_eq!(
        desk.ask(Answer::Refused),
        Some(("a1".into(), Outcome::Refused))
    );
    assert_eq!(desk.ask_all(Answer::Accepted), ["b1"]);
    assert_eq!(desk.kept.next, 2);
    desk.tell("a", 1);
    desk.tell("b", 1);
    assert_eq!(desk.ask_all(Answer::Accepted), ["a1"]);
}

#[test]
fn a_service_that_says_when_is_not_asked_before() {
    let mut desk = Desk::new(LIMITS);
    desk.tell("a", 1);
    desk.tell("b", 1);
    desk.ask(Answer::Later {
        hold_ms: Some(7_000),
    });
    desk.now_ms = 6_999;
    assert_eq!((desk.queue.due_ms(), desk.ask(LATER)), (Some(7_000), None));
    desk.now_ms = 7_000;
    assert_eq!(desk.ask_all(Answer::Accepted), ["b1", "a1"]);
}

#[test]
fn what_fails_for_too_long_is_given_up() {
    let mut desk = Desk::new(LIMITS);
    desk.tell("a", 1);
    let mut tries = 0;
    let outcome = loop {
        desk.now_ms = desk.queue.due_ms().unwrap();
        tries += 1;
        match desk.ask(LATER).unwrap().1 {
            Outcome::Later { .. } => assert!(desk.now_ms < GIVE_UP_MS),
            other => break other,
        }
    };
    // After 0, 1, 3, 7, 15, 31, 63 s, then each minute: 123 + 60 n reaches 3,600 at n = 58.
    assert_eq!((outcome, tries), (Outcome::GivenUp, 7 + 59));
    assert_eq!((desk.queue.due_ms(), desk.kept.next), (None, 1));
}

#[test]
fn what_fires_is_sent_again_and_again_until_it_is_resolved() {
    let limits = QueueLimits {
        every_ms: Some(60_000),
        ..LIMITS
    };
    let mut desk = Desk::new(limits);
    desk.tell("a", 1);
    assert_eq!(desk.ask_all(Answer::Accepted), ["a1"]);
    // The topic's own repetitions are no occasion.
    desk.tell("a", 1);
    assert_eq!(desk.ask_all(Answer::Accepted), [""; 0]);
    for minute in 1..=3 {
        desk.now_ms = minute * 60_000;
        assert_eq!(desk.queue.due_ms(), Some(desk.now_ms));
        assert_eq!(desk.ask_all(Answer::Accepted), ["a1"]);
    }
    // One that fails is asked sooner; one that is refused is asked a minute later.
    desk.now_ms = 4 * 60_000;
    assert_eq!(desk.ask_all(LATER), ["a1"]);
    assert_eq!(desk.queue.due_ms(), Some(desk.now_ms + 1_000));
    desk.now_ms += 1_000;
    assert_eq!(desk.ask_all(Answer::Refused), ["a1"]);
    assert_eq!(desk.queue.due_ms(), Some(desk.now_ms + 60_000));
    desk.tell("a", 2);
    assert_eq!(desk.ask_all(Answer::Accepted), ["a2"]);
    // Told too late.
    desk.tell("a", 1);
    assert_eq!(desk.queue.due_ms(), None);
}

#[test]
fn after_a_restart_what_still_fires_is_sent_again() {
    let limits = QueueLimits {
        every_ms: Some(60_000),
        ..LIMITS
    };
    let mut desk = Desk::new(limits);
    desk.tell("a", 1);
    desk.tell("b", 1);
    desk.tell("b", 2);
    assert_eq!(desk.ask_all(Answer::Accepted), ["a1", "b1", "b2"]);
    desk.restart(limits, &[("a", 1), ("b", 1), ("b", 2)]);
    assert_eq!(desk.queue.due_ms(), None);
    desk.tell("a", 1);
    desk.tell("b", 2);
    desk.tell("b", 1);
    let (id, outcome) = desk.ask(Answer::Accepted).unwrap();
    assert_eq!(
        (id.as_str(), outcome),
        ("a1", Outcome::Accepted { first: false })
    );
    assert_eq!(desk.ask(Answer::Accepted), None);
}

#[test]
fn a_first_place_is_to_be_committed_and_what_is_not_ours_is_left() {
    let mut queue = Queue::new(LIMITS);
    queue.begin(3, 17, &Known::default(), false);
    let first = Position {
        partition: 3,
        next: 17,
        known: "1:".into(),
    };
    assert_eq!(queue.moved(), [first]);
    queue.take(4, 20, Some(transition("a", 1)), 0);
    queue.take(3, 17, Some(transition("b", 1)), 0);
    queue.end(3);
    assert_eq!((queue.due(0), queue.moved()), (None, vec![]));
}

#[test]
fn what_is_no_alert_moves_the_position() {
    let mut queue = Queue::new(LIMITS);
    queue.begin(0, 0, &Known::default(), true);
    queue.take(0, 0, None, 0);
    assert_eq!(queue.moved()[0].next, 1);
}

#[test]
fn the_text_beside_an_offset_keeps_what_was_heard_of_last() {
    let mut desk = Desk::new(LIMITS);
    for n in 0..200 {
        desk.tell(&n.to_string(), 1);
    }
    desk.ask_all(Answer::Accepted);
    // The first one is told again.
    desk.tell("0", 1);
    desk.commit();
    // 2 bytes, and 24 for each of 166 alerts.
    assert_eq!(desk.kept.known.len(), 2 + 24 * 166);
    let log = [("", 0); 201];
    desk.restart(LIMITS, &log);
    desk.accepted.clear();
    for n in 0..200 {
        desk.tell(&n.to_string(), 1);
    }
    let again = desk.ask_all(Answer::Accepted);
    // 0 and 35 to 199 are known.
    assert_eq!(again.len(), 34);
    assert_eq!((again[0].as_str(), again[33].as_str()), ("11", "341"));
}

#[test]
fn a_text_of_another_form_says_nothing() {
    for text in ["", "2:000000000001000000000001", "1:zz", "1:0000ä0000001"] {
        assert_eq!(Known::read(text), Known::default(), "{text}");
    }
    let cut = "1:00000000000a0000000000640000000b";
    assert_eq!(Known::read(cut), Known::read(&cut[..26]));
    assert_ne!(Known::read(cut), Known::default());
}

/// What happens: an alert goes on, or is told again; the service answers; the process dies.
#[derive(Clone, Copy, Debug)]
enum Step {
    Next(usize),
    Again(usize),
    Ask(bool),
    Wait,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..3_usize).prop_map(Step::Next),
        4 => (0..3_usize).prop_map(Step::Again),
        4 => any::<bool>().prop_map(Step::Ask),
        2 => Just(Step::Wait),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #[test]
    fn each_transition_is_accepted_once_and_in_order(steps in steps()) {
        let alerts = ["a", "b", "c"];
        let mut desk = Desk::new(LIMITS);
        let mut log: Vec<(&str, i64)> = Vec::new();
        let mut newest = [0_i64; 3];
        for step in steps {
            match step {
                Step::Next(at) => {
                    newest[at] += 1;
                    log.push((alerts[at], newest[at]));
                    desk.tell(alerts[at], newest[at]);
                }
                // Any older one may come again, too.
                Step::Again(at) if newest[at] > 0 => {
                    let number = newest[at] - i64::from(newest[at] > 1 && log.len().is_multiple_of(3));
                    log.push((alerts[at], number));
                    desk.tell(alerts[at], number);
                }
                Step::Again(_) => {}
                Step::Ask(fine) => {
                    desk.ask(if fine { Answer::Accepted } else { LATER });
                }
                Step::Wait => desk.now_ms += 2_000,
                Step::Restart => desk.restart(LIMITS, &log),
            }
        }
        while let Some(due_ms) = desk.queue.due_ms() {
            desk.now_ms = desk.now_ms.max(due_ms);
            desk.ask(Answer::Accepted);
        }
        let mut of: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for id in &desk.accepted {
            of.entry(&id[..1]).or_default().push(id.clone());
        }
        for (at, alert) in alerts.iter().enumerate() {
            let all: Vec<String> = (1..=newest[at]).map(|n| format!("{alert}{n}")).collect();
            prop_assert_eq!(of.remove(alert).unwrap_or_default(), all);
        }
        desk.commit();
        prop_assert_eq!(desk.kept.next, log.len() as i64);
    }
}
