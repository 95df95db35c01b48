-- What a window holds, beside the rows of any one job. One row.
SELECT
  count(*) AS attempts,
  count(*) FILTER (WHERE counted) AS counted,
  count(*) FILTER (WHERE counted AND is_retry IS NULL) AS unnumbered,
  count(*) FILTER (WHERE counted AND cost_basis = 'unpriced') AS unpriced,
  count(*) FILTER (WHERE counted AND coverable) AS answers,
  count(*) FILTER (WHERE counted AND coverable AND evidence = 'usage') AS answers_with_usage,
  (SELECT count(*) FROM attempts_raw WHERE date IS NULL AND ts IS NULL) AS timeless
FROM attempts
WHERE ts >= $since AND ts < $until
