-- The toll, and what it is made of: redundant cost (MONEY.md, section 4).
--
-- Attempts of role repeat (beside a delivered one) and undelivered ones of an operation that tried
-- more than once, by their own time; class and day are the attempt's own. The output part is
-- output tokens at their price, the input part all else, of the confirmed cost that usage and a
-- list price gave; where the caller or a bill gave the cost its parts are not known (not_split). An attempt
-- of unknown cost is in no sum: it is counted beside.
--
-- The share is of the key's own spend; of a class, of all spend: no class spends without its toll.
-- Where usage is logged for too few answers, what was spent is not known, and no share is told.
--
-- The cost multiple is the median, over operations with a retry, of expected cost divided by the
-- median one-attempt cost: of what was delivered at the first attempt, not for nothing, by the
-- same service and first model. Rescued ones were delivered after all, lost ones never. An
-- operation belongs to the window in which it ended, and to the class of its first attempt.
WITH attempt AS (
  SELECT
    CASE $by
      WHEN 'class' THEN error_class
      WHEN 'day' THEN substr(CAST(arrow_cast(ts, $zone_type) AS VARCHAR), 1, 10)
      WHEN 'model' THEN model
      WHEN 'tenant' THEN tenant
      ELSE service
    END AS key,
    CASE WHEN redundant THEN role END AS redundant,
    cost_confirmed,
    cost_expected,
    coverable,
    evidence = 'usage' AS with_usage,
    billing = 'billed' AND coalesce(cost_confirmed <> 0, TRUE) AS paid,
    CASE
      WHEN billing = 'billed' AND cost_basis = 'usage' AND cost_confirmed <> 0 THEN
        CAST(
          CAST(output_tokens AS DECIMAL(15, 0)) * output_usd_per_mtok * 0.000001 AS DECIMAL(18, 12)
        )
    END AS output_part
  FROM attempts
  WHERE counted AND ts >= $since AND ts < $until
),
sums AS (
  SELECT
    key,
    count(*) AS attempts,
    count(*) FILTER (WHERE coverable) AS coverable,
    count(*) FILTER (WHERE coverable AND with_usage) AS covered,
    count(redundant) AS redundant_attempts,
    count(*) FILTER (WHERE redundant = 'repeat') AS repeats,
    count(*) FILTER (WHERE redundant = 'undelivered') AS undelivered,
    count(*) FILTER (WHERE redundant IS NOT NULL AND cost_expected IS NULL) AS cost_unknown,
    count(*) FILTER (WHERE redundant IS NOT NULL AND paid) AS paid,
    count(*) FILTER (WHERE redundant IS NOT NULL AND paid AND output_part IS NULL) AS not_split,
    sum(cost_expected) AS spend_expected,
    sum(cost_expected) FILTER (WHERE redundant = 'repeat') AS repeat_expected,
    sum(cost_confirmed) FILTER (WHERE redundant = 'repeat') AS repeat_confirmed,
    sum(cost_expected) FILTER (WHERE redundant = 'undelivered') AS undelivered_expected,
    sum(cost_confirmed) FILTER (WHERE redundant = 'undelivered') AS undelivered_confirmed,
    sum(cost_expected) FILTER (WHERE redundant IS NOT NULL) AS toll_expected,
    sum(cost_confirmed) FILTER (WHERE redundant IS NOT NULL) AS toll_confirmed,
    sum(output_part) FILTER (WHERE redundant IS NOT NULL) AS output_part,
    sum(cost_confirmed - output_part) FILTER (WHERE redundant IS NOT NULL) AS input_part
  FROM attempt
  GROUP BY key
),
operation AS (
  SELECT
    CASE $by
      WHEN 'class' THEN first_class
      WHEN 'day' THEN substr(CAST(arrow_cast(ended_at, $zone_type) AS VARCHAR), 1, 10)
      WHEN 'model' THEN first_model
      WHEN 'tenant' THEN tenant
      ELSE service
    END AS key,
    service,
    first_model,
    expected_usd,
    CASE
      WHEN attempts = 1 AND outcome = 'delivered' AND expected_usd > 0 THEN 'single'
      WHEN retries = hedges OR cost_unknown > 0 THEN NULL
      WHEN outcome = 'delivered' THEN 'rescued'
      WHEN outcome <> 'cancelled' THEN 'lost'
    END AS kind
  FROM operations
  WHERE outcome IS NOT NULL AND ended_at >= $since AND ended_at < $until
),
-- The middle one, or the mean of the two in the middle: exact, and the same in any order.
placed_single AS (
  SELECT
    service,
    first_model,
    expected_usd,
    row_number() OVER (PARTITION BY service, first_model ORDER BY expected_usd) AS place,
    count(*) OVER (PARTITION BY service, first_model) AS singles
  FROM operation
  WHERE kind = 'single'
),
single AS (
  SELECT
    service,
    first_model,
    CAST(sum(expected_usd) / count(*) AS DECIMAL(38, 12)) AS median_usd
  FROM placed_single
  WHERE place IN ((singles + 1) / 2, (singles + 2) / 2)
  GROUP BY service, first_model
),
multiple AS (
  SELECT
    operation.key,
    operation.kind,
    CAST(operation.expected_usd / single.median_usd AS DECIMAL(24, 12)) AS multiple
  FROM operation
  INNER JOIN single
    ON operation.first_model = single.first_model
    AND operation.service IS NOT DISTINCT FROM single.service
  WHERE operation.kind IN ('rescued', 'lost')
),
placed_multiple AS (
  SELECT
    key,
    kind,
    multiple,
    row_number() OVER (PARTITION BY key, kind ORDER BY multiple) AS place,
    count(*) OVER (PARTITION BY key, kind) AS operations
  FROM multiple
),
multiples AS (
  SELECT
    key,
    sum(multiple) FILTER (WHERE kind = 'rescued')
      / NULLIF(count(*) FILTER (WHERE kind = 'rescued'), 0) AS rescued,
    sum(multiple) FILTER (WHERE kind = 'lost')
      / NULLIF(count(*) FILTER (WHERE kind = 'lost'), 0) AS lost,
    coalesce(max(operations) FILTER (WHERE kind = 'rescued'), 0) AS rescued_operations,
    coalesce(max(operations) FILTER (WHERE kind = 'lost'), 0) AS lost_operations
  FROM placed_multiple
  WHERE place IN ((operations + 1) / 2, (operations + 2) / 2)
  GROUP BY key
),
-- Nothing redundant costs nothing; redundant attempts of which no cost is known have none.
money AS (
  SELECT
    *,
    CAST(CASE WHEN redundant_attempts = 0 THEN 0 ELSE toll_expected END AS DECIMAL(38, 12))
      AS t_expected,
    CAST(CASE WHEN redundant_attempts = 0 THEN 0 ELSE toll_confirmed END AS DECIMAL(38, 12))
      AS t_confirmed,
    CAST(
      CASE WHEN $by = 'class' THEN sum(spend_expected) OVER () ELSE spend_expected END
      AS DECIMAL(38, 12)
    ) AS s_expected,
    CASE WHEN $by = 'class' THEN sum(coverable) OVER () ELSE coverable END AS share_coverable,
    CASE WHEN $by = 'class' THEN sum(covered) OVER () ELSE covered END AS share_covered
  FROM sums
),
judged AS (
  SELECT
    *,
    CASE
      WHEN share_covered * 100 < share_coverable * $coverage_pct_min THEN
        'not computable: usage is logged for ' || share_covered || ' of ' || share_coverable
        || ' answers, under ' || $coverage_pct_min || ' %'
      WHEN s_expected IS NULL THEN 'not computable: no attempt has a known cost'
      WHEN t_expected IS NULL THEN 'not computable: no redundant attempt has a known cost'
      WHEN s_expected = 0 THEN 'not computable: nothing was spent'
    END AS withheld
  FROM money
)
SELECT
  judged.key,
  t_expected AS toll_expected_usd,
  t_confirmed AS toll_confirmed_usd,
  CASE WHEN withheld IS NULL THEN CAST(100 * (t_expected / s_expected) AS DECIMAL(18, 12)) END
    AS toll_share_pct,
  CAST(CASE WHEN repeats = 0 THEN 0 ELSE repeat_expected END AS DECIMAL(38, 12))
    AS repeat_expected_usd,
  CAST(CASE WHEN repeats = 0 THEN 0 ELSE repeat_confirmed END AS DECIMAL(38, 12))
    AS repeat_confirmed_usd,
  CAST(CASE WHEN undelivered = 0 THEN 0 ELSE undelivered_expected END AS DECIMAL(38, 12))
    AS undelivered_expected_usd,
  CAST(CASE WHEN undelivered = 0 THEN 0 ELSE undelivered_confirmed END AS DECIMAL(38, 12))
    AS undelivered_confirmed_usd,
  CAST(CASE WHEN paid = 0 THEN 0 ELSE input_part END AS DECIMAL(38, 12))
    AS toll_confirmed_input_usd,
  CAST(CASE WHEN paid = 0 THEN 0 ELSE output_part END AS DECIMAL(38, 12))
    AS toll_confirmed_output_usd,
  not_split,
  CAST(multiples.rescued AS DECIMAL(18, 4)) AS rescued_cost_multiple,
  CAST(multiples.lost AS DECIMAL(18, 4)) AS lost_cost_multiple,
  coalesce(multiples.rescued_operations, 0) AS rescued_operations,
  coalesce(multiples.lost_operations, 0) AS lost_operations,
  CAST(spend_expected AS DECIMAL(38, 12)) AS spend_expected_usd,
  redundant_attempts,
  attempts,
  cost_unknown,
  CASE
    WHEN withheld IS NOT NULL THEN withheld
    WHEN
      redundant_attempts > 0
      AND coalesce(multiples.rescued_operations, 0) + coalesce(multiples.lost_operations, 0)
        < $operations_min
    THEN
      'too few: ' || coalesce(multiples.rescued_operations, 0) || ' rescued and '
      || coalesce(multiples.lost_operations, 0) || ' lost operations, under ' || $operations_min
  END AS note
FROM judged
LEFT JOIN multiples ON judged.key IS NOT DISTINCT FROM multiples.key
ORDER BY
  CASE WHEN $by = 'day' THEN judged.key END,
  t_expected DESC NULLS LAST,
  spend_expected_usd DESC NULLS LAST,
  attempts DESC,
  judged.key
