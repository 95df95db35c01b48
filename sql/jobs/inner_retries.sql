-- Hidden retries: those that an SDK makes inside of what its caller logs as one attempt. Three
-- retries of the application on top of three tries of the SDK are nine requests on the wire.
--
-- What shows them:
--   sdk_retry_count above 0: so many requests were not logged;
--   a read timeout that took about k timeouts, k from 2 to 10: up to a tenth of one timeout less,
--     or up to a tenth of them all and $pause_ms for each pause between them more. Then k - 1
--     requests were not logged. It may be chance, more so where pauses are as long as timeouts;
--   a log of the wire itself, as a proxy writes: sdk_retry_count goes 0, 1, 2 within one attempt
--     number of an operation. Each line is a request, and the lines from 1 up are no attempts of
--     the application.
-- A timeout is read_timeout_ms or timeout_ms, the shorter; of a streamed attempt timeout_ms alone.
-- attempts are the application's, logged the lines, wire_attempts the requests that were sent.
-- Every attempt of the service and model counts there, suspected are those that show something.
WITH followed AS (
  SELECT
    service, model, request_id, ts, elapsed_ms, error_class, sdk_retry_count, stream,
    read_timeout_ms, timeout_ms,
    sdk_retry_count > 0 AND sdk_retry_count = lag(sdk_retry_count) OVER operation + 1
      AND attempt = lag(attempt) OVER operation AS is_line
  FROM attempts
  WHERE counted AND op_attempts > 1
  WINDOW operation AS (PARTITION BY operation_id ORDER BY op_place)
),
attempt AS (
  SELECT * FROM followed
  UNION ALL BY NAME
  SELECT
    service, model, request_id, ts, elapsed_ms, error_class, sdk_retry_count, stream,
    read_timeout_ms, timeout_ms,
    FALSE AS is_line
  FROM attempts
  WHERE counted AND op_attempts = 1
),
timed AS (
  SELECT
    service, model, request_id, ts, elapsed_ms, sdk_retry_count,
    coalesce(is_line, FALSE) AS is_line,
    CASE WHEN error_class = 'read' AND stream THEN timeout_ms
      WHEN error_class = 'read' THEN least(read_timeout_ms, timeout_ms)
    END AS limit_ms
  FROM attempt
  WHERE ts >= $since AND ts < $until
),
multiple AS (
  SELECT
    *,
    (elapsed_ms * 10 + limit_ms) / NULLIF(limit_ms * 10, 0) AS times
  FROM timed
),
judged AS (
  SELECT
    * EXCLUDE (times),
    CASE WHEN times BETWEEN 2 AND 10
      AND (elapsed_ms - times * limit_ms) * 10 <= times * limit_ms + (times - 1) * $pause_ms * 10
    THEN times END AS times,
    CASE WHEN NOT is_line THEN NULLIF(sdk_retry_count, 0) END AS told
  FROM multiple
),
sums AS (
  SELECT
    service, model,
    count(*) AS logged,
    count(*) FILTER (WHERE is_line) AS lines,
    sum(greatest(coalesce(told, 0), coalesce(times - 1, 0))) AS hidden,
    count(*) FILTER (WHERE told IS NOT NULL OR times IS NOT NULL OR is_line) AS suspected,
    count(told) AS told,
    count(times) AS timed,
    min(times) AS times_min,
    max(times) AS times_max,
    first_value(request_id ORDER BY ts, request_id)
      FILTER (WHERE told IS NOT NULL OR times IS NOT NULL OR is_line) AS example
  FROM judged
  GROUP BY service, model
)
SELECT
  service AS key,
  model,
  logged - lines AS attempts,
  CAST(logged + hidden AS BIGINT) AS wire_attempts,
  CAST(CAST(logged + hidden AS DECIMAL(20, 12)) / (logged - lines) AS DECIMAL(18, 12))
    AS wire_per_attempt,
  logged,
  CAST(hidden AS BIGINT) AS not_logged,
  suspected,
  concat_ws('; ',
    CASE WHEN told > 0 THEN 'sdk_retry_count above 0: ' || told END,
    CASE WHEN timed > 0 THEN
      'took ' || times_min || CASE WHEN times_max > times_min THEN ' to ' || times_max ELSE '' END
        || ' timeouts: ' || timed
    END,
    CASE WHEN lines > 0 THEN 'sdk_retry_count counts up within an attempt: ' || lines END
  ) AS evidence,
  example AS request_id,
  CASE WHEN suspected < $suspected_min THEN
    'too few: ' || suspected || ' of ' || $suspected_min
  END AS note
FROM sums
WHERE suspected > 0
ORDER BY wire_attempts - attempts DESC, key, model
