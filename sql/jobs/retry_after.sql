-- Retries that came sooner than the provider had asked: Retry-After not kept.
--
-- A retry is held until retry_after_ms after the end of any earlier attempt of its operation on the
-- same provider and model, the latest of these; and it is a violation where it started more than
-- $slack_ms before that. A fallback to another model is not held, and a hedge is no retry. Of a
-- retry whose start is not known nothing is told; it is counted beside. limited_again are the
-- violations that met the limit once more (rate_limit, overloaded), delivered those that were
-- delivered all the same.
WITH attempt AS (
  SELECT
    operation_id, service, request_id, provider, model, ts, error_class, cost_expected,
    is_retry AND NOT is_hedge AS retry,
    decision = 'success' AS delivered,
    coalesce(started_at, ts - arrow_cast(elapsed_ms, 'Duration(Millisecond)')) AS began,
    max(ts + arrow_cast(retry_after_ms, 'Duration(Millisecond)')) OVER (
      PARTITION BY operation_id, provider, model ORDER BY op_place
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS held_until
  FROM attempts
  WHERE counted AND op_attempts > 1
),
held AS (
  SELECT
    CASE $by
      WHEN 'model' THEN model
      WHEN 'provider' THEN provider
      ELSE service
    END AS key,
    operation_id, request_id, ts, error_class, cost_expected, delivered,
    (arrow_cast(held_until, 'Int64') - arrow_cast(began, 'Int64')) / 1000 AS early_ms
  FROM attempt
  WHERE retry AND held_until IS NOT NULL AND ts >= $since AND ts < $until
),
judged AS (
  SELECT *, coalesce(early_ms > $slack_ms, FALSE) AS violates
  FROM held
),
sums AS (
  SELECT
    key,
    count(*) AS held,
    count(early_ms) AS known,
    count(*) FILTER (WHERE violates) AS violations,
    count(DISTINCT operation_id) FILTER (WHERE violates) AS operations,
    count(*) FILTER (WHERE violates AND error_class IN ('rate_limit', 'overloaded')) AS again,
    count(*) FILTER (WHERE violates AND delivered) AS delivered,
    max(early_ms) FILTER (WHERE violates) AS early_max_ms,
    first_value(request_id ORDER BY early_ms DESC, ts, request_id) FILTER (WHERE violates)
      AS example,
    sum(cost_expected) FILTER (WHERE violates) AS expected,
    count(*) FILTER (WHERE violates AND cost_expected IS NULL) AS cost_unknown
  FROM judged
  GROUP BY key
)
SELECT
  key,
  violations,
  operations,
  held AS held_retries,
  held - known AS start_unknown,
  CAST(100 * (CAST(violations AS DECIMAL(20, 12)) / NULLIF(known, 0)) AS DECIMAL(18, 12))
    AS violations_pct,
  early_max_ms,
  again AS limited_again,
  delivered,
  CAST(CASE WHEN violations = 0 THEN 0 ELSE expected END AS DECIMAL(38, 12))
    AS violations_expected_usd,
  cost_unknown AS violations_cost_unknown,
  example AS request_id,
  CASE
    WHEN known = 0 THEN 'not computable: no start of a retry is known'
    WHEN known < $retries_min THEN 'too few: ' || known || ' of ' || $retries_min
  END AS note
FROM sums
ORDER BY violations DESC, held_retries DESC, key
