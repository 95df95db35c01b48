-- Retries that could not help, and what they cost (MONEY.md, sections 3 and 5).
--
-- A retry is doomed where the attempt before it in its operation ended
--   client, content or quota: the same call is refused again, or
--   rate_limit, in a minute in which no retry of this provider and model was delivered, of
--   $minute_retries_min or more: that one alone failed shows little.
-- A retry on another model or provider is another call, and a hedge is no retry. What was
-- delivered against this is counted beside, and is no doomed retry. A retry stands in the minute in
-- which it ended.
WITH attempt AS (
  SELECT
    operation_id, service, provider, model, ts, cost_confirmed, cost_expected, cost_ceiling,
    is_retry AND NOT is_hedge AS retry,
    decision = 'success' AS delivered,
    lag(error_class) OVER operation AS previous_class,
    lag(coalesce(provider, '')) OVER operation AS previous_provider,
    lag(model) OVER operation AS previous_model
  FROM attempts
  WHERE counted AND op_attempts > 1
  WINDOW operation AS (PARTITION BY operation_id ORDER BY op_place)
),
retry AS (
  SELECT
    *,
    coalesce(provider, '') = previous_provider AND model = previous_model AS same_call,
    bool_or(delivered) OVER minute AS minute_delivers,
    count(*) OVER minute AS minute_retries
  FROM attempt
  WHERE retry
  WINDOW minute AS (PARTITION BY provider, model, date_trunc('minute', ts))
),
judged AS (
  SELECT
    CASE $by
      WHEN 'model' THEN model
      WHEN 'service' THEN service
      ELSE previous_class
    END AS key,
    operation_id, previous_class, cost_confirmed, cost_expected, cost_ceiling,
    same_call AND NOT delivered AND (
      previous_class IN ('client', 'content', 'quota')
      OR previous_class = 'rate_limit' AND NOT minute_delivers
        AND minute_retries >= $minute_retries_min
    ) AS doomed,
    same_call AND delivered AND previous_class IN ('client', 'content', 'quota') AS helped
  FROM retry
  WHERE ts >= $since AND ts < $until
),
sums AS (
  SELECT
    key,
    count(*) AS retries,
    count(*) FILTER (WHERE doomed) AS doomed,
    count(DISTINCT operation_id) FILTER (WHERE doomed) AS operations,
    count(*) FILTER (WHERE doomed AND previous_class = 'client') AS client,
    count(*) FILTER (WHERE doomed AND previous_class = 'content') AS content,
    count(*) FILTER (WHERE doomed AND previous_class = 'quota') AS quota,
    count(*) FILTER (WHERE doomed AND previous_class = 'rate_limit') AS rate_limit,
    count(*) FILTER (WHERE helped) AS helped,
    sum(cost_expected) FILTER (WHERE doomed) AS expected,
    sum(cost_confirmed) FILTER (WHERE doomed) AS confirmed,
    sum(cost_ceiling) FILTER (WHERE doomed) AS ceiling,
    count(*) FILTER (WHERE doomed AND cost_expected IS NULL) AS cost_unknown
  FROM judged
  GROUP BY key
)
SELECT
  key,
  doomed AS doomed_retries,
  operations,
  retries,
  CAST(100 * (CAST(doomed AS DECIMAL(20, 12)) / retries) AS DECIMAL(18, 12)) AS doomed_pct,
  CAST(CASE WHEN doomed = 0 THEN 0 ELSE expected END AS DECIMAL(38, 12)) AS doomed_expected_usd,
  CAST(CASE WHEN doomed = 0 THEN 0 ELSE confirmed END AS DECIMAL(38, 12)) AS doomed_confirmed_usd,
  CAST(CASE WHEN doomed = 0 THEN 0 ELSE ceiling END AS DECIMAL(38, 12)) AS doomed_ceiling_usd,
  cost_unknown AS doomed_cost_unknown,
  client AS after_client,
  content AS after_content,
  quota AS after_quota,
  rate_limit AS after_rate_limit,
  helped AS delivered_after_all,
  CASE WHEN retries < $retries_min THEN 'too few: ' || retries || ' of ' || $retries_min END AS note
FROM sums
WHERE doomed + helped > 0
ORDER BY doomed_expected_usd DESC NULLS LAST, doomed_retries DESC, helped DESC, key
