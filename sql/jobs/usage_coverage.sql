-- Usage coverage: of the answers that were not cached, those with the provider's usage.
--
-- Classes none, truncated and invalid_output: only an answer can lack its usage. A group without
-- answers has no coverage, rather than a full or an empty one.
WITH attempt AS (
  SELECT
    CASE $by
      WHEN 'model' THEN model
      WHEN 'source' THEN source
      WHEN 'tenant' THEN tenant
      ELSE service
    END AS key,
    decision = 'success' OR error_class = 'none' AS success,
    coverable,
    evidence = 'usage' AS with_usage
  FROM attempts
  WHERE counted AND ts >= $since AND ts < $until
),
sums AS (
  SELECT
    key,
    count(*) AS attempts,
    count(*) FILTER (WHERE success) AS successes,
    count(*) FILTER (WHERE coverable) AS answers,
    count(*) FILTER (WHERE coverable AND with_usage) AS answers_with_usage
  FROM attempt
  GROUP BY key
)
SELECT
  key,
  CAST(100 * (CAST(answers_with_usage AS DECIMAL(20, 12)) / NULLIF(answers, 0)) AS DECIMAL(18, 12))
    AS coverage_pct,
  CASE
    WHEN successes = 0 THEN 'no success is logged'
    WHEN answers_with_usage * 100 < answers * $coverage_pct_min THEN
      'under ' || $coverage_pct_min || ' %: the retry-cost share is withheld'
  END AS note,
  attempts,
  successes,
  answers,
  answers_with_usage,
  answers - answers_with_usage AS answers_without_usage
FROM sums
ORDER BY answers_without_usage DESC, attempts DESC, key
