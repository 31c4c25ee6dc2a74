-- Keeps the lines of an order in a column of the order, so that they are part of its events.

CREATE FUNCTION keep_lines() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	-- The lock comes first, and the next statement then sees what the one before committed.
	PERFORM FROM orders WHERE id IN (OLD.order_id, NEW.order_id) ORDER BY id FOR NO KEY UPDATE;
	UPDATE orders SET lines = (SELECT jsonb_agg(to_jsonb(l) - 'order_id' ORDER BY l.line) FROM lines l WHERE l.order_id = orders.id)
		WHERE id IN (OLD.order_id, NEW.order_id);
	RETURN NULL;
END $$;

CREATE TRIGGER keep_lines AFTER INSERT OR UPDATE OR DELETE ON lines FOR EACH ROW EXECUTE FUNCTION keep_lines();

-- The lines that are there already.
UPDATE orders SET lines = (SELECT jsonb_agg(to_jsonb(l) - 'order_id' ORDER BY l.line) FROM lines l WHERE l.order_id = orders.id);
