-- Whether retrying still helps, by provider and model: of the retries that ended in the window,
-- those that were delivered (MONEY.md, section 6: rescue rate).
--
-- A hedge is no retry. Retries of services that logged no success in the day before are counted
-- beside: such a service logs failures only, and its rate would be 0 at any time.
WITH logs_success AS (
  SELECT DISTINCT coalesce(service, '') AS success_service
  FROM attempts_raw
  WHERE
    counted AND decision = 'success'
    AND ts >= $since - INTERVAL '1 day' AND ts < $until
),
retry AS (
  SELECT
    provider, model, source, operation_id, service, error_class, cost_expected,
    decision = 'success' AS delivered,
    success_service IS NOT NULL AS measured
  FROM attempts
  LEFT JOIN logs_success ON coalesce(service, '') = success_service
  WHERE counted AND is_retry AND NOT is_hedge AND ts >= $since AND ts < $until
),
sums AS (
  SELECT
    provider,
    model,
    count(*) FILTER (WHERE measured) AS retries,
    count(*) FILTER (WHERE measured AND delivered) AS delivered,
    count(*) FILTER (WHERE NOT measured) AS unmeasured,
    count(DISTINCT request_hash(source, operation_id)) FILTER (WHERE measured) AS operations,
    count(DISTINCT service) FILTER (WHERE measured) AS services,
    sum(cost_expected) FILTER (WHERE measured) AS expected,
    count(*) FILTER (WHERE measured AND cost_expected IS NULL) AS cost_unknown,
    array_agg(DISTINCT error_class) FILTER (WHERE measured AND NOT delivered) AS class_list
  FROM retry
  GROUP BY provider, model
)
SELECT
  concat_ws('/', provider, model) AS key,
  retries,
  delivered,
  CAST(100 * (CAST(delivered AS DECIMAL(20, 12)) / NULLIF(retries, 0)) AS DECIMAL(18, 12))
    AS rescue_rate_pct,
  CASE
    WHEN retries = 0 THEN 'not computable: no success is logged'
    WHEN retries < $retries_min THEN 'too few: ' || retries || ' of ' || $retries_min
  END AS note,
  array_to_string(array_sort(class_list), ', ') AS classes,
  operations,
  services,
  CAST(CASE WHEN retries = 0 THEN 0 ELSE expected END AS DECIMAL(38, 12)) AS retry_expected_usd,
  cost_unknown AS retries_cost_unknown,
  unmeasured AS without_success,
  provider,
  model
FROM sums
ORDER BY retries DESC, key, provider, model
