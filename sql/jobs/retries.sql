-- Attempts and retries, and what the retries cost, by how the attempt itself ended.
--
-- A hedge is no retry: it was not sent because one failed. Money of retries whose cost is not known
-- is in no sum; they are counted beside.
WITH attempt AS (
  SELECT
    CASE $by
      WHEN 'model' THEN model
      WHEN 'service' THEN service
      WHEN 'tenant' THEN tenant
      ELSE error_class
    END AS key,
    is_retry,
    is_retry AND NOT is_hedge AS retry,
    cost_confirmed,
    cost_expected,
    cost_ceiling,
    cost_basis = 'unpriced' AS unpriced
  FROM attempts
  WHERE counted AND ts >= $since AND ts < $until
),
sums AS (
  SELECT
    key,
    count(*) AS attempts,
    count(*) FILTER (WHERE retry) AS retries,
    count(*) FILTER (WHERE NOT is_retry) AS first_attempts,
    count(*) FILTER (WHERE is_retry IS NULL) AS unnumbered,
    sum(cost_expected) FILTER (WHERE retry) AS expected,
    sum(cost_confirmed) FILTER (WHERE retry) AS confirmed,
    sum(cost_ceiling) FILTER (WHERE retry) AS ceiling,
    count(*) FILTER (WHERE retry AND unpriced) AS unpriced,
    count(*) FILTER (WHERE retry AND cost_expected IS NULL AND unpriced IS NOT TRUE)
      AS cost_unknown
  FROM attempt
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
