"""The store on a PostgreSQL server: many nodes, one truth. `PostgresStore` is in `store`."""
