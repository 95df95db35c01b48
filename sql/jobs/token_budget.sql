-- Tokens of the UTC day in which the window ends, so far, against a budget per tenant.
--
-- The day is that of the window's last instant. Tokens are input and output as logged, whoever
-- counted them; answers from a cache used none. Attempts that tell no tokens, unless surely
-- unbilled, are counted beside: the true sum is higher. With a budget of 0, none is set: the tokens
-- are shown, and nothing is over.
WITH attempt AS (
  SELECT
    tenant,
    is_retry,
    CASE WHEN cache_hit IS NOT TRUE AND (input_tokens > 0 OR output_tokens > 0) THEN
      coalesce(input_tokens, 0) + coalesce(output_tokens, 0)
    END AS tokens,
    cache_hit IS NOT TRUE AND billing <> 'unbilled' AS may_use
  FROM attempts
  WHERE
    counted
    AND ts >= date_trunc('day', $until - INTERVAL '1 microsecond') AND ts < $until
),
sums AS (
  SELECT
    tenant AS key,
    count(*) AS attempts,
    sum(tokens) AS known,
    sum(tokens) FILTER (WHERE is_retry) AS retry_known,
    count(*) FILTER (WHERE is_retry AND may_use) AS retries,
    count(*) FILTER (WHERE may_use) AS using,
    count(*) FILTER (WHERE may_use AND tokens IS NULL) AS tokens_unknown
  FROM attempt
  GROUP BY tenant
),
tokens AS (
  SELECT
    *,
    CASE WHEN using = 0 THEN coalesce(known, 0) ELSE known END AS tokens,
    CASE WHEN retries = 0 THEN coalesce(retry_known, 0) ELSE retry_known END AS retry_tokens
  FROM sums
)
SELECT
  key,
  tokens,
  CASE WHEN $tokens_per_day > 0 THEN $tokens_per_day END AS tokens_per_day,
  CASE WHEN $tokens_per_day > 0 THEN
    CAST(100 * (CAST(tokens AS DECIMAL(28, 12)) / NULLIF($tokens_per_day, 0)) AS DECIMAL(38, 12))
  END AS budget_used_pct,
  CASE
    WHEN $tokens_per_day <= 0 THEN 'off: set tokens_per_day'
    WHEN tokens IS NULL THEN 'not computable: no tokens are logged'
  END AS note,
  retry_tokens,
  tokens_unknown,
  attempts,
  arrow_cast(date_trunc('day', $until - INTERVAL '1 microsecond'), $zone_type) AS day
FROM tokens
ORDER BY tokens DESC NULLS LAST, attempts DESC, key
