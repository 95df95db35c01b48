-- The requests that have more to them than one complete row. Internal: the engine asks this before
-- a question about the views, and remembers the answer as `to_place(service, request_id)`.
SELECT request_hash(service, request_id) AS request
FROM attempts_near
WHERE
  lone IS NOT TRUE
  OR final IS FALSE
  -- Two layers may log the same success, each as a complete row.
  OR layer IS NOT NULL AND (SELECT count(DISTINCT layer) FROM attempts_near) > 1
