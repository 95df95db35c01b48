//! tokens, price, caller's cost, policy → billing state with its evidence, and own money.
//!
//! *Confirmed* is what evidence shows, *ceiling* what it can be at most; *unpriced* is a model
//! without a price, *uncovered* an answer without usage. Definitions: MONEY §3 and §4.

mod policy;
mod price;

pub use policy::{BillingState, Chance, Policy, PolicyError, PolicyFacts, Verdict};
pub use price::{Price, PriceError, Prices, Tokens};

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
    /// 10^-12 dollars; `None` where nothing bounds it.
    pub ceiling: Option<i128>,
    /// `None` where nothing was billed.
    pub basis: Option<CostBasis>,
    pub unit_suspect: bool,
    pub unit_unknown: bool,
    pub overflow: bool,
}

/// The caller's cost is not used when it and the table are apart by more than this.
const UNIT_SUSPECT_FACTOR: i128 = 20;

impl BillFacts<'_> {
    /// Tokens of the provider's that show a billed attempt. Zero tokens show nothing.
    fn provider_tokens(&self) -> Option<Tokens> {
        let (input, output) = (
            self.input_tokens.unwrap_or(0),
            self.output_tokens.unwrap_or(0),
        );
        let told = self.usage == UsageSource::Provider && input + output > 0;
        told.then_some(Tokens {
            input,
            output,
            ..self.cache
        })
    }

    /// Whether a call costs nothing at the margin.
    fn is_free(&self) -> bool {
        matches!(self.billing_mode, "provisioned" | "free" | "self_hosted")
    }

    /// The greatest cost that the request itself allows.
    fn formula(&self) -> Option<i128> {
        let received = self.received_output_tokens;
        let output = match (self.verdict.stops_on_disconnect, self.stream, received) {
            (true, Some(true), Some(received)) => received,
            _ => self.max_tokens?.checked_mul(self.n)?,
        };
        self.price?.cost(Tokens {
            input: self.input_tokens?,
            output,
            ..self.cache
        })
    }
}

/// State, evidence and money of one attempt, by MONEY's order of evidence: the provider's usage,
/// the caller's cost, the policy. (Invoices come in later, by the views.)
#[must_use]
pub fn bill(facts: &BillFacts<'_>) -> Bill {
    let mut bill = Bill {
        state: facts.verdict.state,
        p_billed: facts.verdict.p_billed,
        evidence: Evidence::Policy,
        confirmed: None,
        ceiling: None,
        basis: None,
        unit_suspect: false,
        unit_unknown: false,
        overflow: false,
    };
    let tokens = facts.provider_tokens();
    let caller = caller_cost(facts, &mut bill);
    if facts.cache_hit {
        // The gateway's own cache answered: nothing went out.
        return unbilled(bill, Evidence::Caller);
    }
    if let Some(tokens) = tokens {
        bill.state = BillingState::Billed;
        bill.p_billed = Chance::SURE;
        bill.evidence = Evidence::Usage;
        return with_usage(facts, tokens, caller, bill);
    }
    if facts.is_free() {
        bill.confirmed = Some(0);
        bill.ceiling = Some(0);
        return bill;
    }
    if let Some(cost) = caller.filter(|cost| *cost > 0) {
        bill.state = BillingState::Billed;
        bill.p_billed = Chance::SURE;
        bill.evidence = Evidence::Caller;
        return settled(bill, Some(cost), CostBasis::Caller);
    }
    by_policy(facts, bill)
}

/// The caller's cost in dollars where it may be used.
fn caller_cost(facts: &BillFacts<'_>, bill: &mut Bill) -> Option<i128> {
    let cost = facts.caller_cost?;
    let cost = match facts.cost_unit {
        "" | "usd" | "USD" | "dollars" => cost,
        "cents" | "usd_cents" | "USD_cents" => divide_half_even(cost, 100),
        _ => {
            bill.unit_unknown = true;
            return None;
        }
    };
    let table = facts
        .provider_tokens()
        .and_then(|tokens| facts.price?.cost(tokens))
        .filter(|table| *table > 0 && cost > 0);
    if let Some(table) = table {
        let (low, high) = (table.min(cost), table.max(cost));
        bill.unit_suspect = high > low.saturating_mul(UNIT_SUSPECT_FACTOR);
    }
    Some(cost).filter(|_| !bill.unit_suspect)
}

fn unbilled(mut bill: Bill, evidence: Evidence) -> Bill {
    bill.state = BillingState::Unbilled;
    bill.p_billed = Chance::NEVER;
    bill.evidence = evidence;
    bill.confirmed = Some(0);
    bill.ceiling = Some(0);
    bill
}

fn with_usage(facts: &BillFacts<'_>, tokens: Tokens, caller: Option<i128>, bill: Bill) -> Bill {
    if facts.is_free() {
        return settled(bill, Some(0), CostBasis::Usage);
    }
    match (facts.price, caller.filter(|cost| *cost > 0)) {
        (Some(price), _) => settled(bill, price.cost(tokens), CostBasis::Usage),
        (None, Some(cost)) => settled(bill, Some(cost), CostBasis::Caller),
        (None, None) => Bill {
            basis: Some(CostBasis::Unpriced),
            ..bill
        },
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
    match bill.state {
        BillingState::Unbilled => return unbilled(bill, Evidence::Policy),
        // Billed, tokens unknown: no figure yet.
        BillingState::Billed => {}
        BillingState::Unknown => bill.confirmed = Some(0),
    }
    if facts.price.is_none() {
        bill.basis = Some(CostBasis::Unpriced);
        bill.confirmed = None;
        return bill;
    }
    bill.ceiling = facts.formula();
    bill.basis = Some(CostBasis::Formula);
    bill
}

#[cfg(test)]
mod tests;
