-- The month's bill by tenant, team and service: what was delivered, and what was not.
--
-- The calendar month of $until in the zone, from its first instant up to $until; $since is not
-- looked at. An $until on the first instant of a month asks for the whole month before it. The
-- month before is taken over as many whole hours from its own first instant, at most to its end.
--
-- Expected cost of counted attempts, by their own time, in parts that add up to the total: delivered,
-- repeats confirmed and likely (expected less confirmed), undelivered, cancelled, losers of
-- hedges, cache hits, and what is still open. The toll is the repeats, and undelivered
-- attempts of operations that tried more than once. Attempts of unknown cost are in no sum: they
-- are counted beside.
WITH month AS (
  SELECT
    date_trunc('month', arrow_cast($until, $zone_type) - INTERVAL '1 microsecond') AS began,
    date_trunc(
      'month',
      date_trunc('month', arrow_cast($until, $zone_type) - INTERVAL '1 microsecond')
        - INTERVAL '1 day'
    ) AS before_began
),
span AS (
  SELECT
    substr(CAST(began AS VARCHAR), 1, 7) AS month,
    arrow_cast(began, 'Int64') AS began_us,
    arrow_cast(before_began, 'Int64') AS before_began_us,
    least(
      arrow_cast(before_began, 'Int64')
        + arrow_cast(date_trunc('hour', $until), 'Int64') - arrow_cast(began, 'Int64'),
      arrow_cast(began, 'Int64')
    ) AS before_ended_us
  FROM month
),
part AS (
  SELECT
    span.month,
    it.*,
    arrow_cast(it.hour, 'Int64') >= span.began_us AS now,
    coalesce(it.role, 'open') AS part
  FROM rollup AS it
  CROSS JOIN span
  WHERE
    it.counted
    AND it.hour < $until
    AND (
      arrow_cast(it.hour, 'Int64') >= span.began_us
      OR arrow_cast(it.hour, 'Int64') >= span.before_began_us
      AND arrow_cast(it.hour, 'Int64') < span.before_ended_us
    )
),
sums AS (
  SELECT
    month,
    tenant,
    team,
    service,
    coalesce(sum(attempts) FILTER (WHERE now), 0) AS attempts,
    coalesce(sum(attempts) FILTER (WHERE NOT now), 0) AS attempts_before,
    coalesce(sum(cost_unknown) FILTER (WHERE now), 0) AS cost_unknown,
    coalesce(sum(coverable) FILTER (WHERE now), 0) AS coverable,
    coalesce(sum(covered) FILTER (WHERE now), 0) AS covered,
    coalesce(sum(attempts) FILTER (WHERE now AND part = 'delivered'), 0) AS delivered,
    coalesce(sum(attempts) FILTER (WHERE now AND part = 'repeat'), 0) AS repeats,
    coalesce(sum(attempts) FILTER (WHERE now AND part = 'undelivered'), 0) AS undelivered,
    coalesce(sum(attempts) FILTER (WHERE now AND part = 'cancelled'), 0) AS cancelled,
    coalesce(sum(attempts) FILTER (WHERE now AND part = 'hedge'), 0) AS hedged,
    coalesce(sum(attempts) FILTER (WHERE now AND part = 'cached'), 0) AS cached,
    coalesce(sum(attempts) FILTER (WHERE now AND part = 'open'), 0) AS open_attempts,
    coalesce(sum(attempts) FILTER (WHERE now AND redundant), 0) AS redundant,
    coalesce(sum(attempts) FILTER (WHERE NOT now AND redundant), 0) AS redundant_before,
    sum(cost_expected) FILTER (WHERE now) AS total,
    sum(cost_expected) FILTER (WHERE now AND part = 'delivered') AS delivered_usd,
    sum(cost_confirmed) FILTER (WHERE now AND part = 'repeat') AS repeat_confirmed,
    -- What is confirmed of an attempt of unknown cost is 0: nothing is taken away for it.
    sum(cost_expected) FILTER (WHERE now AND part = 'repeat')
      - sum(cost_confirmed) FILTER (WHERE now AND part = 'repeat') AS repeat_likely,
    sum(cost_expected) FILTER (WHERE now AND part = 'undelivered') AS undelivered_usd,
    sum(cost_expected) FILTER (WHERE now AND part = 'cancelled') AS cancelled_usd,
    sum(cost_expected) FILTER (WHERE now AND part = 'hedge') AS hedge_usd,
    sum(cost_expected) FILTER (WHERE now AND part = 'cached') AS cached_usd,
    sum(cost_expected) FILTER (WHERE now AND part = 'open') AS open_usd,
    sum(cost_expected) FILTER (WHERE now AND redundant) AS toll_expected,
    sum(cost_confirmed) FILTER (WHERE now AND redundant) AS toll_confirmed,
    sum(cost_expected) FILTER (WHERE NOT now) AS total_before,
    sum(cost_expected) FILTER (WHERE NOT now AND redundant) AS toll_before
  FROM part
  GROUP BY month, tenant, team, service
),
-- A part without attempts costs nothing; one whose attempts have no known cost has none.
money AS (
  SELECT
    *,
    CAST(total AS DECIMAL(38, 12)) AS total_usd,
    CAST(total_before AS DECIMAL(38, 12)) AS total_before_usd,
    CAST(CASE WHEN redundant = 0 THEN 0 ELSE toll_expected END AS DECIMAL(38, 12))
      AS toll_expected_usd,
    CAST(CASE WHEN redundant = 0 THEN 0 ELSE toll_confirmed END AS DECIMAL(38, 12))
      AS toll_confirmed_usd,
    CAST(
      CASE
        WHEN redundant_before > 0 THEN toll_before
        WHEN attempts_before > 0 THEN 0
      END AS DECIMAL(38, 12)
    ) AS toll_before_usd
  FROM sums
  WHERE attempts > 0
)
SELECT
  month,
  tenant,
  team,
  service,
  total_usd,
  CAST(CASE WHEN delivered = 0 THEN 0 ELSE delivered_usd END AS DECIMAL(38, 12)) AS delivered_usd,
  CAST(CASE WHEN repeats = 0 THEN 0 ELSE repeat_confirmed END AS DECIMAL(38, 12))
    AS repeat_confirmed_usd,
  CAST(CASE WHEN repeats = 0 THEN 0 ELSE repeat_likely END AS DECIMAL(38, 12))
    AS repeat_likely_usd,
  CAST(CASE WHEN undelivered = 0 THEN 0 ELSE undelivered_usd END AS DECIMAL(38, 12))
    AS undelivered_usd,
  CAST(CASE WHEN cancelled = 0 THEN 0 ELSE cancelled_usd END AS DECIMAL(38, 12)) AS cancelled_usd,
  CAST(CASE WHEN hedged = 0 THEN 0 ELSE hedge_usd END AS DECIMAL(38, 12)) AS hedge_usd,
  CAST(CASE WHEN cached = 0 THEN 0 ELSE cached_usd END AS DECIMAL(38, 12)) AS cached_usd,
  CAST(CASE WHEN open_attempts = 0 THEN 0 ELSE open_usd END AS DECIMAL(38, 12)) AS open_usd,
  toll_expected_usd,
  toll_confirmed_usd,
  toll_before_usd,
  toll_expected_usd - toll_before_usd AS toll_change_usd,
  total_before_usd,
  CAST(
    100 * ((total_usd - total_before_usd) / NULLIF(total_before_usd, 0)) AS DECIMAL(24, 12)
  ) AS total_change_pct,
  attempts,
  attempts_before,
  cost_unknown,
  CAST(100 * (CAST(covered AS DECIMAL(20, 12)) / NULLIF(coverable, 0)) AS DECIMAL(18, 12))
    AS coverage_pct,
  CASE
    WHEN covered * 100 < coverable * $coverage_pct_min THEN
      'too low: usage is logged for ' || covered || ' of ' || coverable || ' answers, under '
      || $coverage_pct_min || ' %'
    WHEN total_usd IS NULL THEN 'not computable: no attempt has a known cost'
    WHEN cost_unknown * 100 > attempts * (100 - $coverage_pct_min) THEN
      'too low: the cost of ' || cost_unknown || ' of ' || attempts || ' attempts is not known'
    WHEN attempts < $attempts_min THEN
      'too few: ' || attempts || ' attempts, under ' || $attempts_min
  END AS note
FROM money
ORDER BY
  total_usd DESC NULLS LAST,
  toll_expected_usd DESC NULLS LAST,
  attempts DESC,
  tenant,
  team,
  service
