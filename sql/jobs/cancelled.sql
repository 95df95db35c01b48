-- What attempts cost that the user stopped.
--
-- Attempts of role cancelled, by their own time. They are no retries and never redundant, and
-- many are billed all the same: to the token at which they stopped, or in full. Attempts whose
-- cost is not known are in no sum: they are counted beside. The share is of the key's own spend.
WITH part AS (
  SELECT *, CASE $by WHEN 'model' THEN model ELSE service END AS key, role = 'cancelled' AS cancelled
  FROM rollup
  WHERE counted AND hour >= $since AND hour < $until
),
sums AS (
  SELECT
    key,
    sum(attempts) AS attempts,
    coalesce(sum(attempts) FILTER (WHERE cancelled), 0) AS cancelled_attempts,
    coalesce(sum(attempts) FILTER (WHERE cancelled AND billing = 'billed'), 0) AS billed,
    coalesce(sum(attempts) FILTER (WHERE cancelled AND billing = 'unknown'), 0) AS billing_unknown,
    coalesce(sum(cost_unknown) FILTER (WHERE cancelled), 0) AS cost_unknown,
    sum(coverable) AS coverable,
    sum(covered) AS covered,
    sum(received_output_tokens) FILTER (WHERE cancelled) AS received_output_tokens,
    sum(cost_expected) FILTER (WHERE cancelled) AS expected,
    sum(cost_confirmed) FILTER (WHERE cancelled) AS confirmed,
    sum(cost_ceiling) FILTER (WHERE cancelled) AS ceiling,
    sum(cost_expected) AS spend
  FROM part
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
