CREATE TABLE orders (id text PRIMARY KEY, state text NOT NULL, total numeric(10, 2) NOT NULL, note text);
CREATE TABLE shipments (order_id text PRIMARY KEY, carrier text NOT NULL, parcels int NOT NULL);
INSERT INTO orders SELECT 'O-' || n, 'new', n * 1.25, 'made up' FROM generate_series(1, 1000) n;
INSERT INTO shipments SELECT 'O-' || n, 'post', 1 FROM generate_series(1, 1000, 2) n;
