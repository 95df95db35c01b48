//! tokens, price, caller's cost, policy → billing state with its evidence, and own money.
//!
//! *Confirmed* is what evidence shows, *ceiling* what it can be at most; *unpriced* is a model
//! without a price, *uncovered* an answer without usage. Definitions: MONEY §3 and §4.

pub(crate) mod policy;
pub(crate) mod price;

pub use policy::{BillingState, Chance, Policy, PolicyError, PolicyFacts, Verdict};
pub use price::{BadPrice, Price, PriceError, Prices, Tokens};

use crate::class::ErrorClass;
use crate::money::{ROW_MAX, divide_half_even};

/// What shows that an attempt was billed or not. The order is that of the column's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Evidence {
    /// The provider's usage, above zero.
    Usage,
    /// A cost on the event.
    Caller,
    /// The policy's table.
    Policy,
}

impl Evidence {
    /// The words, by number.
    pub const NAMES: [&'static str; 3] = ["usage", "caller", "policy"];
}

/// What a row's money rests on. The order is that of the column's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CostBasis {
    /// The provider's tokens at list price.
    Usage,
    /// The caller's own cost.
    Caller,
    /// Own input and `max_tokens` × n at list price: a ceiling.
    Formula,
    /// The model has no price.
    Unpriced,
}

impl CostBasis {
    /// The words, by number.
    pub const NAMES: [&'static str; 4] = ["usage", "caller", "formula", "unpriced"];
}

/// What the event says that money depends on.
#[derive(Clone, Copy, Debug)]
pub struct BillFacts<'a> {
    pub class: ErrorClass,
    pub verdict: Verdict,
    /// The list price of the model; `None` is unpriced.
    pub price: Option<&'a Price>,
    /// Tokens as told, by whomever; `None` was not told.
    pub input_tokens: Option<i64>,
    pub output_tokens: Option<i64>,
    pub received_output_tokens: Option<i64>,
    /// Cache tokens, zero where not told; `input` and `output` are taken from above.
    pub cache: Tokens,
    pub usage: UsageSource,
    pub stream: Option<bool>,
    pub max_tokens: Option<i64>,
    /// Answers asked for.
    pub n: i64,
    /// The caller's cost in 10^-12 of its unit.
    pub caller_cost: Option<i128>,
    pub cost_unit: &'a str,
    pub cache_hit: bool,
    pub billing_mode: &'a str,
}

/// Who counted the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageSource {
    Provider,
    /// Estimated or partial: no evidence.
    Other,
}

/// An attempt's own money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bill {
    pub state: BillingState,
    pub p_billed: Chance,
    pub evidence: Evidence,
    /// 10^-12 dollars; `None` where unpriced or tokens are unknown.
    pub confirmed: Option<i128>,
    /// 10^-12 dollars; `None` where nothing bounds it, and where `confirmed` is.
    pub ceiling: Option<i128>,
    /// `None` where nothing was billed, and where it was but the tokens are unknown.
    pub basis: Option<CostBasis>,
    /// What a million tokens of input and of output cost here, 10^-12 dollars; `None` is unpriced.
    pub per_million: Option<(i128, i128)>,
    pub unit_suspect: bool,
    pub unit_unknown: bool,
    pub overflow: bool,
    /// Not known to be billed, and the provider stopped with the stream.
    pub stops: bool,
    /// The caller says that it cost nothing, and nothing shows that.
    pub zero_cost: bool,
}

/// The caller's cost is not used when it and the table are apart by more than this.
const UNIT_SUSPECT_FACTOR: i128 = 20;

impl BillFacts<'_> {
    /// Whether the provider's own count shows a billed attempt. Zero tokens show nothing.
    fn has_usage(&self) -> bool {
        let counted = |tokens: Option<i64>| tokens.is_some_and(|tokens| tokens > 0);
        self.usage == UsageSource::Provider
            && (counted(self.input_tokens) || counted(self.output_tokens))
    }

    /// The provider's tokens, where all that cost something are known: what is missing is not
    /// zero. A failure has no output to count, and some models charge none.
    fn provider_tokens(&self) -> Option<Tokens> {
        let no_output = !self.class.is_answer() || self.price.is_some_and(|it| it.output == 0);
        let output = self.output_tokens.or(no_output.then_some(0));
        Some(Tokens {
            input: self.input_tokens?,
            output: output?,
            ..self.cache
        })
        .filter(|_| self.has_usage())
    }

    /// Whether a call costs nothing at the margin.
    fn is_free(&self) -> bool {
        matches!(self.billing_mode, "provisioned" | "free" | "self_hosted")
    }

    /// Whether the provider stopped with the stream.
    fn stops(&self) -> bool {
        let streamed = self.stream.unwrap_or(self.class == ErrorClass::Stream);
        self.verdict.stops_on_disconnect && streamed
    }

    /// The most tokens that the request itself allows.
    fn formula_tokens(&self) -> Option<Tokens> {
        let output = match self.received_output_tokens {
            Some(received) if self.stops() => received,
            _ => self.max_tokens?.saturating_mul(self.n),
        };
        Some(Tokens {
            // Zero is what is logged where nobody knows.
            input: self.input_tokens.filter(|it| *it > 0)?,
            output,
            ..self.cache
        })
    }

    /// The caller's cost in dollars, where its unit is known.
    fn caller_dollars(&self, bill: &mut Bill) -> Option<i128> {
        let cost = self.caller_cost?;
        let is = |unit: &str| self.cost_unit.eq_ignore_ascii_case(unit);
        if is("") || is("usd") || is("dollars") {
            Some(cost)
        } else if is("cents") || is("usd_cents") {
            Some(divide_half_even(cost, 100))
        } else {
            bill.unit_unknown = true;
            None
        }
    }

    /// The caller's cost where it may be used. Zero is what callers write who don't know.
    fn caller(&self, bill: &mut Bill) -> Option<i128> {
        let cost = self.caller_dollars(bill).filter(|cost| *cost > 0)?;
        let by = |tokens: Option<Tokens>| self.price?.cost(tokens?).filter(|table| *table > 0);
        let apart = |low: i128, high: i128| high > low.saturating_mul(UNIT_SUSPECT_FACTOR);
        bill.unit_suspect = match by(self.provider_tokens()) {
            Some(table) => apart(table.min(cost), table.max(cost)),
            // Without usage, the table still says what is too much.
            None => by(self.formula_tokens()).is_some_and(|most| apart(most, cost)),
        };
        Some(cost).filter(|_| !bill.unit_suspect)
    }
}

/// State, evidence and money of one attempt, by MONEY's order of evidence: the provider's usage,
/// the caller's cost, the policy. (Invoices come in later, by the views.)
#[must_use]
pub fn bill(facts: &BillFacts<'_>) -> Bill {
    let mut bill = by_evidence(facts);
    let is_known = bill.state != BillingState::Unknown && bill.confirmed.is_some();
    bill.zero_cost = facts.caller_cost == Some(0) && !facts.is_free() && !is_known;
    bill
}

fn by_evidence(facts: &BillFacts<'_>) -> Bill {
    let mut bill = Bill {
        state: facts.verdict.state,
        p_billed: facts.verdict.p_billed,
        evidence: Evidence::Policy,
        confirmed: None,
        ceiling: None,
        basis: None,
        per_million: match facts.is_free() {
            true => Some((0, 0)),
            false => facts.price.map(Price::per_million),
        },
        unit_suspect: false,
        unit_unknown: false,
        overflow: false,
        stops: false,
        zero_cost: false,
    };
    let caller = facts.caller(&mut bill);
    if facts.cache_hit {
        // The gateway's own cache answered: nothing went out.
        return unbilled(bill, Evidence::Caller);
    }
    if facts.has_usage() {
        bill.state = BillingState::Billed;
        bill.p_billed = Chance::SURE;
        bill.evidence = Evidence::Usage;
        return with_usage(facts, caller, bill);
    }
    if facts.is_free() {
        bill.confirmed = Some(0);
        bill.ceiling = Some(0);
        return bill;
    }
    if let Some(cost) = caller {
        bill.state = BillingState::Billed;
        bill.p_billed = Chance::SURE;
        bill.evidence = Evidence::Caller;
        return settled(bill, Some(cost), CostBasis::Caller);
    }
    by_policy(facts, bill)
}

fn unbilled(mut bill: Bill, evidence: Evidence) -> Bill {
    bill.state = BillingState::Unbilled;
    bill.p_billed = Chance::NEVER;
    bill.evidence = evidence;
    bill.confirmed = Some(0);
    bill.ceiling = Some(0);
    bill
}

fn with_usage(facts: &BillFacts<'_>, caller: Option<i128>, bill: Bill) -> Bill {
    if facts.is_free() {
        return settled(bill, Some(0), CostBasis::Usage);
    }
    match (facts.price, facts.provider_tokens(), caller) {
        (Some(price), Some(tokens), _) => settled(bill, price.cost(tokens), CostBasis::Usage),
        (_, _, Some(cost)) => settled(bill, Some(cost), CostBasis::Caller),
        (None, _, None) => Bill {
            basis: Some(CostBasis::Unpriced),
            ..bill
        },
        // Billed, some tokens unknown: no figure yet.
        (Some(_), None, None) => bill,
    }
}

/// A billed attempt of known cost; one that fits no row is null, and said.
fn settled(mut bill: Bill, cost: Option<i128>, basis: CostBasis) -> Bill {
    let cost = cost.filter(|cost| *cost <= ROW_MAX);
    bill.overflow = cost.is_none();
    bill.confirmed = cost;
    bill.ceiling = cost;
    bill.basis = Some(basis);
    bill
}

fn by_policy(facts: &BillFacts<'_>, mut bill: Bill) -> Bill {
    bill.basis = facts.price.is_none().then_some(CostBasis::Unpriced);
    match (bill.state, facts.price) {
        (BillingState::Unbilled, _) => {
            bill.basis = None;
            return unbilled(bill, Evidence::Policy);
        }
        // Billed, tokens unknown: no figure yet, and none that bounds it.
        (BillingState::Billed, _) => {}
        (BillingState::Unknown, None) => bill.confirmed = Some(0),
        (BillingState::Unknown, Some(price)) => {
            bill.confirmed = Some(0);
            bill.basis = Some(CostBasis::Formula);
            bill.stops = facts.stops();
            if let Some(tokens) = facts.formula_tokens() {
                bill.ceiling = price.cost(tokens);
                bill.overflow = bill.ceiling.is_none();
            }
        }
    }
    bill
}

#[cfg(test)]
mod tests;
