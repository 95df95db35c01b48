-- Hedges: a second attempt that starts while the first still runs; what the losers cost, and how
-- often a hedge won.
--
-- An operation belongs to the window in which it ended. It is hedged where one of its counted
-- attempts is a hedge (MONEY.md, section 2); the hedge won where the delivered attempt is one. The
-- losers are the attempts of role hedge: either one of an overlapping pair that was not
-- delivered. Those whose cost is not known are in no sum: they are counted beside. The model is
-- that of the operation's first attempt.
WITH hedged AS (
  SELECT
    first_value(CASE $by WHEN 'model' THEN model ELSE service END ORDER BY op_place) AS key,
    count(*) FILTER (WHERE is_hedge) AS hedges,
    bool_or(role = 'delivered' AND is_hedge) AS won,
    bool_or(role = 'delivered') AS delivered,
    count(*) FILTER (WHERE role = 'hedge') AS losers,
    count(*) FILTER (WHERE role = 'hedge' AND cost_expected IS NULL) AS cost_unknown,
    sum(cost_expected) FILTER (WHERE role = 'hedge') AS loser_expected,
    sum(cost_confirmed) FILTER (WHERE role = 'hedge') AS loser_confirmed,
    sum(cost_expected) AS expected
  FROM attempts
  WHERE counted AND op_attempts > 1 AND outcome IS NOT NULL
  GROUP BY operation_id
  HAVING count(*) FILTER (WHERE is_hedge) > 0 AND max(ts) >= $since AND max(ts) < $until
),
sums AS (
  SELECT
    key,
    count(*) AS hedged_operations,
    sum(hedges) AS hedges,
    count(*) FILTER (WHERE won) AS won,
    count(*) FILTER (WHERE delivered AND NOT won) AS lost,
    count(*) FILTER (WHERE NOT delivered) AS undelivered,
    sum(losers) AS losers,
    sum(cost_unknown) AS cost_unknown,
    CAST(sum(loser_expected) AS DECIMAL(38, 12)) AS loser_expected,
    CAST(sum(loser_confirmed) AS DECIMAL(38, 12)) AS loser_confirmed,
    CAST(sum(expected) AS DECIMAL(38, 12)) AS expected
  FROM hedged
  GROUP BY key
),
-- No loser costs nothing; losers of which no cost is known have none.
money AS (
  SELECT
    *,
    CASE WHEN losers = 0 THEN CAST(0 AS DECIMAL(38, 12)) ELSE loser_expected END AS l_expected,
    CASE WHEN losers = 0 THEN CAST(0 AS DECIMAL(38, 12)) ELSE loser_confirmed END AS l_confirmed
  FROM sums
)
SELECT
  key,
  hedged_operations,
  hedges,
  won,
  CAST(100 * (CAST(won AS DECIMAL(20, 12)) / hedged_operations) AS DECIMAL(18, 12)) AS won_pct,
  lost,
  undelivered,
  losers,
  l_expected AS losers_expected_usd,
  l_confirmed AS losers_confirmed_usd,
  CAST(100 * (l_expected / NULLIF(expected, 0)) AS DECIMAL(18, 12)) AS losers_share_pct,
  cost_unknown,
  CASE
    WHEN l_expected IS NULL THEN 'not computable: no loser has a known cost'
    WHEN hedged_operations < $operations_min THEN
      'too few: ' || hedged_operations || ' hedged operations, under ' || $operations_min
  END AS note
FROM money
ORDER BY losers_expected_usd DESC NULLS LAST, hedged_operations DESC, key
