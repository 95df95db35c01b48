-- What happened, attempt by attempt: the newest attempts of the window, or those of one request.
--
-- The newest operation stands first, its attempts in their order. waited_ms is from the end of
-- the operation's previous attempt to the start of this one; it is negative where they overlap, as
-- a hedge does, and null where either time is not known. Attempts of a layer that does not count,
-- or logged twice, are not shown.
WITH newest AS (
  SELECT
    operation_id,
    op_place,
    op_attempts,
    ts,
    coalesce(started_at, ts - arrow_cast(elapsed_ms, 'Duration(Millisecond)')) AS began,
    elapsed_ms,
    service,
    request_id,
    model,
    decision,
    error_class,
    error_type,
    reason,
    status_code,
    outcome,
    role,
    billing,
    p_billed,
    evidence,
    flags,
    cost_confirmed,
    cost_expected,
    cost_ceiling,
    expected_basis,
    server_request_id,
    client_request_id
  FROM attempts
  WHERE
    counted
    AND ts >= $since AND ts < $until
    AND ($request_id = '' OR request_id = $request_id)
  ORDER BY ts DESC, operation_id DESC, op_place DESC
  LIMIT $limit
),
-- The attempt before may have ended before the window began.
previous AS (
  SELECT operation_id, op_place, ts
  FROM attempts
  WHERE counted AND op_attempts > 1 AND ($request_id = '' OR request_id = $request_id)
)
SELECT
  arrow_cast(newest.ts, $zone_type) AS ended_at,
  newest.service,
  newest.request_id,
  newest.op_place + 1 AS try,
  newest.op_attempts AS tries,
  newest.model,
  newest.decision,
  newest.error_class AS class,
  newest.error_type,
  newest.status_code,
  newest.reason,
  (arrow_cast(newest.began, 'Int64') - arrow_cast(previous.ts, 'Int64')) / 1000 AS waited_ms,
  newest.elapsed_ms,
  newest.outcome,
  newest.role,
  newest.billing,
  newest.p_billed,
  newest.evidence,
  newest.flags,
  newest.cost_expected AS cost_expected_usd,
  newest.expected_basis,
  newest.cost_confirmed AS cost_confirmed_usd,
  newest.cost_ceiling AS cost_ceiling_usd,
  newest.server_request_id,
  newest.client_request_id,
  newest.operation_id
FROM newest
LEFT JOIN previous
  ON newest.operation_id = previous.operation_id AND newest.op_place = previous.op_place + 1
ORDER BY
  max(newest.ts) OVER (PARTITION BY newest.operation_id) DESC,
  newest.operation_id DESC,
  newest.op_place
