-- Attempts of requests that have more to them than one complete row, and what places them in
-- their operations. Internal: the engine turns these rows into places (MONEY.md, section 2),
-- `placed`, which the view `attempts` puts beside the stored rows. Times are microseconds.
WITH request AS (
  SELECT DISTINCT request_hash(service, request_id) AS request
  FROM attempts_near
  WHERE
    lone IS NOT TRUE
    OR final IS FALSE
    -- Two layers may log the same success, each as a complete row.
    OR layer IS NOT NULL AND (SELECT count(DISTINCT layer) FROM attempts_near) > 1
)
SELECT
  arrow_cast(it.source, 'Utf8') AS source,
  it.source_partition,
  it.source_offset,
  it.source_index,
  arrow_cast(it.service, 'Utf8') AS service,
  arrow_cast(it.request_id, 'Utf8') AS request_id,
  coalesce(
    arrow_cast(it.started_at, 'Int64'), arrow_cast(it.ts, 'Int64') - 1000 * it.elapsed_ms
  ) AS started_us,
  arrow_cast(it.ts, 'Int64') AS ended_us,
  arrow_cast(it.attempt, 'Int64') AS attempt,
  it.is_retry,
  arrow_cast(it.layer, 'Utf8') AS layer,
  arrow_cast(it.prompt_hash, 'Binary') AS prompt_hash,
  it.final,
  it.counted,
  arrow_cast(it.decision, 'Utf8') AS decision,
  arrow_cast(it.next_retry_ms, 'Int64') AS next_retry_ms,
  arrow_cast(it.timeout_ms, 'Int64') AS timeout_ms,
  arrow_cast(it.error_class, 'Utf8') AS error_class,
  it.cache_hit,
  it.evidence = 'usage' AS with_usage,
  arrow_cast(it.input_tokens, 'Int64') AS input_tokens,
  arrow_cast(it.cached_input_tokens, 'Int64') AS cached_input_tokens,
  arrow_cast(it.output_tokens, 'Int64') AS output_tokens,
  arrow_cast(it.server_request_id, 'Utf8') AS server_request_id
-- The engine holds the left side in memory.
FROM request
RIGHT SEMI JOIN attempts_near AS it
  ON request.request = request_hash(it.service, it.request_id)
