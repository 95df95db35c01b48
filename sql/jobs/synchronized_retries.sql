-- Retries that all come at one instant: callers that wait the same time without jitter hit the
-- provider again together.
--
-- An instant is $instant_ms of the clock. It is reported for a provider and model where retries of
-- $operations_min operations or more start within it, and they are $times_around times what its
-- neighbours hold on average or more: those of the 100 instants around it, 50 before and 50 after,
-- without itself. A steady stream of retries, however dense, has instants that are alike, and none
-- of them is reported; waves that return every half second are. A hedge is no retry, and a retry
-- whose start is not known is in no instant.
WITH retry AS (
  SELECT
    operation_id, service, provider, model, began,
    -- The number of the instant since 1970.
    arrow_cast(began, 'Int64') / ($instant_ms * 1000) AS instant,
    error_class IN ('rate_limit', 'overloaded') AS limited,
    decision = 'success' AS delivered,
    cost_expected
  FROM (
    SELECT
      *, coalesce(started_at, ts - arrow_cast(elapsed_ms, 'Duration(Millisecond)')) AS began
    FROM attempts
    WHERE counted AND op_attempts > 1 AND is_retry AND NOT is_hedge
  )
  WHERE began >= $since AND began < $until
),
operation AS (
  SELECT
    provider, model, instant, operation_id,
    min(coalesce(service, '')) AS service,
    min(began) AS began,
    count(*) AS retries,
    count(*) FILTER (WHERE limited) AS limited,
    count(*) FILTER (WHERE delivered) AS delivered,
    sum(cost_expected) AS expected,
    count(*) FILTER (WHERE cost_expected IS NULL) AS cost_unknown
  FROM retry
  GROUP BY provider, model, instant, operation_id
),
counted AS (
  SELECT
    provider, model, instant,
    count(*) AS operations,
    min(service) AS service_min,
    max(service) AS service_max,
    min(began) AS began,
    sum(retries) AS retries,
    sum(limited) AS limited,
    sum(delivered) AS delivered,
    sum(expected) AS expected,
    sum(cost_unknown) AS cost_unknown
  FROM operation
  GROUP BY provider, model, instant
),
neighbours AS (
  SELECT
    *,
    sum(retries) OVER (
      PARTITION BY provider, model ORDER BY instant
      RANGE BETWEEN 50 PRECEDING AND 50 FOLLOWING
    ) - retries AS around
  FROM counted
),
found AS (
  SELECT
    *,
    CASE WHEN $by = 'instant' THEN instant END AS one_instant
  FROM neighbours
  WHERE operations >= $operations_min AND retries * 100 >= around * $times_around
)
SELECT
  concat_ws('/', provider, model) AS key,
  arrow_cast(min(began), $zone_type) AS first_at,
  CASE WHEN $by = 'model' THEN arrow_cast(max(began), $zone_type) END AS last_at,
  count(*) AS instants,
  CAST(sum(retries) AS BIGINT) AS retries,
  CAST(max(operations) AS BIGINT) AS operations_max,
  CAST(CASE WHEN $by = 'instant' THEN max(around) END AS DECIMAL(20, 2)) / 100 AS around_mean,
  -- Where it is of one.
  CASE WHEN min(service_min) = max(service_max) THEN NULLIF(min(service_min), '') END AS service,
  CAST(sum(limited) AS BIGINT) AS limited_again,
  CAST(sum(delivered) AS BIGINT) AS delivered,
  CAST(sum(expected) AS DECIMAL(38, 12)) AS retry_expected_usd,
  CAST(sum(cost_unknown) AS BIGINT) AS retries_cost_unknown
FROM found
GROUP BY provider, model, one_instant
ORDER BY operations_max DESC, retries DESC, key, first_at
LIMIT $limit
