"""Reading a part: its layout, extents fetched and cached, marks, indexes, batches of rows."""
