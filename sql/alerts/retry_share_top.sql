-- Where the retry cost of each service comes from: at most five groups of model, tenant and error
-- class, and of each the request whose retry cost most. Only counted attempts, as in the share.
--
-- A retry whose cost is not known takes part in the count and in no sum; a group of which no cost
-- is known comes last.
WITH retry AS (
  SELECT
    service,
    model,
    tenant,
    error_class,
    cost_expected,
    request_id,
    server_request_id,
    client_request_id,
    row_number() OVER (
      PARTITION BY service, model, tenant, error_class
      ORDER BY cost_expected DESC NULLS LAST, ts, request_id, attempt, source, source_partition,
        source_offset, source_index
    ) AS place
  FROM attempts
  WHERE counted AND is_retry AND ts >= $since AND ts < $until
),
part AS (
  SELECT
    service,
    model,
    tenant,
    error_class,
    count(*) AS retries,
    CAST(sum(cost_expected) AS DECIMAL(38, 12)) AS retry_expected_usd,
    max(request_id) FILTER (WHERE place = 1) AS request_id,
    max(server_request_id) FILTER (WHERE place = 1) AS server_request_id,
    max(client_request_id) FILTER (WHERE place = 1) AS client_request_id
  FROM retry
  GROUP BY service, model, tenant, error_class
),
ranked AS (
  SELECT
    *,
    row_number() OVER (
      PARTITION BY service
      ORDER BY retry_expected_usd DESC NULLS LAST, retries DESC, model, tenant, error_class
    ) AS place
  FROM part
)
SELECT
  service,
  model,
  tenant,
  error_class,
  retries,
  retry_expected_usd,
  request_id,
  server_request_id,
  client_request_id
FROM ranked
WHERE place <= 5
ORDER BY service, place
