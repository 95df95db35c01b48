-- Operations that were billed more than once, confirmed and likely apart (MONEY.md, section 4).
--
-- Of counted attempts, neither hedge nor cancelled: confirmed with two billed or more; likely
-- with a billed and an unknown one, or two unknown, where unknown ones were billed with a
-- probability of 0.5 or more. An operation belongs to the window in which it ended. Redundant
-- cost is what its repeated attempts cost, or all of them where nothing was delivered; what is
-- not known is in no sum, and the operations that hold such an attempt are counted beside.
WITH operation AS (
  SELECT
    operation_id,
    CASE $by
      WHEN 'operation' THEN operation_id
      WHEN 'model' THEN first_model
      WHEN 'tenant' THEN tenant
      ELSE service
    END AS key,
    service,
    request_id,
    ended_at,
    billed,
    likely_billed,
    repeated_billing,
    redundant_confirmed_usd,
    redundant_expected_usd,
    cost_unknown
  FROM operations
  WHERE
    outcome IS NOT NULL
    AND ended_at >= $since AND ended_at < $until
    AND ($by <> 'operation' OR repeated_billing IS NOT NULL)
),
-- Asked for operations alone: else this side is empty from the start.
attempt AS (
  SELECT
    operation_id,
    op_place,
    op_place || ' ' || error_class || ' ' || billing
      || CASE
        WHEN billing = 'unknown' THEN ' p=' || rtrim(rtrim(CAST(p_billed AS VARCHAR), '0'), '.')
        ELSE ''
      END
      || coalesce(' ' || CASE WHEN billing = 'unknown' THEN expected_basis ELSE evidence END, '')
      || coalesce(' $' || rtrim(rtrim(CAST(cost_expected AS VARCHAR), '0'), '.'), ' cost unknown')
      || CASE
        WHEN is_hedge OR role = 'hedge' THEN ' (hedge)'
        WHEN role = 'cancelled' THEN ' (cancelled)'
        ELSE ''
      END AS evidence,
    op_place || ' ' || coalesce(server_request_id, client_request_id, '-') AS id
  FROM attempts
  WHERE $by = 'operation' AND counted AND op_attempts > 1
),
proof AS (
  SELECT
    operation_id,
    string_agg(evidence, '; ' ORDER BY op_place) AS evidence,
    string_agg(id, '; ' ORDER BY op_place) AS ids
  FROM attempt
  GROUP BY operation_id
),
sums AS (
  SELECT
    key,
    count(*) AS operations,
    count(*) FILTER (WHERE repeated_billing = 'confirmed') AS confirmed,
    count(*) FILTER (WHERE repeated_billing = 'likely') AS likely,
    sum(redundant_confirmed_usd) FILTER (WHERE repeated_billing = 'confirmed')
      AS confirmed_confirmed,
    sum(redundant_expected_usd) FILTER (WHERE repeated_billing = 'confirmed')
      AS confirmed_expected,
    sum(redundant_confirmed_usd) FILTER (WHERE repeated_billing = 'likely') AS likely_confirmed,
    sum(redundant_expected_usd) FILTER (WHERE repeated_billing = 'likely') AS likely_expected,
    count(*) FILTER (WHERE repeated_billing IS NOT NULL AND cost_unknown > 0) AS cost_unknown,
    sum(billed) FILTER (WHERE repeated_billing IS NOT NULL) AS billed_attempts,
    sum(likely_billed) FILTER (WHERE repeated_billing IS NOT NULL) AS likely_billed_attempts,
    max(ended_at) FILTER (WHERE repeated_billing IS NOT NULL) AS last_ended_at,
    CASE WHEN $by = 'operation' THEN max(service) END AS service,
    CASE WHEN $by = 'operation' THEN max(request_id) END AS request_id
  FROM operation
  GROUP BY key
)
SELECT
  key,
  confirmed AS confirmed_operations,
  CAST(CASE WHEN confirmed = 0 THEN 0 ELSE confirmed_confirmed END AS DECIMAL(38, 12))
    AS confirmed_redundant_usd,
  CAST(CASE WHEN confirmed = 0 THEN 0 ELSE confirmed_expected END AS DECIMAL(38, 12))
    AS confirmed_redundant_expected_usd,
  likely AS likely_operations,
  CAST(CASE WHEN likely = 0 THEN 0 ELSE likely_confirmed END AS DECIMAL(38, 12))
    AS likely_redundant_confirmed_usd,
  CAST(CASE WHEN likely = 0 THEN 0 ELSE likely_expected END AS DECIMAL(38, 12))
    AS likely_redundant_expected_usd,
  operations,
  coalesce(billed_attempts, 0) AS billed_attempts,
  coalesce(likely_billed_attempts, 0) AS likely_billed_attempts,
  cost_unknown,
  CASE
    WHEN $by <> 'operation' AND confirmed + likely > 0 AND confirmed < $operations_min THEN
      'too few: ' || confirmed || ' confirmed operations, under ' || $operations_min
  END AS note,
  service,
  request_id,
  arrow_cast(last_ended_at, $zone_type) AS last_ended_at,
  proof.evidence,
  proof.ids
FROM sums
LEFT JOIN proof ON sums.key = proof.operation_id
ORDER BY
  confirmed_redundant_usd DESC NULLS LAST,
  likely_redundant_expected_usd DESC NULLS LAST,
  confirmed DESC,
  likely DESC,
  operations DESC,
  key
