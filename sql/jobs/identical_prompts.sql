-- The same prompt delivered several times, by the same model for the same service and tenant: a
-- chance for caching, never an alert (MONEY.md, section 2).
--
-- Health checks, samples, evals, cron and FAQs are like that, and may well be meant. Deliveries are
-- those of the window; answers from a cache are counted beside. again_usd is the cost of all
-- deliveries but the first, spacing_ms the mean time from one to the next.
WITH sums AS (
  SELECT
    service, tenant, prompt_hash, model,
    count(*) FILTER (WHERE role = 'delivered') AS deliveries,
    count(*) FILTER (WHERE role = 'cached') AS cached,
    min(ts) FILTER (WHERE role = 'delivered') AS first_ts,
    max(ts) FILTER (WHERE role = 'delivered') AS last_ts,
    sum(cost_expected) FILTER (WHERE role = 'delivered') AS expected,
    first_value(cost_expected ORDER BY ts, operation_id) FILTER (WHERE role = 'delivered')
      AS first_expected,
    count(*) FILTER (WHERE role = 'delivered' AND cost_expected IS NULL) AS cost_unknown
  FROM attempts
  WHERE
    counted AND prompt_hash IS NOT NULL AND role IN ('delivered', 'cached')
    AND ts >= $since AND ts < $until
  GROUP BY service, tenant, prompt_hash, model
),
again AS (
  SELECT
    *,
    CASE
      -- The first alone has a known cost, or none has.
      WHEN deliveries - cost_unknown = CAST(first_expected IS NOT NULL AS BIGINT) THEN NULL
      ELSE CAST(expected - coalesce(first_expected, 0) AS DECIMAL(38, 12))
    END AS again_usd
  FROM sums
  WHERE deliveries >= 2
)
SELECT
  service AS key,
  tenant,
  model,
  deliveries,
  cached,
  again_usd,
  cost_unknown,
  arrow_cast(arrow_cast(last_ts - first_ts, 'Duration(Millisecond)'), 'Int64') / (deliveries - 1)
    AS spacing_ms,
  prompt_hash,
  arrow_cast(first_ts, $zone_type) AS first_ts,
  arrow_cast(last_ts, $zone_type) AS last_ts
FROM again
ORDER BY again_usd DESC NULLS LAST, deliveries DESC, key, tenant, model, prompt_hash
LIMIT $limit
