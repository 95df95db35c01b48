-- The retry-cost share, and what it is made of (MONEY.md, section 4).
--
-- Retries are the attempts of an operation after its first, hedges excluded: a hedge is other
-- cost, as it was not sent because one failed. Attempts whose cost is not known are in neither
-- side: they are counted beside. Redundant cost, the toll, stands beside the share, of the same
-- attempts: a retry after a 429 is retry cost and no toll.
--
-- The retry rate is of the operations that ended in the window, under the model of their first
-- attempt and the hour of their end.
WITH part AS (
  SELECT
    *,
    CASE $by
      WHEN 'hour' THEN CAST(date_trunc('hour', arrow_cast(hour, $zone_type)) AS VARCHAR)
      WHEN 'day' THEN substr(CAST(arrow_cast(hour, $zone_type) AS VARCHAR), 1, 10)
      WHEN 'service' THEN service
      WHEN 'model' THEN model
      WHEN 'tenant' THEN tenant
      ELSE 'all'
    END AS key,
    retry >= 1 AND NOT is_hedge AS is_cost
  FROM rollup
  WHERE counted AND hour >= $since AND hour < $until
),
sums AS (
  SELECT
    key,
    min(hour) AS first_hour,
    sum(operations) AS operations,
    sum(operations_retried) AS operations_retried,
    sum(attempts) AS attempts,
    coalesce(sum(attempts) FILTER (WHERE is_cost), 0) AS retries,
    coalesce(sum(attempts) FILTER (WHERE is_hedge), 0) AS hedges,
    coalesce(sum(attempts) FILTER (WHERE NOT is_cost), 0) AS others,
    coalesce(sum(attempts) FILTER (WHERE redundant), 0) AS redundant,
    sum(opening) AS opening,
    coalesce(sum(attempts) FILTER (WHERE retry = 0), 0) AS first_attempts,
    coalesce(sum(attempts) FILTER (WHERE retry IS NULL), 0) AS unnumbered,
    sum(unpriced) AS unpriced,
    sum(tokens_unknown) AS tokens_unknown,
    sum(no_estimate) AS no_estimate,
    sum(successes) AS successes,
    sum(coverable) AS coverable,
    sum(covered) AS covered,
    sum(cost_confirmed) FILTER (WHERE is_cost) AS retry_confirmed,
    sum(cost_expected) FILTER (WHERE is_cost) AS retry_expected,
    sum(cost_ceiling) FILTER (WHERE is_cost) AS retry_ceiling,
    sum(cost_confirmed) FILTER (WHERE NOT is_cost) AS other_confirmed,
    sum(cost_expected) FILTER (WHERE NOT is_cost) AS other_expected,
    sum(cost_ceiling) FILTER (WHERE NOT is_cost) AS other_ceiling,
    sum(cost_expected) FILTER (WHERE redundant) AS redundant_expected,
    sum(cost_confirmed) FILTER (WHERE redundant) AS redundant_confirmed,
    sum(cost_ceiling) FILTER (WHERE redundant) AS redundant_ceiling
  FROM part
  GROUP BY key
),
-- No retries cost nothing; retries of which no cost is known have an unknown one.
money AS (
  SELECT
    *,
    CAST(CASE WHEN retries = 0 THEN 0 ELSE retry_confirmed END AS DECIMAL(38, 12)) AS r_confirmed,
    CAST(CASE WHEN retries = 0 THEN 0 ELSE retry_expected END AS DECIMAL(38, 12)) AS r_expected,
    CAST(CASE WHEN retries = 0 THEN 0 ELSE retry_ceiling END AS DECIMAL(38, 12)) AS r_ceiling,
    CAST(CASE WHEN others = 0 THEN 0 ELSE other_confirmed END AS DECIMAL(38, 12))
      AS o_confirmed,
    CAST(CASE WHEN others = 0 THEN 0 ELSE other_expected END AS DECIMAL(38, 12))
      AS o_expected,
    CAST(CASE WHEN others = 0 THEN 0 ELSE other_ceiling END AS DECIMAL(38, 12))
      AS o_ceiling,
    CAST(CASE WHEN redundant = 0 THEN 0 ELSE redundant_expected END AS DECIMAL(38, 12))
      AS t_expected,
    CAST(CASE WHEN redundant = 0 THEN 0 ELSE redundant_confirmed END AS DECIMAL(38, 12))
      AS t_confirmed,
    CAST(CASE WHEN redundant = 0 THEN 0 ELSE redundant_ceiling END AS DECIMAL(38, 12))
      AS t_ceiling,
    -- Who never logs a success is a service; another group may well hold failures alone.
    CASE WHEN $by = 'service' THEN successes ELSE sum(successes) OVER () END AS successes_logged,
    CASE WHEN $by = 'service' THEN first_attempts ELSE sum(first_attempts) OVER () END
      AS first_attempts_logged
  FROM sums
  -- A model may have begun an operation here of which another model made all attempts.
  WHERE attempts > 0
),
judged AS (
  SELECT
    *,
    CASE
      WHEN successes_logged = 0 THEN 'not computable: no success is logged'
      WHEN covered * 100 < coverable * $coverage_pct_min THEN
        'not computable: usage is logged for ' || covered || ' of ' || coverable
        || ' answers, under ' || $coverage_pct_min || ' %'
      WHEN retries > 0 AND (
        first_attempts_logged = 0
        OR ($by IN ('all', 'service') AND first_attempts * 2 < opening)
      ) THEN
        'not computable: ' || first_attempts || ' first attempts of ' || opening
        || ' operations are logged, under half; see attempt_base'
      WHEN retries + others = 0 THEN 'not computable: no attempt has a number'
      WHEN r_expected IS NULL THEN 'not computable: no retry has a known cost'
      WHEN o_expected IS NULL THEN 'not computable: no first attempt has a known cost'
      WHEN r_expected + o_expected = 0 THEN 'not computable: nothing was spent'
    END AS withheld
  FROM money
),
shares AS (
  SELECT
    *,
    CASE WHEN withheld IS NULL THEN
      CAST(100 * (r_expected / (r_expected + o_expected)) AS DECIMAL(18, 12))
    END AS share_pct,
    CASE WHEN withheld IS NULL THEN
      CAST(100 * (r_confirmed / NULLIF(r_confirmed + o_ceiling, 0)) AS DECIMAL(18, 12))
    END AS share_low_pct,
    CASE WHEN withheld IS NULL THEN
      CAST(100 * (r_ceiling / NULLIF(r_ceiling + o_confirmed, 0)) AS DECIMAL(18, 12))
    END AS share_high_pct
  FROM judged
)
SELECT
  key,
  share_pct,
  CASE
    WHEN share_pct < 5 THEN 'healthy'
    WHEN share_pct < 8 THEN 'review'
    WHEN share_pct <= 15 THEN 'evaluate'
    WHEN share_pct > 15 THEN 'incident'
  END AS band,
  CASE
    WHEN share_pct < 5 THEN 'healthy'
    WHEN share_pct < 8 THEN 'review the retry policy'
    WHEN share_pct <= 15 THEN
      'if it lasts for 7 days, evaluate a fallback model or a second provider'
    WHEN share_pct > 15 THEN 'treat as an incident'
  END AS band_meaning,
  share_low_pct,
  share_high_pct,
  CASE
    WHEN withheld IS NULL AND first_attempts < $first_attempts_min THEN
      'too few: ' || first_attempts || ' first attempts, under ' || $first_attempts_min
    ELSE withheld
  END AS note,
  r_expected AS retry_expected_usd,
  r_confirmed AS retry_confirmed_usd,
  r_ceiling AS retry_ceiling_usd,
  o_expected AS other_expected_usd,
  o_confirmed AS other_confirmed_usd,
  o_ceiling AS other_ceiling_usd,
  t_expected AS redundant_expected_usd,
  t_confirmed AS redundant_confirmed_usd,
  t_ceiling AS redundant_ceiling_usd,
  CASE WHEN withheld IS NULL THEN
    CAST(100 * (t_expected / (r_expected + o_expected)) AS DECIMAL(18, 12))
  END AS redundant_share_pct,
  CAST(
    100 * (CAST(operations_retried AS DECIMAL(20, 12)) / NULLIF(operations, 0)) AS DECIMAL(18, 12)
  ) AS retry_rate_pct,
  operations,
  operations_retried,
  attempts,
  retries,
  first_attempts,
  hedges,
  unnumbered,
  unpriced,
  tokens_unknown,
  no_estimate,
  CAST(100 * (CAST(covered AS DECIMAL(20, 12)) / NULLIF(coverable, 0)) AS DECIMAL(18, 12))
    AS coverage_pct
FROM shares
ORDER BY
  CASE WHEN $by IN ('hour', 'day') THEN first_hour END,
  r_expected DESC NULLS LAST,
  o_expected DESC NULLS LAST,
  attempts DESC,
  key
