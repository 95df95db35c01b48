-- Where the cost of an entity's retries comes from: at most five groups of service, provider,
-- model, tenant and the class of the attempt that was retried, and of each the request whose retry
-- cost most. Only counted attempts; a hedge is no retry. {entity} is what names one.
--
-- A retry whose cost is not known takes part in the count and in no sum; a group of which no cost
-- is known comes last.
WITH attempt AS (
  SELECT
    *,
    -- Of the whole operation: the attempt before may lie before the window.
    lag(error_class) OVER (PARTITION BY operation_id ORDER BY op_place) AS after_class
  FROM attempts
  WHERE counted
),
retry AS (
  SELECT
    {entity} AS entity,
    service,
    provider,
    model,
    tenant,
    after_class AS error_class,
    cost_expected,
    request_id,
    server_request_id,
    client_request_id,
    row_number() OVER (
      PARTITION BY {entity}, service, provider, model, tenant, after_class
      ORDER BY cost_expected DESC NULLS LAST, ts, request_id, attempt, source, source_partition,
        source_offset, source_index
    ) AS place
  FROM attempt
  WHERE is_retry AND NOT is_hedge AND ts >= $since AND ts < $until
),
part AS (
  SELECT
    entity,
    service,
    provider,
    model,
    tenant,
    error_class,
    count(*) AS retries,
    CAST(sum(cost_expected) AS DECIMAL(38, 12)) AS retry_expected_usd,
    max(request_id) FILTER (WHERE place = 1) AS request_id,
    max(server_request_id) FILTER (WHERE place = 1) AS server_request_id,
    max(client_request_id) FILTER (WHERE place = 1) AS client_request_id
  FROM retry
  GROUP BY entity, service, provider, model, tenant, error_class
),
ranked AS (
  SELECT
    *,
    row_number() OVER (
      PARTITION BY entity
      ORDER BY
        retry_expected_usd DESC NULLS LAST, retries DESC, service, provider, model, tenant,
        error_class
    ) AS place
  FROM part
)
SELECT * FROM ranked WHERE place <= 5 ORDER BY entity, place
