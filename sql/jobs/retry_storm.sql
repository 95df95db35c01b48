-- Retries of the last full minute before the window's end, against what this hour is used to
-- (MONEY.md, section 6).
--
-- Baseline: of the 7 days before, those that have attempts of the same UTC hour; per day the
-- retries of that hour / 60; their median, from $days_min days up. It is read from the stored rows,
-- as their events were numbered: else operations of a week would be put together each minute.
-- Without it the budget counts, and without that the floor alone. limit_per_minute is what counts,
-- and never below the floor: who reaches it has reached both. Burn: expected cost of the minute's
-- retries x 60. A hedge is no retry.
--
-- entity: the service where all of a provider's retries are of one, else the provider.
WITH recent AS (
  SELECT
    CASE $by WHEN 'service' THEN service ELSE provider END AS key,
    count(*) AS attempts,
    count(*) FILTER (WHERE retry) AS retries,
    count(DISTINCT request_hash(source, operation_id)) FILTER (WHERE retry) AS operations,
    count(DISTINCT coalesce(service, '')) FILTER (WHERE retry) AS services,
    max(service) FILTER (WHERE retry) AS one_service,
    sum(cost_expected) FILTER (WHERE retry) AS expected,
    sum(cost_confirmed) FILTER (WHERE retry) AS confirmed,
    sum(cost_ceiling) FILTER (WHERE retry) AS ceiling,
    count(*) FILTER (WHERE retry AND cost_expected IS NULL) AS cost_unknown
  FROM (
    SELECT *, is_retry AND NOT is_hedge AS retry
    FROM attempts
    WHERE
      counted
      AND ts >= date_trunc('minute', $until) - INTERVAL '1 minute'
      AND ts < date_trunc('minute', $until)
  )
  GROUP BY 1
),
past_day AS (
  SELECT
    CASE $by WHEN 'service' THEN service ELSE provider END AS key,
    CAST(count(*) FILTER (WHERE is_retry) AS DECIMAL(20, 12)) / 60 AS per_minute
  FROM attempts_raw
  WHERE
    counted
    AND ts >= date_trunc('hour', date_trunc('minute', $until) - INTERVAL '1 minute')
      - INTERVAL '7 days'
    AND ts < date_trunc('hour', date_trunc('minute', $until) - INTERVAL '1 minute')
    AND date_part('hour', ts)
      = date_part('hour', date_trunc('minute', $until) - INTERVAL '1 minute')
  GROUP BY 1, date_trunc('hour', ts)
),
baseline AS (
  SELECT
    coalesce(key, '') AS past_key,
    count(*) AS days,
    CAST(median(per_minute) AS DECIMAL(18, 12)) AS median_per_minute
  FROM past_day
  GROUP BY 1
),
measured AS (
  SELECT
    *,
    coalesce(days, 0) AS days_seen,
    CASE
      WHEN days >= $days_min THEN 'median'
      WHEN $budget_per_minute > 0 THEN 'budget'
      ELSE 'floor'
    END AS basis
  FROM recent
  LEFT JOIN baseline ON coalesce(key, '') = past_key
),
limited AS (
  SELECT
    *,
    CAST(greatest(
      CAST($retries_per_minute_min AS DECIMAL(20, 12)),
      CASE basis
        WHEN 'median' THEN CAST($times_median * median_per_minute AS DECIMAL(20, 12))
        WHEN 'budget' THEN CAST($budget_per_minute AS DECIMAL(20, 12))
        ELSE CAST($retries_per_minute_min AS DECIMAL(20, 12))
      END
    ) AS DECIMAL(20, 12)) AS retries_max
  FROM measured
)
SELECT
  key,
  CASE WHEN $by <> 'service' AND services = 1 THEN coalesce(one_service, key) ELSE key END
    AS entity,
  retries AS retries_per_minute,
  CASE WHEN days_seen >= $days_min THEN median_per_minute END AS median_per_minute,
  retries_max AS limit_per_minute,
  CAST(100 * (CAST(retries AS DECIMAL(20, 12)) / NULLIF(retries_max, 0)) AS DECIMAL(38, 12))
    AS limit_used_pct,
  basis,
  CAST(CASE WHEN retries = 0 THEN 0 ELSE 60 * expected END AS DECIMAL(38, 12))
    AS burn_per_hour_usd,
  CAST(CASE WHEN retries = 0 THEN 0 ELSE 60 * confirmed END AS DECIMAL(38, 12))
    AS burn_confirmed_per_hour_usd,
  CAST(CASE WHEN retries = 0 THEN 0 ELSE 60 * ceiling END AS DECIMAL(38, 12))
    AS burn_ceiling_per_hour_usd,
  cost_unknown AS retries_cost_unknown,
  operations,
  services,
  attempts,
  CASE WHEN days_seen < $days_min THEN
    'too few: ' || days_seen || ' of ' || $days_min || ' days'
  END AS note,
  arrow_cast(date_trunc('minute', $until) - INTERVAL '1 minute', $zone_type) AS minute
FROM limited
ORDER BY retries_per_minute DESC, attempts DESC, key
