"""Which alerts the demo's day must have told, by operations.py's own figures.

The rules, their windows and thresholds are written here by hand after the table of alerts in README.md.
What was read at once is looked at afterwards: each quarter of an hour, and each minute of the last
quarter; figures of a day each hour, but within the last hour as often as their job is asked; at the end
everything. What is more than a day back is looked at each hour. An alert begins where all its bounds hold, and ends where one is missed by more than a tenth.
A figure that is withheld begins none and ends none; without a word for three windows it ends. The lake holds one day: no hour has a median of
days before.
"""

import bisect
import datetime
from decimal import Decimal

import share

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
OVER, AT_LEAST, UNDER = "over", "at least", "under"


def floor(at, step):
    return at // step * step


def ticks(first, last):
    """(instant, the one before, the last of all): the day's looks, from the first event to the minute
    after the last one."""
    mark = floor(last, MINUTE) + MINUTE
    before = first - 1_000
    while before < mark:
        step = 15 * MINUTE if mark - before > 15 * MINUTE else MINUTE
        at = floor(before, step) + step
        yield at, before, mark
        before = at


class Rule:
    """What is looked at, how far back, how often, and when it is an alert."""

    def __init__(self, name, severity, window, every, bounds, figures, entity, levels=()):
        self.name, self.severity, self.window, self.every = name, severity, window, every
        self.bounds, self.figures, self.entity, self.levels = bounds, figures, entity, levels

    def is_due(self, at, before, mark):
        is_old = mark - at > DAY or mark - at > HOUR and self.window >= DAY
        step = max(self.every, HOUR) if is_old else self.every
        return at == mark or floor(at, step) > floor(before, step)


def holds(bounds, figures, tenths=10):
    """Whether all hold, an open alert's with a tenth to spare; None where one is withheld."""
    found = True
    for name, side, limit in bounds:
        figure = figures.get(name)
        if figure is None:
            return None
        found &= (figure * 10 > limit * tenths if side is OVER else
                  figure * 10 >= limit * tenths if side is AT_LEAST else figure * tenths < limit * 10)
    return found


class Lake:
    """Attempts and operations by their end."""

    def __init__(self, operations):
        self.attempts = sorted((it for op in operations for it in op.attempts), key=lambda it: it.ended)
        self.operations = sorted(operations, key=lambda op: op.ended)
        self.ends = {id(items): [it.ended for it in items] for items in (self.attempts, self.operations)}

    def within(self, items, since, until):
        """Those that ended from `since` on and before `until`."""
        ends = self.ends[id(items)]
        return items[bisect.bisect_left(ends, since):bisect.bisect_left(ends, until)]


def by(items, key):
    groups = {}
    for it in items:
        groups.setdefault(key(it), []).append(it)
    return groups


def cost(attempts):
    """Expected; none cost nothing, and those of which no cost is known an unknown sum."""
    known = [it.expected for it in attempts if it.expected is not None]
    return sum(known, Decimal(0)) if known or not attempts else None


def storm(lake, at):
    """Of a provider's last minute, named after the service if all its retries are of one."""
    minute = lake.within(lake.attempts, at - MINUTE, at)
    for provider, attempts in by(minute, lambda it: it.event["provider"]).items():
        retries = [it for it in attempts if it.is_retry]
        services = {it.service for it in retries}
        burn = cost(retries)
        entity = services.pop() if len(services) == 1 else provider
        yield entity, {"retries": Decimal(len(retries)), "burn": None if burn is None else 60 * burn}


def doomed(lake, at):
    """Of a provider's model: retries of five minutes, and of how many the answer was delivered."""
    retries = [it for it in lake.within(lake.attempts, at - 5 * MINUTE, at) if it.is_retry]
    day = lake.within(lake.attempts, at - 5 * MINUTE - DAY, at)
    measured = {it.service for it in day if it.decision == "success"}
    for key, group in by(retries, lambda it: f"{it.event['provider']}/{it.model}").items():
        group = [it for it in group if it.service in measured]
        delivered = sum(it.decision == "success" for it in group)
        rate = Decimal(100 * delivered) / len(group) if group else None
        yield key, {"retries": Decimal(len(group)), "rate": rate}


def retry_share(lake, at, window=DAY):
    """Of a service's day; its level `error` looks at seven days, `critical` at the last hour, too."""
    hour = lake.within(lake.attempts, at - HOUR, at)
    ended = by(lake.within(lake.operations, at - window, at), lambda it: it.service)
    for service, group in by(lake.within(lake.attempts, at - window, at), lambda it: it.service).items():
        figures = share.figures([it.row for it in group])
        shown = lambda name: None if figures["withheld"] or figures[name] is None else 100 * figures[name]
        figures = {
            "share": shown("share"), "low": shown("share_low"),
            "operations": Decimal(len(ended.get(service, []))),
            "redundant": cost([it for it in group if it.redundant]),
            "per_hour": cost([it for it in hour if it.service == service and it.redundant]),
        }
        yield service, figures


def repeated(lake, at):
    """Of a service's day: what was redundant in operations that were surely billed more than once."""
    for service, group in by(lake.within(lake.operations, at - DAY, at), lambda it: it.service).items():
        confirmed = [it for it in group if it.repeated == "confirmed"]
        known = [it.redundant_confirmed for it in confirmed if it.redundant_confirmed is not None]
        redundant = sum(known, Decimal(0)) if known or not confirmed else None
        yield service, {"redundant": redundant, "operations": Decimal(len(confirmed))}


def unpriced(lake, at):
    """Of a model's day."""
    found = [it for it in lake.within(lake.attempts, at - DAY, at) if it.unpriced]
    for model, group in by(found, lambda it: it.model).items():
        yield model, {"attempts": Decimal(len(group))}


def coverage(lake, at):
    """Of a service's day: answers that come with their usage."""
    for service, group in by(lake.within(lake.attempts, at - DAY, at), lambda it: it.service).items():
        answers = [it for it in group if it.kind in ("none", "truncated", "invalid_output") and not it.cached]
        told = sum(it.usage for it in answers)
        pct = Decimal(100 * told) / len(answers) if answers else None
        yield service, {"answers": Decimal(len(answers)), "coverage": pct}


# The most severe first. Budgets are off where nobody sets one; `pipeline` is by the wall clock.
RULES = [
    Rule("retry_storm", "critical", MINUTE, MINUTE, [("retries", AT_LEAST, 100), ("burn", AT_LEAST, 50)], storm,
         lambda it: {it.event["provider"], it.service}),
    Rule("doomed_outage", "critical", 5 * MINUTE, MINUTE, [("retries", AT_LEAST, 50), ("rate", UNDER, 3)], doomed,
         lambda it: {f"{it.event['provider']}/{it.model}"}),
    Rule("retry_share", "warning", DAY, MINUTE,
         [("share", OVER, 5), ("low", OVER, 4), ("operations", AT_LEAST, 200), ("redundant", AT_LEAST, 20)],
         retry_share, lambda it: {it.service},
         levels=[("error", 7 * DAY, [("share", AT_LEAST, 8)]),
                 ("critical", DAY, [("share", OVER, 15), ("per_hour", AT_LEAST, 50)])]),
    Rule("repeated_billing", "warning", DAY, 5 * MINUTE,
         [("redundant", AT_LEAST, 20), ("operations", AT_LEAST, 20)], repeated, lambda it: {it.service}),
    Rule("unpriced", "info", DAY, 15 * MINUTE, [("attempts", AT_LEAST, 20)], unpriced, lambda it: {it.model}),
    Rule("usage_coverage", "info", DAY, 15 * MINUTE, [("coverage", UNDER, 80), ("answers", AT_LEAST, 200)], coverage,
         lambda it: {it.service}),
]
SEVERITIES = ["info", "warning", "error", "critical"]


def severity(rule, lake, at, entity, open_at, long):
    """How severe it is by now; a level's longer window is looked at where `long` says so."""
    found = rule.severity
    for word, window, bounds in rule.levels:
        was = open_at is not None and SEVERITIES.index(open_at) >= SEVERITIES.index(word)
        held = None
        if window == rule.window or long:
            figures = dict(rule.figures(lake, at, window)).get(entity, {})
            held = holds(bounds, figures, 9 if was else 10)
        if was if held is None else held:
            found = max(found, word, key=SEVERITIES.index)
    return found


def look(rule, lake, at, before, opened):
    """Changes `opened`, the rule's open alerts, by the figures at an instant; gives those that ended."""
    samples = dict(rule.figures(lake, at))
    begins = {it for it, figures in samples.items() if it not in opened and holds(rule.bounds, figures)}
    long = bool(begins) or floor(at, HOUR) > floor(before, HOUR)
    ended = []
    for entity, alert in list(opened.items()):
        heard = lambda windows: any(
            entity in rule.entity(it) for it in lake.within(lake.attempts, at - windows * rule.window, at))
        # Calls without any retry have nothing left of what an alert of retries is about.
        held = holds(rule.bounds, samples[entity], 9) if entity in samples else False if heard(1) else None
        silent = entity not in samples and not heard(3)
        if held is False or silent:
            reason = "no_data" if silent else "recovered"
            ended.append(opened.pop(entity) | {"state": "resolved", "ended": at, "why": reason})
        elif held:
            alert["severity"] = severity(rule, lake, at, entity, alert["severity"], long)
    for entity in begins:
        opened[entity] = {"state": "firing", "rule": rule.name, "entity": entity, "since": at, "ended": None,
                          "severity": severity(rule, lake, at, entity, None, long)}
    return ended


def told(operations):
    """Every alert that began, as `name` names it, each with how it stands at the end."""
    lake = Lake(operations)
    opened, ended = {rule.name: {} for rule in RULES}, []
    for at, before, mark in ticks(lake.attempts[0].ended, lake.attempts[-1].ended):
        for rule in RULES:
            if rule.is_due(at, before, mark):
                ended += look(rule, lake, at, before, opened[rule.name])
    found = ended + [alert for alerts in opened.values() for alert in alerts.values()]
    return {name(alert): alert for alert in map(timed, found)}


def timed(alert):
    """Its instants, which are whole minutes, as the program writes them."""
    utc = lambda at: datetime.datetime.fromtimestamp(at // 1_000_000, datetime.timezone.utc)
    text = lambda at: None if at is None else utc(at).strftime("%Y-%m-%dT%H:%M:%SZ")
    return alert | {"since": text(alert["since"]), "ended": text(alert["ended"])}


def name(row):
    return f"{row['rule']}/{row['entity']} since {row['since']}"
