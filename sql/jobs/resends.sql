-- Resends: the same prompt sent again, as a new operation, after one that was not delivered
-- (MONEY.md, section 2): the user pressed the button again, or a job did.
--
-- A resend starts within 15 min after the last event of an operation of the same service, tenant
-- (else API key, else neither) and prompt_hash that ended failed, timed_out or abandoned, when no
-- delivery ended since. What overlaps, or follows a delivery, is no resend. What a user stopped
-- neither fails nor delivers. Scenarios probe and eval never resend.
--
-- A chain is an operation, those that began beside it and failed as well, and the resends after
-- it, of an hour at most; it stands in the window in which its last operation ended. Its money is
-- in every other report already: it adds none.
WITH failed_prompt AS (
  SELECT DISTINCT prompt_hash_kind || ':' || encode(prompt_hash, 'hex') AS failed
  FROM attempts_near
  WHERE decision <> 'success'
),
operation AS (
  SELECT
    -- Copied, so that a sort counts their own bytes and not those of the buffers they share.
    arrow_cast(operation_id, 'Utf8') AS operation_id,
    arrow_cast(service, 'Utf8') AS service,
    arrow_cast(request_id, 'Utf8') AS request_id,
    arrow_cast(prompt_hash, 'Utf8') AS prompt_hash,
    started_at, ended_at, outcome,
    CASE
      WHEN tenant IS NOT NULL THEN 'tenant ' || tenant
      WHEN api_key_id IS NOT NULL THEN 'key ' || api_key_id
    END AS sender,
    outcome IN ('failed', 'timed_out', 'abandoned') AS lost,
    attempts, confirmed_usd, expected_usd, ceiling_usd, cost_unknown
  -- Nothing can follow a prompt of which no attempt failed: most of them. The engine holds the
  -- left side in memory.
  FROM failed_prompt
  RIGHT SEMI JOIN operations ON failed = prompt_hash
  WHERE
    prompt_hash IS NOT NULL AND outcome IS NOT NULL AND outcome <> 'cancelled'
    AND coalesce(scenario, '') NOT IN ('probe', 'eval')
),
-- Each operation at its start and at its end, so that one pass finds what ended before a start.
moment AS (
  SELECT *, unnest([0, 1]) AS is_start FROM operation
),
timed AS (
  SELECT
    *,
    CASE is_start WHEN 1 THEN started_at ELSE ended_at END AS at,
    -- At one instant: what ended, what starts, and then the end of what took no time.
    CASE WHEN is_start = 1 THEN 1 WHEN started_at < ended_at THEN 0 ELSE 2 END AS turn
  FROM moment
),
-- One order for every window below, so that the rows are sorted once.
preceded AS (
  SELECT
    *,
    max(CASE WHEN is_start = 0 AND lost THEN ended_at END) OVER earlier AS lost_at,
    max(CASE WHEN is_start = 0 AND NOT lost THEN ended_at END) OVER earlier AS delivered_at
  FROM timed
  WINDOW earlier AS (
    PARTITION BY service, sender, prompt_hash
    ORDER BY at, turn, operation_id
    ROWS UNBOUNDED PRECEDING
  )
),
started AS (
  SELECT
    * EXCLUDE (lost_at, delivered_at),
    coalesce(
      at <= lost_at + INTERVAL '15 minutes' AND (delivered_at IS NULL OR delivered_at < lost_at),
      FALSE
    ) AS is_resend
  FROM preceded
  WHERE is_start = 1
),
-- What was delivered and is no resend can be in no chain.
member AS (
  SELECT
    *,
    is_resend OR coalesce(
      at < max(ended_at) OVER (
        PARTITION BY service, sender, prompt_hash
        ORDER BY at, turn, operation_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ),
      FALSE
    ) AS goes_on
  FROM started
  WHERE is_resend OR lost
),
placed AS (
  SELECT
    *,
    max(CASE WHEN NOT goes_on THEN at END) OVER (
      PARTITION BY service, sender, prompt_hash
      ORDER BY at, turn, operation_id
      ROWS UNBOUNDED PRECEDING
    ) AS begins
  FROM member
),
cut AS (
  SELECT
    *,
    (arrow_cast(at, 'Int64') - arrow_cast(begins, 'Int64')) / 3600000000 AS hour
  FROM placed
),
chain AS (
  SELECT
    service, sender, prompt_hash,
    count(*) AS operations,
    count(*) FILTER (WHERE is_resend) AS resends,
    first_value(is_resend ORDER BY at, operation_id) AS first_is_resend,
    sum(attempts) AS attempts,
    min(started_at) AS started_at,
    max(ended_at) AS ended_at,
    array_agg(request_id ORDER BY at, operation_id) AS request_ids,
    last_value(outcome ORDER BY at, operation_id) AS last_outcome,
    sum(confirmed_usd) AS confirmed,
    sum(expected_usd) AS expected,
    sum(ceiling_usd) AS ceiling,
    count(expected_usd) AS known,
    first_value(expected_usd ORDER BY at, operation_id) AS first_expected,
    sum(cost_unknown) AS cost_unknown
  FROM cut
  GROUP BY service, sender, prompt_hash, begins, hour
),
finding AS (
  SELECT
    *,
    -- The first of a chain begins it, even where an hour's cut made it the first.
    resends - CAST(first_is_resend AS BIGINT) AS later_resends,
    CASE WHEN known > CAST(first_expected IS NOT NULL AS BIGINT) THEN
      expected - coalesce(first_expected, 0)
    END AS again_expected,
    -- What the last one follows; of a long chain the first ten.
    array_to_string(array_slice(request_ids, 1, least(operations - 1, 10)), ', ')
      || CASE WHEN operations > 11 THEN ' ...' ELSE '' END AS predecessors,
    CASE WHEN $by = 'chain' THEN
      coalesce(sender, '') || ' ' || prompt_hash || ' ' || arrow_cast(started_at, 'Int64')
    END AS chain_id
  FROM chain
  WHERE
    resends > CAST(first_is_resend AS BIGINT)
    AND ended_at >= $since AND ended_at < $until
)
SELECT
  service AS key,
  CASE WHEN $by = 'chain' THEN first_value(sender) END AS sender,
  count(*) AS chains,
  CAST(sum(operations) AS BIGINT) AS operations,
  CAST(sum(later_resends) AS BIGINT) AS resends,
  CAST(sum(attempts) AS BIGINT) AS attempts,
  CASE WHEN $by = 'chain' THEN
    arrow_cast(arrow_cast(max(ended_at) - min(started_at), 'Duration(Millisecond)'), 'Int64')
  END AS span_ms,
  CAST(sum(expected) AS DECIMAL(38, 12)) AS expected_usd,
  CAST(sum(again_expected) AS DECIMAL(38, 12)) AS again_expected_usd,
  CAST(sum(confirmed) AS DECIMAL(38, 12)) AS confirmed_usd,
  CAST(sum(ceiling) AS DECIMAL(38, 12)) AS ceiling_usd,
  CAST(sum(cost_unknown) AS BIGINT) AS cost_unknown,
  CASE WHEN $by = 'chain' THEN first_value(last_outcome) END AS last_outcome,
  CASE WHEN $by = 'chain' THEN first_value(request_ids[1]) END AS first_request_id,
  CASE WHEN $by = 'chain' THEN first_value(request_ids[operations]) END AS last_request_id,
  CASE WHEN $by = 'chain' THEN first_value(predecessors) END AS predecessors,
  CASE WHEN $by = 'chain' THEN first_value(prompt_hash) END AS prompt_hash,
  arrow_cast(min(started_at), $zone_type) AS first_ts,
  arrow_cast(max(ended_at), $zone_type) AS last_ts
FROM finding
GROUP BY service, chain_id
ORDER BY
  expected_usd DESC NULLS LAST, operations DESC, key, first_ts, sender, prompt_hash,
  first_request_id
