-- Retries of the clock hour (UTC) in which the window ends, so far, against a budget per service.
--
-- The hour is that of the window's last instant. A hedge is no retry. With a budget of 0, none is
-- set: the retries are shown, and nothing is over.
WITH attempt AS (
  SELECT *, is_retry AND NOT is_hedge AS retry
  FROM attempts
  WHERE
    counted
    AND ts >= date_trunc('hour', $until - INTERVAL '1 microsecond') AND ts < $until
),
sums AS (
  SELECT
    service AS key,
    count(*) AS attempts,
    count(*) FILTER (WHERE retry) AS retries,
    sum(cost_expected) FILTER (WHERE retry) AS expected,
    count(*) FILTER (WHERE retry AND cost_expected IS NULL) AS cost_unknown
  FROM attempt
  GROUP BY service
)
SELECT
  key,
  retries,
  CASE WHEN $retries_per_hour > 0 THEN $retries_per_hour END AS retries_per_hour,
  CASE WHEN $retries_per_hour > 0 THEN
    CAST(100 * (CAST(retries AS DECIMAL(20, 12)) / NULLIF($retries_per_hour, 0)) AS DECIMAL(38, 12))
  END AS budget_used_pct,
  CASE WHEN $retries_per_hour <= 0 THEN 'off: set retries_per_hour' END AS note,
  attempts,
  CAST(CASE WHEN retries = 0 THEN 0 ELSE expected END AS DECIMAL(38, 12)) AS retry_expected_usd,
  cost_unknown AS retries_cost_unknown,
  arrow_cast(date_trunc('hour', $until - INTERVAL '1 microsecond'), $zone_type) AS hour
FROM sums
ORDER BY retries DESC, attempts DESC, key
