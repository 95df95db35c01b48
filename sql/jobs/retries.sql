-- Attempts and retries, and what the retries cost, by how the attempt itself ended.
--
-- A hedge is no retry: it was not sent because one failed. Money of retries whose cost is not known
-- is in no sum; they are counted beside.
WITH part AS (
  SELECT
    *,
    CASE $by
      WHEN 'model' THEN model
      WHEN 'service' THEN service
      WHEN 'tenant' THEN tenant
      ELSE error_class
    END AS key,
    retry >= 1 AND NOT is_hedge AS is_cost
  FROM rollup
  WHERE counted AND hour >= $since AND hour < $until
),
sums AS (
  SELECT
    key,
    sum(attempts) AS attempts,
    coalesce(sum(attempts) FILTER (WHERE is_cost), 0) AS retries,
    coalesce(sum(attempts) FILTER (WHERE retry = 0), 0) AS first_attempts,
    coalesce(sum(attempts) FILTER (WHERE retry IS NULL), 0) AS unnumbered,
    sum(cost_expected) FILTER (WHERE is_cost) AS expected,
    sum(cost_confirmed) FILTER (WHERE is_cost) AS confirmed,
    sum(cost_ceiling) FILTER (WHERE is_cost) AS ceiling,
    coalesce(sum(unpriced) FILTER (WHERE is_cost), 0) AS unpriced,
    coalesce(sum(priced_unknown) FILTER (WHERE is_cost), 0) AS cost_unknown
  FROM part
  GROUP BY key
)
SELECT
  key,
  attempts,
  retries,
  first_attempts,
  unnumbered,
  CAST(CASE WHEN retries = 0 THEN 0 ELSE expected END AS DECIMAL(38, 12)) AS retry_expected_usd,
  CAST(CASE WHEN retries = 0 THEN 0 ELSE confirmed END AS DECIMAL(38, 12)) AS retry_confirmed_usd,
  CAST(CASE WHEN retries = 0 THEN 0 ELSE ceiling END AS DECIMAL(38, 12)) AS retry_ceiling_usd,
  unpriced AS retries_unpriced,
  cost_unknown AS retries_cost_unknown
FROM sums
ORDER BY retry_expected_usd DESC NULLS LAST, retries DESC, attempts DESC, key
