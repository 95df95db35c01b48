-- The headline figures in one row (MONEY.md, section 4).
--
-- Money, shares and amplification are of the counted attempts whose time is in the window;
-- operations and the retry rate, of the operations that ended in it. What is still open is in
-- no toll, and is counted beside. The toll is redundant cost: attempts of role repeat, and
-- undelivered ones of an operation that tried more than once. Hedges are no retries. Attempts
-- whose cost is not known are in no sum: they are counted beside. An empty window has one row, of
-- counts that are 0 and money that is null.
WITH part AS (
  SELECT *, retry >= 1 AND NOT is_hedge AS is_cost
  FROM rollup
  WHERE counted AND hour >= $since AND hour < $until
),
sums AS (
  SELECT
    coalesce(sum(attempts), 0) AS attempts,
    coalesce(sum(attempts - cache_hits), 0) AS wire_attempts,
    coalesce(sum(cache_hits), 0) AS cache_hits,
    coalesce(sum(attempts) FILTER (WHERE billing = 'billed'), 0) AS billed_attempts,
    coalesce(sum(attempts) FILTER (WHERE role = 'delivered'), 0) AS delivered,
    coalesce(sum(attempts) FILTER (WHERE is_cost), 0) AS retries,
    coalesce(sum(attempts) FILTER (WHERE is_hedge), 0) AS hedges,
    coalesce(sum(attempts) FILTER (WHERE NOT is_cost), 0) AS others,
    coalesce(sum(attempts) FILTER (WHERE retry = 0), 0) AS first_attempts,
    coalesce(sum(attempts) FILTER (WHERE redundant), 0) AS redundant_attempts,
    coalesce(sum(cost_unknown) FILTER (WHERE redundant), 0) AS redundant_cost_unknown,
    coalesce(sum(unpriced), 0) AS unpriced,
    coalesce(sum(cost_unknown), 0) AS cost_unknown,
    coalesce(sum(successes), 0) AS successes,
    coalesce(sum(coverable), 0) AS coverable,
    coalesce(sum(covered), 0) AS covered,
    coalesce(sum(opening), 0) AS opening,
    sum(cost_expected) AS spend_expected,
    sum(cost_confirmed) AS spend_confirmed,
    sum(cost_expected) FILTER (WHERE redundant) AS redundant_expected,
    sum(cost_confirmed) FILTER (WHERE redundant) AS redundant_confirmed,
    sum(cost_confirmed) FILTER (WHERE is_cost) AS retry_confirmed,
    sum(cost_expected) FILTER (WHERE is_cost) AS retry_expected,
    sum(cost_ceiling) FILTER (WHERE is_cost) AS retry_ceiling,
    sum(cost_confirmed) FILTER (WHERE NOT is_cost) AS other_confirmed,
    sum(cost_expected) FILTER (WHERE NOT is_cost) AS other_expected,
    sum(cost_ceiling) FILTER (WHERE NOT is_cost) AS other_ceiling,
    coalesce(sum(operations), 0) AS operations,
    coalesce(sum(operations_retried), 0) AS operations_retried,
    coalesce(sum(operations_open), 0) AS open_operations,
    coalesce(sum(repeated_confirmed), 0) AS repeated_confirmed,
    coalesce(sum(repeated_likely), 0) AS repeated_likely
  FROM part
),
-- Nothing redundant costs nothing; redundant attempts of which no cost is known have none.
money AS (
  SELECT
    *,
    CAST(spend_expected AS DECIMAL(38, 12)) AS s_expected,
    CAST(
      CASE WHEN redundant_attempts > 0 THEN redundant_expected WHEN attempts > 0 THEN 0 END
      AS DECIMAL(38, 12)
    ) AS t_expected,
    CAST(
      CASE WHEN redundant_attempts > 0 THEN redundant_confirmed WHEN attempts > 0 THEN 0 END
      AS DECIMAL(38, 12)
    ) AS t_confirmed,
    CAST(CASE WHEN retries > 0 THEN retry_confirmed WHEN attempts > 0 THEN 0 END AS DECIMAL(38, 12))
      AS r_confirmed,
    CAST(CASE WHEN retries > 0 THEN retry_expected WHEN attempts > 0 THEN 0 END AS DECIMAL(38, 12))
      AS r_expected,
    CAST(CASE WHEN retries > 0 THEN retry_ceiling WHEN attempts > 0 THEN 0 END AS DECIMAL(38, 12))
      AS r_ceiling,
    CAST(CASE WHEN others > 0 THEN other_confirmed WHEN attempts > 0 THEN 0 END AS DECIMAL(38, 12))
      AS o_confirmed,
    CAST(CASE WHEN others > 0 THEN other_expected WHEN attempts > 0 THEN 0 END AS DECIMAL(38, 12))
      AS o_expected,
    CAST(CASE WHEN others > 0 THEN other_ceiling WHEN attempts > 0 THEN 0 END AS DECIMAL(38, 12))
      AS o_ceiling
  FROM sums
),
judged AS (
  SELECT
    *,
    CASE
      WHEN attempts = 0 THEN 'not computable: nothing is logged in the window'
      WHEN successes = 0 THEN 'not computable: no success is logged'
      WHEN covered * 100 < coverable * $coverage_pct_min THEN
        'not computable: usage is logged for ' || covered || ' of ' || coverable
        || ' answers, under ' || $coverage_pct_min || ' %'
      WHEN s_expected IS NULL THEN 'not computable: no attempt has a known cost'
      WHEN s_expected = 0 THEN 'not computable: nothing was spent'
    END AS withheld,
    CASE
      WHEN retries > 0 AND first_attempts * 2 < opening THEN
        'retry share not computable: ' || first_attempts || ' first attempts of ' || opening
        || ' operations are logged, under half; see attempt_base'
      WHEN r_expected IS NULL THEN 'retry share not computable: no retry has a known cost'
      WHEN o_expected IS NULL THEN 'retry share not computable: no first attempt has a known cost'
    END AS retry_withheld
  FROM money
),
shares AS (
  SELECT
    *,
    CASE WHEN withheld IS NULL THEN
      CAST(100 * (t_expected / s_expected) AS DECIMAL(18, 12))
    END AS toll_share_pct,
    CASE WHEN withheld IS NULL AND retry_withheld IS NULL THEN
      CAST(100 * (r_expected / NULLIF(r_expected + o_expected, 0)) AS DECIMAL(18, 12))
    END AS retry_share_pct,
    CASE WHEN withheld IS NULL AND retry_withheld IS NULL THEN
      CAST(100 * (r_confirmed / NULLIF(r_confirmed + o_ceiling, 0)) AS DECIMAL(18, 12))
    END AS retry_share_low_pct,
    CASE WHEN withheld IS NULL AND retry_withheld IS NULL THEN
      CAST(100 * (r_ceiling / NULLIF(r_ceiling + o_confirmed, 0)) AS DECIMAL(18, 12))
    END AS retry_share_high_pct
  FROM judged
)
SELECT
  t_expected AS toll_expected_usd,
  t_confirmed AS toll_confirmed_usd,
  toll_share_pct,
  retry_share_pct,
  CASE
    WHEN retry_share_pct < 5 THEN 'healthy'
    WHEN retry_share_pct < 8 THEN 'review'
    WHEN retry_share_pct <= 15 THEN 'evaluate'
    WHEN retry_share_pct > 15 THEN 'incident'
  END AS band,
  retry_share_low_pct,
  retry_share_high_pct,
  s_expected AS spend_expected_usd,
  CAST(spend_confirmed AS DECIMAL(38, 12)) AS spend_confirmed_usd,
  r_expected AS retry_expected_usd,
  r_confirmed AS retry_confirmed_usd,
  CAST(
    100 * (CAST(operations_retried AS DECIMAL(20, 12)) / NULLIF(operations, 0)) AS DECIMAL(18, 12)
  ) AS retry_rate_pct,
  CAST(CAST(billed_attempts AS DECIMAL(20, 8)) / NULLIF(delivered, 0) AS DECIMAL(18, 4))
    AS amplification,
  CAST(CAST(wire_attempts AS DECIMAL(20, 8)) / NULLIF(delivered, 0) AS DECIMAL(18, 4))
    AS wire_amplification,
  operations,
  operations_retried,
  open_operations,
  repeated_confirmed AS repeated_confirmed_operations,
  repeated_likely AS repeated_likely_operations,
  attempts,
  wire_attempts,
  cache_hits,
  billed_attempts,
  delivered,
  retries,
  hedges,
  redundant_attempts,
  redundant_cost_unknown,
  cost_unknown,
  unpriced,
  CAST(100 * (CAST(covered AS DECIMAL(20, 12)) / NULLIF(coverable, 0)) AS DECIMAL(18, 12))
    AS coverage_pct,
  coalesce(
    withheld,
    retry_withheld,
    CASE WHEN first_attempts < $first_attempts_min THEN
      'too few: ' || first_attempts || ' first attempts, under ' || $first_attempts_min
    END
  ) AS note
FROM shares
