-- What attempts cost that the user stopped.
--
-- Attempts of role cancelled, by their own time. They are no retries and never redundant, and
-- many are billed all the same: to the token at which they stopped, or in full. Attempts whose
-- cost is not known are in no sum: they are counted beside. The share is of the key's own spend.
WITH attempt AS (
  SELECT
    CASE $by WHEN 'model' THEN model ELSE service END AS key,
    role = 'cancelled' AS cancelled,
    billing,
    received_output_tokens,
    cost_confirmed,
    cost_expected,
    cost_ceiling,
    coverable,
    evidence = 'usage' AS with_usage
  FROM attempts
  WHERE counted AND ts >= $since AND ts < $until
),
sums AS (
  SELECT
    key,
    count(*) AS attempts,
    count(*) FILTER (WHERE cancelled) AS cancelled_attempts,
    count(*) FILTER (WHERE cancelled AND billing = 'billed') AS billed,
    count(*) FILTER (WHERE cancelled AND billing = 'unknown') AS billing_unknown,
    count(*) FILTER (WHERE cancelled AND cost_expected IS NULL) AS cost_unknown,
    count(*) FILTER (WHERE coverable) AS coverable,
    count(*) FILTER (WHERE coverable AND with_usage) AS covered,
    sum(received_output_tokens) FILTER (WHERE cancelled) AS received_output_tokens,
    CAST(sum(cost_expected) FILTER (WHERE cancelled) AS DECIMAL(38, 12)) AS expected,
    CAST(sum(cost_confirmed) FILTER (WHERE cancelled) AS DECIMAL(38, 12)) AS confirmed,
    CAST(sum(cost_ceiling) FILTER (WHERE cancelled) AS DECIMAL(38, 12)) AS ceiling,
    CAST(sum(cost_expected) AS DECIMAL(38, 12)) AS spend
  FROM attempt
  GROUP BY key
),
judged AS (
  SELECT
    *,
    CASE
      WHEN covered * 100 < coverable * $coverage_pct_min THEN
        'not computable: usage is logged for ' || covered || ' of ' || coverable
        || ' answers, under ' || $coverage_pct_min || ' %'
      WHEN expected IS NULL THEN 'not computable: no cancelled attempt has a known cost'
      WHEN spend = 0 THEN 'not computable: nothing was spent'
    END AS withheld
  FROM sums
  WHERE cancelled_attempts > 0
)
SELECT
  key,
  expected AS cancelled_expected_usd,
  confirmed AS cancelled_confirmed_usd,
  ceiling AS cancelled_ceiling_usd,
  CASE WHEN withheld IS NULL THEN CAST(100 * (expected / spend) AS DECIMAL(18, 12)) END
    AS share_pct,
  cancelled_attempts,
  billed,
  billing_unknown,
  cost_unknown,
  received_output_tokens,
  attempts,
  CASE
    WHEN withheld IS NULL AND attempts < $attempts_min THEN
      'too few: ' || attempts || ' attempts, under ' || $attempts_min
    ELSE withheld
  END AS note
FROM judged
ORDER BY cancelled_expected_usd DESC NULLS LAST, cancelled_attempts DESC, attempts DESC, key
