-- What each retry rescues: of the operations whose first attempt failed, those that retry N
-- delivered (MONEY.md, section 4).
--
-- Retry N is the operation's N-th attempt after its first, hedges not counted; from the fourth on
-- they are one row. rescue_share is of all first failures, and the marks are for it alone;
-- rescue_rate is of the retries N that were tried, of which 4+ may hold several per operation. A
-- retry on another model is a fallback, and apart. A first attempt that the user stopped did not
-- fail. Operations that are still open, that lack their first attempt, or whose service never logs
-- a success are counted beside, and in no figure.
WITH attempt AS (
  SELECT
    operation_id, op_place, service, model, is_hedge, outcome, cost_expected,
    first_value(service) OVER operation AS op_service,
    first_value(model) OVER operation AS first_model,
    first_value(error_class) OVER operation AS first_class,
    first_value(decision) OVER operation AS first_decision,
    first_value(is_retry) OVER operation AS lacks_first,
    max(ts) OVER (PARTITION BY operation_id) AS ended_at,
    sum(CAST(op_place > 0 AND NOT is_hedge AS BIGINT)) OVER (
      PARTITION BY operation_id ORDER BY op_place ROWS UNBOUNDED PRECEDING
    ) AS nth,
    op_place = min(
      CASE WHEN decision = 'success' AND role IN ('delivered', 'cached') THEN op_place END
    ) OVER (PARTITION BY operation_id) AS delivers
  FROM attempts
  -- The bulk: one attempt, delivered. Nothing failed in it.
  WHERE counted AND (op_attempts > 1 OR outcome IS DISTINCT FROM 'delivered')
  WINDOW operation AS (PARTITION BY operation_id ORDER BY op_place)
),
-- Who never logs a success would seem to rescue nothing.
logs_success AS (
  SELECT DISTINCT coalesce(service, '') AS success_service
  FROM attempts_raw
  WHERE counted AND decision = 'success' AND ts >= $since AND ts < $until
),
failed_first AS (
  SELECT
    CASE $by
      WHEN 'model' THEN first_model
      WHEN 'service' THEN op_service
      WHEN 'all' THEN 'all'
      ELSE first_class
    END AS key,
    CASE WHEN $by <> 'all' THEN first_class END AS class,
    op_place,
    least(nth, 4) AS nth,
    model <> first_model AS fallback,
    coalesce(delivers, FALSE) AS delivers,
    is_hedge,
    cost_expected,
    CASE
      WHEN outcome IS NULL THEN 'open'
      WHEN lacks_first THEN 'lacks first'
      WHEN success_service IS NULL THEN 'unmeasured'
      ELSE 'counts'
    END AS state
  FROM attempt
  LEFT JOIN logs_success ON coalesce(op_service, '') = success_service
  WHERE
    ended_at >= $since AND ended_at < $until
    AND first_decision NOT IN ('success', 'cancelled') AND first_class <> 'cancelled'
),
sums AS (
  SELECT
    key,
    class,
    CASE WHEN op_place = 0 THEN 0 ELSE nth END AS nth,
    count(*) FILTER (WHERE state = 'counts' AND op_place = 0) AS failures,
    count(*) FILTER (WHERE state = 'open' AND op_place = 0) AS open,
    count(*) FILTER (WHERE state = 'lacks first' AND op_place = 0) AS lacks_first,
    count(*) FILTER (WHERE state = 'unmeasured' AND op_place = 0) AS unmeasured,
    count(*) FILTER (WHERE state = 'counts' AND NOT fallback) AS tried,
    count(*) FILTER (WHERE state = 'counts' AND NOT fallback AND delivers) AS rescued,
    count(*) FILTER (WHERE state = 'counts' AND fallback) AS fallback_tried,
    count(*) FILTER (WHERE state = 'counts' AND fallback AND delivers) AS fallback_rescued,
    sum(cost_expected) FILTER (WHERE state = 'counts') AS expected,
    count(*) FILTER (WHERE state = 'counts' AND cost_expected IS NULL) AS cost_unknown
  FROM failed_first
  WHERE op_place = 0 OR NOT is_hedge
  GROUP BY 1, 2, 3
),
totals AS (
  SELECT
    * EXCLUDE (failures, open, lacks_first, unmeasured),
    CAST(sum(failures) OVER of_class AS BIGINT) AS failures,
    CAST(sum(open) OVER of_class AS BIGINT) AS open,
    CAST(sum(lacks_first) OVER of_class AS BIGINT) AS lacks_first,
    CAST(sum(unmeasured) OVER of_class AS BIGINT) AS unmeasured,
    sum(CASE WHEN nth > 0 THEN tried + fallback_tried ELSE 0 END) OVER of_class AS any_tried
  FROM sums
  WINDOW of_class AS (PARTITION BY key, class)
),
-- Failures that nobody retried have a row, too: its retry 1 was never tried.
figures AS (
  SELECT
    key, class, failures, open, lacks_first, unmeasured,
    greatest(nth, 1) AS nth,
    CASE WHEN nth = 0 THEN 0 ELSE tried END AS tried,
    CASE WHEN nth = 0 THEN 0 ELSE rescued END AS rescued,
    CASE WHEN nth = 0 THEN 0 ELSE fallback_tried END AS fallback_tried,
    CASE WHEN nth = 0 THEN 0 ELSE fallback_rescued END AS fallback_rescued,
    CASE WHEN nth = 0 THEN 0 ELSE expected END AS expected,
    CASE WHEN nth = 0 THEN 0 ELSE cost_unknown END AS cost_unknown
  FROM totals
  WHERE CASE WHEN nth = 0 THEN any_tried = 0 ELSE tried + fallback_tried > 0 END
),
shares AS (
  SELECT
    *,
    CAST(100 * (CAST(rescued AS DECIMAL(20, 12)) / NULLIF(failures, 0)) AS DECIMAL(18, 12))
      AS share_pct,
    CAST(100 * (CAST(rescued AS DECIMAL(20, 12)) / NULLIF(tried, 0)) AS DECIMAL(18, 12))
      AS rate_pct,
    CAST(100 * (CAST(fallback_rescued AS DECIMAL(20, 12)) / NULLIF(failures, 0))
      AS DECIMAL(18, 12)) AS fallback_pct
  FROM figures
)
SELECT
  key,
  -- Where the key does not say it already.
  CASE WHEN $by <> 'class' THEN class END AS first_class,
  CASE nth WHEN 4 THEN '4+' ELSE CAST(nth AS VARCHAR) END AS retry,
  failures AS first_failures,
  tried,
  rescued,
  share_pct AS rescue_share_pct,
  CASE
    WHEN failures < $first_failures_min OR tried = 0 THEN NULL
    WHEN share_pct > 10 THEN 'one more pays'
    WHEN share_pct < 3 THEN 'the boundary'
  END AS mark,
  rate_pct AS rescue_rate_pct,
  fallback_tried,
  fallback_rescued,
  fallback_pct AS fallback_share_pct,
  -- The literature's figures; they are of rate limits.
  CASE WHEN class = 'rate_limit' THEN
    CASE nth
      WHEN 1 THEN '> 95 %'
      WHEN 2 THEN '3-4 %'
      WHEN 3 THEN '< 2 %'
    END
  END AS reference,
  CASE
    WHEN failures = 0 AND unmeasured > 0 THEN 'not computable: no success is logged'
    WHEN failures = 0 AND lacks_first > 0 THEN
      'not computable: no first attempt is logged; see attempt_base'
    WHEN failures = 0 THEN 'not computable: every operation is still open'
    WHEN failures < $first_failures_min THEN
      'too few: ' || failures || ' of ' || $first_failures_min
    WHEN tried + fallback_tried = 0 THEN 'never tried'
  END AS note,
  CAST(CASE WHEN tried + fallback_tried = 0 THEN 0 ELSE expected END AS DECIMAL(38, 12))
    AS retry_expected_usd,
  cost_unknown AS retries_cost_unknown,
  open AS open_operations,
  lacks_first AS without_first,
  unmeasured AS without_success
FROM shares
ORDER BY failures DESC, key, class, nth
