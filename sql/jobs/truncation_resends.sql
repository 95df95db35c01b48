-- Prompts sent again whole after an answer that max_tokens cut off, and what that cost again; by
-- the limit before and after. To go on from the part costs its rest alone (MONEY.md, section 5).
--
-- in_operation: a retry whose attempt before was truncated, unless what it really sent
-- (wire_prompt_hash) is another prompt, as when it goes on from the part. next_operation: the next
-- operation of the same service, tenant (else API key, else neither) and prompt_hash, where it
-- starts within 15 min after an operation whose last attempt was truncated, and that attempt was no
-- success to its caller, or the limit was raised since: a health check with max_tokens 1 is content
-- with its cut answers. probe and eval never; a hedge is neither. Only the attempt that sent the
-- prompt again is counted; its money is in every other report already.
WITH truncated_prompt AS (
  SELECT DISTINCT prompt_hash_kind || ':' || encode(prompt_hash, 'hex') AS truncated_hash
  FROM attempts_raw
  WHERE
    counted AND error_class = 'truncated' AND prompt_hash IS NOT NULL
    AND ts >= $since - INTERVAL '4 hours' AND ts < $until
),
attempt AS (
  SELECT
    -- Copied, so that a sort counts their own bytes and not those of the buffers they share.
    arrow_cast(operation_id, 'Utf8') AS operation_id,
    arrow_cast(service, 'Utf8') AS service,
    arrow_cast(model, 'Utf8') AS model,
    arrow_cast(prompt_hash, 'Utf8') AS prompt_hash,
    arrow_cast(error_class, 'Utf8') AS error_class,
    op_place, decision = 'success' AS delivered, max_tokens, is_hedge, ts,
    cost_confirmed, cost_expected, cost_ceiling,
    arrow_cast(coalesce(wire_prompt_hash, prompt_hash, ''), 'Utf8') AS sent,
    CASE
      WHEN tenant IS NOT NULL THEN 'tenant ' || tenant
      WHEN api_key_id IS NOT NULL THEN 'key ' || api_key_id
    END AS sender,
    coalesce(scenario, '') IN ('probe', 'eval') AS repeats_by_nature,
    coalesce(started_at, ts - arrow_cast(elapsed_ms, 'Duration(Millisecond)'), ts) AS began
  FROM attempts
  LEFT JOIN truncated_prompt ON prompt_hash = truncated_hash
  WHERE counted AND (op_attempts > 1 OR truncated_hash IS NOT NULL)
),
followed AS (
  SELECT
    *,
    lag(error_class) OVER operation AS op_class,
    lag(max_tokens) OVER operation AS op_max_tokens,
    lag(sent) OVER operation AS op_sent,
    -- Of what has no prompt_hash nobody knows whether it is the same prompt.
    CASE WHEN op_place = 0 AND prompt_hash IS NOT NULL THEN lag(error_class) OVER prompt END
      AS prompt_class,
    lag(max_tokens) OVER prompt AS prompt_max_tokens,
    lag(ts) OVER prompt AS prompt_ended,
    lag(delivered) OVER prompt AS prompt_delivered
  FROM attempt
  WINDOW
    operation AS (PARTITION BY operation_id ORDER BY op_place),
    prompt AS (PARTITION BY service, sender, prompt_hash ORDER BY began, ts, operation_id, op_place)
),
resend AS (
  SELECT
    CASE $by WHEN 'service' THEN service ELSE model END AS key,
    CASE WHEN op_place > 0 THEN op_max_tokens ELSE prompt_max_tokens END AS max_tokens_before,
    max_tokens AS max_tokens_after,
    op_place > 0 AS in_operation,
    error_class = 'truncated' AS truncated_again,
    cost_confirmed, cost_expected, cost_ceiling
  FROM followed
  WHERE
    ts >= $since AND ts < $until AND NOT is_hedge
    AND (
      op_class = 'truncated' AND sent = op_sent
      OR prompt_class = 'truncated' AND NOT repeats_by_nature
        AND (NOT prompt_delivered OR max_tokens > prompt_max_tokens)
        AND began >= prompt_ended AND began <= prompt_ended + INTERVAL '15 minutes'
    )
)
SELECT
  key,
  max_tokens_before,
  max_tokens_after,
  count(*) AS resends,
  count(*) FILTER (WHERE in_operation) AS in_operation,
  count(*) FILTER (WHERE NOT in_operation) AS next_operation,
  count(*) FILTER (WHERE truncated_again) AS truncated_again,
  CAST(sum(cost_expected) AS DECIMAL(38, 12)) AS resend_expected_usd,
  CAST(sum(cost_confirmed) AS DECIMAL(38, 12)) AS resend_confirmed_usd,
  CAST(sum(cost_ceiling) AS DECIMAL(38, 12)) AS resend_ceiling_usd,
  count(*) FILTER (WHERE cost_expected IS NULL) AS resends_cost_unknown,
  CASE WHEN max_tokens_after <= max_tokens_before THEN 'the limit was not raised' END AS note
FROM resend
GROUP BY key, max_tokens_before, max_tokens_after
ORDER BY
  resend_expected_usd DESC NULLS LAST, resends DESC, key,
  max_tokens_before NULLS LAST, max_tokens_after NULLS LAST
