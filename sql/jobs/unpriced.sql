-- Models without a price: what they used is known, what it cost is not, and no sum holds it.
SELECT
  model,
  string_agg(DISTINCT provider, ', ' ORDER BY provider) AS providers,
  count(*) AS attempts,
  count(*) FILTER (WHERE is_retry) AS retries,
  sum(input_tokens) AS input_tokens,
  sum(output_tokens) AS output_tokens,
  arrow_cast(min(ts), $zone_type) AS first_ts,
  arrow_cast(max(ts), $zone_type) AS last_ts
FROM attempts
WHERE counted AND cost_basis = 'unpriced' AND ts >= $since AND ts < $until
GROUP BY model
ORDER BY attempts DESC, model
