-- The requests that have more to them than one complete row. Internal: the engine asks this before
-- a question about the views, and remembers the answer as `to_place(service, request_id)`: a request
-- of which one row is not complete in itself, or of which there are several.
SELECT
  request_hash(service, request_id) AS request,
  lone IS NOT TRUE OR final IS FALSE AS incomplete
FROM attempts_near
