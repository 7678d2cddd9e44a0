"""Links within a table or between two: tables are read, linked without labels, and answered as rows of links."""
